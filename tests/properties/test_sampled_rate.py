"""The engine's sampled rate takes short cuts; by the letter it must come to the same."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.properties.letter import LetterRate

from kvota.engine import QuotaWindow, SampledRate, arithmetic

pytestmark = pytest.mark.timeout(90)

# On a busy machine a slow example is no fault of the code.
_CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
_WINDOWS = st.builds(
    QuotaWindow, st.sampled_from([1, 2, 3, 11]), st.sampled_from([1, 7, 100, 1000])
)
_LIMITS = st.sampled_from([0.5, 1.0, 3.0, 100.0, 2_500.0, 1e6])
_WHOLE = st.one_of(st.integers(-50, 4_000), st.sampled_from([0, 2**52, 2**53 + 1, -(2**52)]))
_VALUES = st.one_of(_WHOLE, _WHOLE, _WHOLE, st.floats(-10, 4_000), st.sampled_from([0.1, 1e300]))
_STEPS_MS = st.one_of(
    st.just(0),
    st.integers(0, 30),
    st.integers(0, 15_000),
    st.sampled_from([1, 999, 1000, 1001, 10_000, 11_000, 11_001]),
    st.integers(-3_000, 0),
)
_CHARGES = st.lists(st.tuples(_VALUES, _STEPS_MS), min_size=1, max_size=60)
_BEGIN_MS = 1_700_000_000_000


@_CALM
@given(window=_WINDOWS, limit=_LIMITS, charges=_CHARGES)
def test_short_cuts_never_change_a_throttle(
    window: QuotaWindow, limit: float, charges: list[tuple[float, int]]
) -> None:
    rate = SampledRate(window, limit)
    letter = LetterRate(arithmetic, window.samples, window.sample_ms)
    now_ms = _BEGIN_MS

    for value, step_ms in charges:
        now_ms += step_ms
        assert rate.charge(value, now_ms) == letter.charge(value, now_ms, limit)


@_CALM
@given(window=_WINDOWS, limits=st.lists(_LIMITS, min_size=2, max_size=4), charges=_CHARGES)
def test_a_changed_limit_judges_what_was_already_counted(
    window: QuotaWindow, limits: list[float], charges: list[tuple[float, int]]
) -> None:
    rate = SampledRate(window, limits[0])
    letter = LetterRate(arithmetic, window.samples, window.sample_ms)
    now_ms = _BEGIN_MS

    for number, (value, step_ms) in enumerate(charges):
        limit = limits[number // 5 % len(limits)]
        rate.configure(window, limit)
        now_ms += step_ms
        assert rate.charge(value, now_ms) == letter.charge(value, now_ms, limit)


@_CALM
@given(
    window=_WINDOWS,
    limit=st.integers(1, 10_000),
    charges=st.lists(st.tuples(st.integers(0, 4_000), _STEPS_MS), max_size=30),
    step_ms=_STEPS_MS,
)
def test_the_allowance_passes_and_two_more_do_not(
    window: QuotaWindow, limit: int, charges: list[tuple[int, int]], step_ms: int
) -> None:
    within, beyond = SampledRate(window, limit), SampledRate(window, limit)
    now_ms = _BEGIN_MS
    for value, charge_step_ms in charges:
        now_ms += charge_step_ms
        before_ms = within.charge(value, now_ms)
        assert before_ms == beyond.charge(value, now_ms)
    now_ms += step_ms

    allowance = within.allowance(now_ms)

    # Two more, because one more may differ from the limit by less than a double can tell.
    assert allowance == 0 or within.charge(allowance, now_ms) <= 0
    beyond.charge(allowance + 2, now_ms)
    assert beyond.measure(now_ms) > limit


@_CALM
@given(window=_WINDOWS, limit=_LIMITS, charges=_CHARGES)
def test_looking_at_the_allowance_moves_no_decision(
    window: QuotaWindow, limit: float, charges: list[tuple[float, int]]
) -> None:
    looked_at, left_alone = SampledRate(window, limit), SampledRate(window, limit)
    now_ms = _BEGIN_MS

    for value, step_ms in charges:
        now_ms += step_ms
        looked_at.allowance(now_ms + 20_000)
        assert looked_at.charge(value, now_ms) == left_alone.charge(value, now_ms)
