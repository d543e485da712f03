"""KIP-599's bucket, with the numbers of Kafka's TokenBucketTest."""

import math

import pytest

from kvota.engine import QuotaWindow, TokenBucket

_NOW_MS = 1_700_000_000_000
_WINDOW = QuotaWindow(samples=10, sample_ms=2000)  # with 5/s a burst of 100

# Kafka's two scenarios: (ms later, spent, tokens left).
_SPENT = ((0, 0, 100), (0, 60, 40), (2000, 5, 45), (2000, 60, -5))
_GIVEN_BACK = ((0, -60, 100), (2000, 60, 40), (2000, -60, 100))


@pytest.mark.parametrize("steps", [_SPENT, _GIVEN_BACK])
def test_tokens_are_spent_come_back_and_never_exceed_the_burst(
    steps: tuple[tuple[int, int, int], ...],
) -> None:
    bucket = TokenBucket(_WINDOW, 5.0)
    now_ms = _NOW_MS

    for later_ms, spent, tokens in steps:
        now_ms += later_ms
        bucket.record(spent, now_ms)
        assert bucket.measure(now_ms) == pytest.approx(tokens, abs=0.1)


def test_a_clock_near_zero_finds_the_bucket_empty() -> None:
    bucket = TokenBucket(_WINDOW, 5.0)

    assert bucket.measure(0) == 0.0
    assert bucket.measure(1000) == 5.0


def test_a_clock_that_goes_back_takes_tokens() -> None:
    bucket = TokenBucket(_WINDOW, 5.0)
    bucket.measure(_NOW_MS)

    assert bucket.measure(_NOW_MS - 4000) == 80.0


def test_a_lower_limit_cuts_the_tokens_and_a_higher_one_does_not_fill() -> None:
    bucket = TokenBucket(_WINDOW, 5.0)
    bucket.measure(_NOW_MS)

    bucket.configure(_WINDOW, 2.0)
    assert bucket.measure(_NOW_MS) == 40.0
    bucket.configure(_WINDOW, 50.0)
    assert bucket.measure(_NOW_MS) == 40.0


def test_a_pause_is_refilled_at_the_new_limit() -> None:
    bucket = TokenBucket(_WINDOW, 5.0)
    bucket.record(150, _NOW_MS)

    bucket.configure(_WINDOW, 20.0)

    assert bucket.measure(_NOW_MS + 3000) == 10.0


def test_without_a_limit_the_first_touch_fills_it() -> None:
    bucket = TokenBucket(_WINDOW, 5.0)
    bucket.record(1000, _NOW_MS)
    bucket.configure(_WINDOW, None)

    bucket.record(1, _NOW_MS + 1000)
    bucket.configure(_WINDOW, 5.0)

    assert bucket.measure(_NOW_MS + 1000) == 100.0


def test_no_tokens_are_no_debt() -> None:
    bucket = TokenBucket(_WINDOW, 5.0)

    assert bucket.take(100, _NOW_MS) == 100.0
    assert bucket.take(0, _NOW_MS) == 0.0
    assert bucket.throttle_ms(_NOW_MS) == 0


def test_a_debt_refuses_and_stays_as_it_is() -> None:
    bucket = TokenBucket(_WINDOW, 5.0)
    bucket.take(101, _NOW_MS)

    assert bucket.take(50, _NOW_MS) == -1.0
    assert bucket.measure(_NOW_MS) == -1.0


@pytest.mark.parametrize("limit", [0.0, 1e-300, 1e300, math.inf, math.nan, 2.0**53 + 2])
@pytest.mark.parametrize("value", [0.0, 1e300, -1e300, math.inf, math.nan, 2**53 + 1])
def test_odd_limits_and_values_never_raise(limit: float, value: float) -> None:
    bucket = TokenBucket(_WINDOW, limit)

    bucket.record(value, _NOW_MS)
    bucket.take(value, _NOW_MS + 1)

    assert isinstance(bucket.throttle_ms(_NOW_MS + 2), int)
