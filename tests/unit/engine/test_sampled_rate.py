"""Kafka's sampled rate, with the numbers of its own tests."""

import math

import pytest

from kvota.engine import QuotaWindow, SampledRate

_NOW_MS = 1_700_000_000_000
_TEN_SECONDS = QuotaWindow(11, 1000)


# RateTest: one value at the beginning, measured 1 ms before the first sample ends.
@pytest.mark.parametrize("samples", [1, 11])
@pytest.mark.parametrize("sample_s", [1, 11])
def test_samples_not_there_yet_count_as_empty_ones(samples: int, sample_s: int) -> None:
    rate = SampledRate(QuotaWindow(samples, sample_s * 1000))
    rate.record(50, _NOW_MS)
    measured_ms = sample_s * 1000 - 1

    per_s = rate.measure(_NOW_MS + measured_ms)

    assert per_s == pytest.approx(50 / (measured_ms / 1000 + (samples - 1) * sample_s))


# RateTest: about ten events a second in two samples of 1 s with a gap between them.
def test_an_overlapping_sample_keeps_the_rate_steady() -> None:
    rate = SampledRate(QuotaWindow(2, 1000))
    steps_ms = [0, 99, *[100] * 9]
    now_ms = _NOW_MS
    for step_ms in steps_ms:
        now_ms += step_ms
        rate.record(1, now_ms)
    now_ms += 101

    for step_ms in steps_ms:
        now_ms += step_ms
        rate.record(1, now_ms)
        per_s = rate.measure(now_ms)
        assert 10 <= per_s <= 11
        assert rate.measure(now_ms) == per_s


# SampledStatTest: a sample used from 0 to 999 ms in a window of two, seen later. It is forgotten
# two samples after its last event.
@pytest.mark.parametrize(("seen_ms", "per_s"), [(2_500, 2 / 2.5), (3_500, 0.0)])
def test_a_sample_is_kept_while_its_last_event_is_in_the_window(seen_ms: int, per_s: float) -> None:
    rate = SampledRate(QuotaWindow(2, 1000))
    rate.record(1, _NOW_MS)
    rate.record(1, _NOW_MS + 999)

    assert rate.measure(_NOW_MS + seen_ms) == per_s


# ClientQuotaManagerTest: 400 B/s for 10 s, then a spike of 2,300 B half a second later.
def test_a_spike_waits_until_the_rate_is_back_at_its_limit() -> None:
    rate = SampledRate(_TEN_SECONDS, 500.0)
    now_ms = _NOW_MS
    for _ in range(10):
        assert rate.charge(400, now_ms) == 0
        now_ms += 1000

    throttle_ms = rate.charge(2300, now_ms + 500)

    assert throttle_ms == 2100


def test_a_spike_is_forgotten_when_its_sample_has_left() -> None:
    rate = SampledRate(_TEN_SECONDS, 500.0)
    rate.charge(6300, _NOW_MS)
    for second in range(1, 11):
        rate.charge(400, _NOW_MS + second * 1000)

    assert rate.charge(0, _NOW_MS + 11_001) == 0


def test_what_violates_stays_recorded() -> None:
    rate = SampledRate(_TEN_SECONDS, 1000.0)

    assert [rate.charge(10_001, _NOW_MS), rate.charge(0, _NOW_MS)] == [1, 1]


def test_exactly_the_limit_is_within_it() -> None:
    rate = SampledRate(_TEN_SECONDS, 1000.0)

    assert rate.charge(10_000, _NOW_MS) == 0
    assert rate.charge(1, _NOW_MS) == 1


@pytest.mark.parametrize("first", [2**60, -(2**60)])
def test_huge_amounts_swallow_small_ones_as_kafkas_doubles_do(first: int) -> None:
    rate = SampledRate(QuotaWindow(2, 1000), 1.0)
    rate.charge(0, _NOW_MS)
    rate.charge(first, _NOW_MS)
    rate.charge(3, _NOW_MS)

    assert rate.charge(-first, _NOW_MS) == 0


def test_fractions_are_summed_sample_by_sample_as_kafka_does() -> None:
    # (0.1 + 0.2) + 0.3 is above 0.6 by one bit, and 0.1 + (0.2 + 0.3) is not.
    rate = SampledRate(QuotaWindow(3, 1000))
    for second, value in enumerate((0.1, 0.2, 0.3)):
        rate.record(value, _NOW_MS + second * 1000)

    assert rate.measure(_NOW_MS + 2000) * 2 == (0.1 + 0.2) + 0.3 != 0.1 + (0.2 + 0.3)


def test_a_changed_limit_holds_for_what_is_already_counted() -> None:
    rate = SampledRate(_TEN_SECONDS, 1000.0)
    rate.charge(5_000, _NOW_MS)

    rate.configure(_TEN_SECONDS, 250.0)

    assert rate.charge(0, _NOW_MS) == 10_000


def test_another_window_starts_anew() -> None:
    rate = SampledRate(_TEN_SECONDS, 1000.0)
    rate.charge(1_000_000, _NOW_MS)

    rate.configure(QuotaWindow(3, 1000), 1000.0)

    assert rate.allowance(_NOW_MS) == 2_000
    assert rate.charge(2_000, _NOW_MS) == 0


@pytest.mark.parametrize(("idle_ms", "throttle_ms"), [(3_600_000, 390_000), (3_600_001, 0)])
def test_idle_for_over_an_hour_it_starts_anew(idle_ms: int, throttle_ms: int) -> None:
    window = QuotaWindow(11, 1_000_000)  # long enough to remember for more than an hour
    rate = SampledRate(window, 1.0, forget_after_ms=3_600_000)
    rate.charge(10_990, _NOW_MS)

    assert rate.charge(0, _NOW_MS + idle_ms) == throttle_ms


def test_nothing_is_allowed_above_the_limit_and_all_of_it_below() -> None:
    rate = SampledRate(_TEN_SECONDS, 1000.0)

    assert rate.allowance(_NOW_MS) == 10_000
    rate.charge(4_000, _NOW_MS)
    assert rate.allowance(_NOW_MS) == 6_000
    rate.charge(7_000, _NOW_MS)
    assert rate.allowance(_NOW_MS) == 0


@pytest.mark.parametrize(("limit", "allowance"), [(None, 2**31 - 1), (1e300, 2**31 - 1), (0.0, 0)])
def test_the_allowance_fits_an_int(limit: float | None, allowance: int) -> None:
    rate = SampledRate(_TEN_SECONDS, limit)
    rate.charge(0, _NOW_MS)

    assert rate.allowance(_NOW_MS) == allowance


@pytest.mark.parametrize("limit", [0.0, -1.0, 1e-300, 1e300, math.inf, math.nan, None])
@pytest.mark.parametrize("value", [0, 1e300, -1e300, math.inf, math.nan, 2**53 + 1, 2**1000, True])
def test_odd_limits_and_values_never_raise(limit: float | None, value: float) -> None:
    rate = SampledRate(_TEN_SECONDS, limit)

    for later_ms in (0, 1, 5_000):
        assert isinstance(rate.charge(value, _NOW_MS + later_ms), int)

    assert isinstance(rate.allowance(_NOW_MS + 1), int)
