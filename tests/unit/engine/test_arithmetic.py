"""The JVM's numbers in Python. Expected values come from a JVM or from Kafka's published tests."""

import math

import pytest

from kvota.engine import arithmetic

_LONG_MAX = 2**63 - 1


@pytest.mark.parametrize(
    ("exact", "rounded"),
    [
        (2.5, 3),
        (-2.5, -2),
        (-0.5, 0),
        (-0.5000000000000001, -1),
        (0.49999999999999994, 0),
        (0.5, 1),
        (4503599627370495.5, 4503599627370496),
        (9007199254740993.0, 9007199254740992),
        (9.3e18, _LONG_MAX),
        (-9.3e18, -(2**63)),
        (math.inf, _LONG_MAX),
        (-math.inf, -(2**63)),
        (math.nan, 0),
        (-1e-20, 0),
    ],
)
def test_rounding_is_the_jvms(exact: float, rounded: int) -> None:
    assert arithmetic.java_round(exact) == rounded


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        (99_990_000_000, 1_205_752_192),
        (_LONG_MAX, -1),
        (2**31, -(2**31)),
        (-(2**31) - 1, 2**31 - 1),
        (-(2**63), 0),
        (7, 7),
    ],
)
def test_a_long_loses_its_high_bits_as_an_int(wide: int, narrow: int) -> None:
    assert arithmetic.narrow_to_int32(wide) == narrow


@pytest.mark.parametrize(
    ("exact", "whole"),
    [(1e300, 2**31 - 1), (-1e300, -(2**31)), (-1.9, -1), (1.9, 1), (math.nan, 0)],
)
def test_a_double_stops_at_the_ends_of_an_int(exact: float, whole: int) -> None:
    assert arithmetic.saturate_to_int32(exact) == whole


@pytest.mark.parametrize(
    ("a", "b", "quotient"),
    [(1.0, 0.0, math.inf), (-1.0, 0.0, -math.inf), (1.0, -0.0, -math.inf), (6.0, 4.0, 1.5)],
)
def test_dividing_by_zero_is_an_infinity(a: float, b: float, quotient: float) -> None:
    assert arithmetic.ieee_divide(a, b) == quotient


@pytest.mark.parametrize("a", [0.0, math.nan])
def test_zero_or_nothing_by_zero_is_no_number(a: float) -> None:
    assert math.isnan(arithmetic.ieee_divide(a, 0.0))


@pytest.mark.parametrize(("a", "quotient"), [(-1500, -1), (-999, 0), (-2000, -2), (1999, 1)])
def test_longs_divide_toward_zero(a: int, quotient: int) -> None:
    assert arithmetic.truncated_quotient(a, 1000) == quotient


@pytest.mark.parametrize(
    ("elapsed_ms", "samples", "window_ms"),
    [
        (0, 11, 10_000),  # nothing but padding
        (500, 11, 10_500),
        (10_000, 11, 10_000),  # ten whole samples are there: real time
        (11_700, 11, 11_700),  # an overlapping sample makes it longer than the window
        (0, 1, 1),  # one sample has no padding, and a window is never empty
        (-500, 11, 9_500),  # the clock went back by less than a sample
        (-1_000, 11, 10_000),  # truncation gives -1 whole sample: one more of padding
        (-20_000, 2, 1_000),
    ],
)
def test_the_window_of_a_rate_is_padded_and_never_empty(
    elapsed_ms: int, samples: int, window_ms: int
) -> None:
    assert arithmetic.rate_window_ms(1_000_000, 1_000_000 + elapsed_ms, samples, 1000) == window_ms


# QuotaUtilsTest: a rate measured at once, so the window is (samples - 1) whole samples of 1 s.
@pytest.mark.parametrize(
    ("observed_per_s", "limit", "samples", "throttle_ms"),
    [(100.0, 50.0, 3, 2000), (55.0, 50.0, 2, 100), (16.5, 16.5, 10, 0), (16.5, 20.4, 10, 0)],
)
def test_the_throttle_of_a_rate_is_kafkas(
    observed_per_s: float, limit: float, samples: int, throttle_ms: int
) -> None:
    window_ms = (samples - 1) * 1000

    total = observed_per_s * window_ms / 1000

    assert arithmetic.rate_throttle(total, limit, window_ms) == throttle_ms


@pytest.mark.parametrize(
    ("total", "limit", "throttle_ms"),
    [
        (1.0, 0.0, -1),  # an infinite throttle, narrowed: does not throttle
        (0.0, 0.0, 0),
        (1e300, 1.0, -1),
        (math.nan, 1.0, 0),
        (math.inf, 1.0, -1),
    ],
)
def test_odd_amounts_end_as_in_kafka(total: float, limit: float, throttle_ms: int) -> None:
    assert arithmetic.rate_throttle(total, limit, 10_000) == throttle_ms


# ControllerMutationQuotaManagerTest.
@pytest.mark.parametrize(
    ("tokens", "limit", "throttle_ms"), [(0.0, 10.0, 0), (-5.0, 10.0, 500), (-10.0, 10.0, 1000)]
)
def test_the_throttle_of_a_bucket_pays_its_debt(
    tokens: float, limit: float, throttle_ms: int
) -> None:
    assert arithmetic.bucket_throttle(tokens, limit) == throttle_ms


@pytest.mark.parametrize(
    ("throttle", "elapsed_ms", "left_ms"),
    [(8000, 5000, 3000), (8000, 9000, 0), (0, -5000, 0), (8000, -1000, 9000), (_LONG_MAX, 0, 0)],
)
def test_time_spent_is_deducted_from_a_throttle(
    throttle: int, elapsed_ms: int, left_ms: int
) -> None:
    assert arithmetic.remaining_throttle(throttle, elapsed_ms) == left_ms


def test_a_counter_expires_strictly_after_an_hour() -> None:
    assert not arithmetic.counter_expired(0, 3_600_000)
    assert arithmetic.counter_expired(0, 3_600_001)


@pytest.mark.parametrize(
    ("limit", "floor", "is_blocked"),
    [
        (0.0, 1.0, True),
        (-1.0, 1.0, True),
        (0.999, 1.0, True),
        (1.0, 1.0, False),
        (1e-9, 1e-6, True),
        (1e-300, 0.0, False),
        (arithmetic.UNLIMITED, 1.0, False),
        (math.inf, 1.0, False),
        (math.nan, 1.0, False),
    ],
)
def test_a_limit_below_the_floor_blocks(limit: float, floor: float, is_blocked: bool) -> None:
    assert arithmetic.is_blocked(limit, floor) == is_blocked


def test_a_blocked_charge_waits_for_30_s() -> None:
    assert arithmetic.BLOCKED_THROTTLE_MS == 30_000


def test_no_limit_is_kafkas_long_max_as_a_double() -> None:
    assert float(arithmetic.INT64_MAX) == arithmetic.UNLIMITED
