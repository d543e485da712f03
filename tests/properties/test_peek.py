"""An observer moves nothing: whoever peeks between charges changes no later decision."""

from copy import deepcopy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvota.engine import Lane, QuotaType, QuotaWindow, SampledRate
from kvota.engine.bucket_counter import BucketCounter
from kvota.engine.counting import Counting
from kvota.engine.lane import Counter
from kvota.engine.mutations import StrictQuota

pytestmark = pytest.mark.timeout(120)

_CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=300)
_WINDOWS = st.builds(QuotaWindow, st.sampled_from([1, 2, 3, 11]), st.sampled_from([1, 100, 1000]))
# Floors, and what is below them: a blocked lane is looked at, too.
_LIMITS = st.sampled_from([None, 0.0, 0.5, 1.0, 3.0, 100.0, 2_500.0, float("inf")])
_VALUES = st.one_of(
    st.integers(-50, 4_000), st.integers(0, 4_000), st.floats(0, 4_000), st.just(2**53 + 1)
)
_STEPS_MS = st.one_of(
    st.integers(0, 30),
    st.integers(0, 15_000),
    st.sampled_from([0, 1, 999, 1000, 1001, 10_000, 11_001, 3_600_000, 3_600_001]),
    st.integers(-3_000, 0),
)
_KINDS = st.sampled_from(["charge", "charge", "charge", "refuse", "limit", "window"])
_STEPS = st.lists(st.tuples(_KINDS, _VALUES, _LIMITS, _WINDOWS, _STEPS_MS), max_size=40)
_BEGIN_MS = 1_700_000_000_000


def _lane(quota_type: QuotaType, window: QuotaWindow, limit: float | None) -> Lane:
    counter: Counter = BucketCounter(window, limit, born_ms=_BEGIN_MS)
    if quota_type is QuotaType.PRODUCE:
        counter = SampledRate(window, limit, forget_after_ms=3_600_000, born_ms=_BEGIN_MS)
    lane = Lane(quota_type, 1, {}, counter)
    lane.configure(counting=Counting.of_kafka(lane.quota_type, window), configured_limit=limit)
    return lane


def _charge(lane: Lane, value: float, now_ms: int) -> object:
    """As the gateway does: a mutation of old and of new versions in turn."""
    if isinstance(lane.counter, BucketCounter) and now_ms % 2:
        return StrictQuota(lane).charge(value, now_ms)
    return lane.charge(value, now_ms)


@_CALM
@given(
    quota_type=st.sampled_from([QuotaType.PRODUCE, QuotaType.CONTROLLER_MUTATION]),
    window=_WINDOWS,
    limit=_LIMITS,
    steps=_STEPS,
    peeks=st.lists(_STEPS_MS, max_size=3),
)
def test_no_decision_tells_whether_somebody_looked(
    quota_type: QuotaType,
    window: QuotaWindow,
    limit: float | None,
    steps: list[tuple[str, float, float | None, QuotaWindow, int]],
    peeks: list[int],
) -> None:
    looked_at, left_alone = (_lane(quota_type, window, limit) for _ in range(2))
    now_ms = _BEGIN_MS

    for kind, value, new_limit, new_window, step_ms in steps:
        now_ms += step_ms
        for offset_ms in peeks:
            looked_at.peek(now_ms + offset_ms)
            looked_at.allowance(now_ms + offset_ms)
        if kind == "limit":
            limit = new_limit
        elif kind == "window":
            window = new_window
        for lane in (looked_at, left_alone):
            lane.configure(
                counting=Counting.of_kafka(lane.quota_type, window), configured_limit=limit
            )
        if kind == "refuse":
            assert looked_at.refuse(value, now_ms) == left_alone.refuse(value, now_ms)
        else:
            assert _charge(looked_at, value, now_ms) == _charge(left_alone, value, now_ms)


@_CALM
@given(
    quota_type=st.sampled_from([QuotaType.PRODUCE, QuotaType.CONTROLLER_MUTATION]),
    window=_WINDOWS,
    limit=_LIMITS,
    steps=_STEPS,
)
def test_a_peek_tells_what_a_charge_of_nothing_is_told(
    quota_type: QuotaType,
    window: QuotaWindow,
    limit: float | None,
    steps: list[tuple[str, float, float | None, QuotaWindow, int]],
) -> None:
    lane = _lane(quota_type, window, limit)
    now_ms = _BEGIN_MS

    for kind, value, new_limit, new_window, step_ms in steps:
        now_ms += step_ms
        if kind in {"limit", "window"}:
            lane.configure(
                counting=Counting.of_kafka(lane.quota_type, new_window), configured_limit=new_limit
            )
        _charge(lane, value, now_ms)
        for later_ms in (0, abs(step_ms), -step_ms):
            peeked = lane.peek(now_ms + later_ms)
            assert peeked == deepcopy(lane).charge(0, now_ms + later_ms)
