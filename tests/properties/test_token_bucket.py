"""Promises of the token bucket. (Kafka's sampled rate does not keep the first one.)"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvota.engine import QuotaWindow, TokenBucket

pytestmark = pytest.mark.timeout(90)

# On a busy machine a slow example is no fault of the code.
_CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
_BEGIN_MS = 1_700_000_000_000
_LIMITS = st.floats(0.01, 1e6)
_VALUES = st.floats(0, 1e6)


@_CALM
@given(
    limit=_LIMITS,
    samples=st.integers(1, 20),
    debt_s=st.floats(5.01, 2_000_000),
    shares=st.lists(st.floats(0, 1), max_size=7),
    idle_ms=st.integers(0, 5_000),
)
def test_the_promised_wait_is_true_to_half_a_millisecond(
    limit: float, samples: int, debt_s: float, shares: list[float], idle_ms: int
) -> None:
    """In debt still after the idle time; for less than int32 holds (25 days), where waits are cut."""
    bucket = TokenBucket(QuotaWindow(samples, 1000), limit)
    values = _parts((samples + debt_s) * limit, shares)
    for value in values:
        bucket.record(value, _BEGIN_MS)
    now_ms = _BEGIN_MS + idle_ms
    wait_ms = bucket.throttle_ms(now_ms)
    half_ms = limit * 0.0005
    blur = 1e-9 * (sum(values) + limit)

    too_early = bucket.measure(now_ms + wait_ms - 1)
    in_time = bucket.measure(now_ms + wait_ms)

    assert wait_ms > 1
    assert too_early < 0
    assert in_time >= -half_ms - blur


def _parts(whole: float, shares: list[float]) -> list[float]:
    """The whole, in as many charges as there are shares, and the rest."""
    parts = []
    for share in shares:
        parts.append(whole * share)
        whole -= parts[-1]
    return [*parts, whole]


@_CALM
@given(limit=_LIMITS, values=st.lists(_VALUES, max_size=20), steps_ms=st.integers(0, 3_000))
def test_a_bucket_never_holds_more_than_its_window(
    limit: float, values: list[float], steps_ms: int
) -> None:
    window = QuotaWindow(11, 1000)
    bucket = TokenBucket(window, limit)

    for number, value in enumerate(values):
        bucket.record(value if number % 3 else -value, _BEGIN_MS + number * steps_ms)

        assert bucket.measure(_BEGIN_MS + number * steps_ms) <= 11.0 * limit


@_CALM
@given(
    limit=_LIMITS, values=st.lists(_VALUES, min_size=1, max_size=20), step_ms=st.integers(0, 900)
)
def test_strict_admits_at_most_the_burst_the_refill_and_one_charge_more(
    limit: float, values: list[float], step_ms: int
) -> None:
    bucket = TokenBucket(QuotaWindow(11, 1000), limit)
    admitted = 0.0

    for number, value in enumerate(values):
        if bucket.take(value, _BEGIN_MS + number * step_ms) >= 0:
            admitted += value

    span_s = (len(values) - 1) * step_ms / 1000
    assert admitted <= limit * (11 + span_s) * (1 + 1e-9) + max(values)
