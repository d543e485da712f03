"""A counter that says it is as good as new can be forgotten without a trace."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kvota.engine import QuotaWindow, SampledRate
from kvota.engine.bucket_counter import BucketCounter
from kvota.engine.counting import Counting
from kvota.engine.lane import Lane
from kvota.engine.mutations import PermissiveQuota, StrictQuota
from kvota.model.quota_type import QuotaType

_WINDOWS = st.builds(QuotaWindow, st.sampled_from([1, 2, 3, 11]), st.sampled_from([1, 100, 1000]))
_LIMITS = st.sampled_from([None, 0.5, 3.0, 100.0, 2_500.0, float("inf")])
_STEPS_MS = st.one_of(
    st.integers(0, 30),
    st.integers(0, 15_000),
    st.sampled_from([0, 1, 999, 1000, 1001, 10_000, 11_000, 11_001, 100_000]),
)
_BEGIN_MS = 1_700_000_000_000


def _bucket_lane(window: QuotaWindow, limit: float | None, born_ms: int) -> Lane:
    counter = BucketCounter(window, limit, born_ms=born_ms)
    lane = Lane(QuotaType.CONTROLLER_MUTATION, -1, {}, counter)
    lane.configure(counting=Counting.of_kafka(lane.quota_type, window), configured_limit=limit)
    return lane


@settings(deadline=None, max_examples=300)
@given(
    window=_WINDOWS,
    limit=_LIMITS,
    charges=st.lists(st.tuples(st.integers(0, 4_000), _STEPS_MS), max_size=40),
)
def test_no_throttle_tells_whether_a_rate_was_forgotten(
    window: QuotaWindow, limit: float | None, charges: list[tuple[int, int]]
) -> None:
    kept = forgotten = SampledRate(window, limit)
    now_ms = _BEGIN_MS

    for value, step_ms in charges:
        now_ms += step_ms
        if forgotten.is_as_new(now_ms):
            forgotten = SampledRate(window, limit, born_ms=now_ms)
        elif forgotten is kept:
            kept.charge(value, now_ms)
            continue
        assert forgotten.allowance(now_ms) == kept.allowance(now_ms)
        assert forgotten.charge(value, now_ms) == kept.charge(value, now_ms)


@settings(deadline=None, max_examples=300)
@given(
    window=_WINDOWS,
    limit=_LIMITS,
    charges=st.lists(
        st.tuples(
            st.integers(0, 4_000), _STEPS_MS, st.sampled_from([StrictQuota, PermissiveQuota])
        ),
        max_size=40,
    ),
)
def test_no_decision_tells_whether_a_bucket_was_forgotten(
    window: QuotaWindow,
    limit: float | None,
    charges: list[tuple[int, int, type[StrictQuota | PermissiveQuota]]],
) -> None:
    kept = _bucket_lane(window, limit, _BEGIN_MS)
    forgotten = _bucket_lane(window, limit, _BEGIN_MS)
    now_ms = _BEGIN_MS

    for value, step_ms, quota in charges:
        now_ms += step_ms
        if forgotten.counter is not None and forgotten.counter.is_as_new(now_ms):
            forgotten = _bucket_lane(window, limit, now_ms)
        assert quota(forgotten).charge(value, now_ms) == quota(kept).charge(value, now_ms)
