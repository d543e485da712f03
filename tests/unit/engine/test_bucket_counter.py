"""A bucket with its life: forgotten when idle, begun anew under another window."""

import pytest

from kvota.engine import QuotaWindow
from kvota.engine.bucket_counter import BucketCounter

NOW_MS = 1_700_000_000_000
WINDOW = QuotaWindow(10, 1000)
HOUR_MS = 3_600_000


def counter(limit: float | None = 10.0) -> BucketCounter:
    return BucketCounter(WINDOW, limit, born_ms=NOW_MS)


def test_it_begins_full_and_runs_into_debt() -> None:
    bucket = counter()

    assert bucket.allowance(NOW_MS) == 100
    assert [bucket.charge(90, NOW_MS) for _ in range(3)] == [0, 8_000, 17_000]
    assert bucket.allowance(NOW_MS) == 0


def test_a_charge_that_is_refused_costs_nothing() -> None:
    bucket = counter()

    told = [bucket.refuse(150, NOW_MS), bucket.refuse(150, NOW_MS)]

    assert told == [5_000, 5_000]
    assert bucket.allowance(NOW_MS) == 100


def test_without_a_limit_nothing_is_ever_owed() -> None:
    bucket = counter(None)

    assert [bucket.charge(10**12, NOW_MS) for _ in range(3)] == [0, 0, 0]
    assert (bucket.peek(NOW_MS), bucket.allowance(NOW_MS)) == (0, 2**31 - 1)


@pytest.mark.parametrize(("idle_ms", "throttle_ms"), [(HOUR_MS, 6_400_000), (HOUR_MS + 1, 0)])
def test_an_hour_without_a_record_forgives_all_debt(idle_ms: int, throttle_ms: int) -> None:
    bucket = BucketCounter(WINDOW, 0.1, born_ms=NOW_MS)
    bucket.charge(1_001, NOW_MS)

    assert bucket.peek(NOW_MS + idle_ms) == throttle_ms
    assert bucket.charge(0, NOW_MS + idle_ms) == throttle_ms


def test_what_looks_at_it_keeps_no_counter_alive() -> None:
    bucket = counter(0.001)
    bucket.charge(1_000, NOW_MS)

    bucket.peek(NOW_MS + HOUR_MS)
    bucket.allowance(NOW_MS + HOUR_MS)

    assert bucket.last_ms == NOW_MS
    assert bucket.charge(0, NOW_MS + HOUR_MS + 1) == 0


def test_another_window_starts_it_anew_when_it_is_charged() -> None:
    bucket = counter()
    bucket.charge(500, NOW_MS)

    bucket.configure(QuotaWindow(5, 1000), 10.0)

    assert bucket.window_ms == 5_000
    assert bucket.is_as_new(NOW_MS)
    assert (bucket.peek(NOW_MS), bucket.allowance(NOW_MS)) == (0, 50)
    assert bucket.charge(51, NOW_MS) == 100


def test_another_limit_is_held_against_the_tokens_there_are() -> None:
    bucket = counter()
    bucket.charge(150, NOW_MS)

    bucket.configure(WINDOW, 50.0)

    assert not bucket.is_as_new(NOW_MS)
    assert (bucket.peek(NOW_MS), bucket.admitted.limit) == (1_000, 50.0)
