"""A counter that was put away and taken out again decides as one that never was."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvota.callbacks import DefaultQuotaCallback
from kvota.engine import Lane, QuotaEngine, QuotaType, QuotaWindow, SampledRate, counters
from kvota.engine.arithmetic import COUNTER_EXPIRES_MS
from kvota.engine.debt_bucket import DebtBucket
from kvota.model.bucket_settings import BucketSettings
from kvota.model.configured_quotas import ConfiguredQuotas, QuotaChange
from kvota.model.quota_entity import DEFAULT, QuotaEntity

pytestmark = pytest.mark.timeout(120)

_CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=200)
_BEGIN_MS = 1_700_000_000_000
_WINDOWS = st.builds(QuotaWindow, st.sampled_from([1, 2, 3, 11]), st.sampled_from([1, 100, 1000]))
_LIMITS = st.sampled_from([None, 0.5, 3.0, 100.0, 2_500.0, float("inf")])
_STEPS_MS = st.one_of(
    st.integers(0, 30),
    st.integers(0, 15_000),
    st.sampled_from([0, 1, 999, 1000, 1001, 10_000, 11_000, 11_001, 100_000, 3_600_001]),
)
_VALUES = st.one_of(st.integers(-100, 4_000), st.sampled_from([0.5, 1e15, 2**60]))
_CHARGES = st.lists(st.tuples(_VALUES, _STEPS_MS, st.booleans()), max_size=40)


@_CALM
@given(
    windows=st.lists(_WINDOWS, min_size=1, max_size=2),
    limit=_LIMITS,
    charges=_CHARGES,
    changes_at=st.integers(0, 40),
)
def test_a_rate_goes_on_where_it_was(
    windows: list[QuotaWindow],
    limit: float | None,
    charges: list[tuple[float, int, bool]],
    changes_at: int,
) -> None:
    window = windows[0]
    kept = SampledRate(window, limit, forget_after_ms=COUNTER_EXPIRES_MS, born_ms=_BEGIN_MS)
    moved = SampledRate(window, limit, forget_after_ms=COUNTER_EXPIRES_MS, born_ms=_BEGIN_MS)
    now_ms = _BEGIN_MS

    for number, (value, step_ms, is_packed) in enumerate(charges):
        now_ms += step_ms
        if number == changes_at:
            window = windows[-1]
            kept.configure(window, limit)
            moved.configure(window, limit)
        if is_packed:
            moved = SampledRate.unpacked(moved.packed(), window)
            moved.configure(window, limit)
        assert moved.is_as_new(now_ms) == kept.is_as_new(now_ms)
        assert moved.last_ms == kept.last_ms
        assert moved.allowance(now_ms) == kept.allowance(now_ms)
        assert moved.charge(value, now_ms) == kept.charge(value, now_ms)


@_CALM
@given(window=_WINDOWS, limit=_LIMITS, charges=_CHARGES)
def test_a_debt_is_owed_on(
    window: QuotaWindow, limit: float | None, charges: list[tuple[float, int, bool]]
) -> None:
    kept = DebtBucket(window, limit, debt_max_ms=1_500, born_ms=_BEGIN_MS)
    moved = DebtBucket(window, limit, debt_max_ms=1_500, born_ms=_BEGIN_MS)
    now_ms = _BEGIN_MS

    for value, step_ms, is_packed in charges:
        now_ms += step_ms
        if is_packed:
            moved = DebtBucket.unpacked(moved.packed(), window, debt_max_ms=1_500)
            moved.configure(window, limit)
        assert moved.is_as_new(now_ms) == kept.is_as_new(now_ms)
        assert moved.turn_in_ms(now_ms) == kept.turn_in_ms(now_ms)
        assert moved.charge(max(0, value), now_ms) == kept.charge(max(0, value), now_ms)


# ---------------------------------------------------------------------- a whole engine

_P = QuotaType.PRODUCE
_USERS, _CLIENT_IDS = ("alice", "bob"), ("a", "b", "c", "ü", "d*")
_ENTITIES = st.sampled_from(
    [
        QuotaEntity(client_id=DEFAULT),
        QuotaEntity(client_id="a"),
        QuotaEntity(user=DEFAULT),
        QuotaEntity("alice", DEFAULT),
        QuotaEntity("alice", "b"),
    ]
)
_CHANGES = st.builds(
    QuotaChange, _ENTITIES, st.just(_P), st.sampled_from([None, 0.0, 50.0, 1e3, 1e6])
)
# One burst: what is forgotten because its bucket is full has at once what a larger burst holds.
_BUCKETS = st.sampled_from([{}, {_P: BucketSettings(burst_ms=1_000, debt_max_ms=2_000)}])
_CHARGE = st.tuples(
    st.just("charge"),
    st.tuples(
        st.sampled_from(_USERS),
        st.sampled_from(_CLIENT_IDS),
        st.sampled_from([1, 2]),
        st.sampled_from([1, 500, 5_000, 20_000]),
    ),
)
_OTHERS = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from([1, 300, 1_000, 4_000, 11_000, 40_000])),
    st.tuples(st.just("quota"), _CHANGES),
    st.tuples(st.just("factor"), st.sampled_from([(0.5, None), (1.0, None), (2.0, 1)])),
    st.tuples(st.just("factor of one"), st.sampled_from([0.5, 1.0])),
    st.tuples(st.just("counting"), _BUCKETS),
    st.tuples(st.just("purge"), st.none()),
)
# Something happens, and then everybody is charged in some order.
_ROUNDS = st.lists(st.tuples(_OTHERS, st.lists(_CHARGE, max_size=12)), max_size=12)


class _Clients:
    """Keeps lanes as connections do, and charges them."""

    def __init__(self, engine: QuotaEngine) -> None:
        self.engine = engine
        self._kept: dict[tuple[str, str, int], tuple[Lane, int]] = {}

    def charge(self, client: tuple[str, str, int], value: int, now_ms: int) -> tuple[object, ...]:
        user, client_id, node_id = client
        lane, version = self._kept.get(client, (None, -1))
        if lane is None or lane.version != version:
            lane = self.engine.lane(_P, node_id, user, client_id, now_ms)
            assert lane is not None
            self._kept[client] = lane, lane.version
        told = (lane.peek(now_ms), lane.allowance(now_ms), lane.charge(value, now_ms))
        return *told, lane.tags, lane.limit, lane.algorithm


@contextmanager
def _crowd(count: int) -> Iterator[None]:
    before = counters.CROWD, counters._IDLE_MS
    counters.CROWD, counters._IDLE_MS = count, 0
    try:
        yield
    finally:
        counters.CROWD, counters._IDLE_MS = before


@settings(_CALM, max_examples=400)
@given(rounds=_ROUNDS)
def test_no_decision_tells_whether_a_crowd_was_put_away(
    rounds: list[tuple[tuple[str, object], list[tuple[str, object]]]],
) -> None:
    first = {QuotaEntity(client_id=DEFAULT): {_P: 1_000.0}}
    crowded, roomy = (
        _Clients(QuotaEngine(DefaultQuotaCallback(ConfiguredQuotas(first)), {})) for _ in range(2)
    )
    now_ms = _BEGIN_MS
    operations = [operation for first, charges in rounds for operation in (first, *charges)]
    for what, argument in operations:
        told = []
        if what == "wait":
            now_ms += argument
        for clients, count in ((crowded, 1), (roomy, 1_000_000)):
            with _crowd(count):
                told.append(_perform(clients, what, argument, now_ms))
        assert told[0] == told[1], (what, argument)


def _perform(clients: _Clients, what: str, argument: object, now_ms: int) -> object:
    engine = clients.engine
    match what, argument:
        case "charge", (user, client_id, node_id, value):
            return clients.charge((user, client_id, node_id), value, now_ms)
        case "quota", change:
            engine.apply([change])
        case "factor", (factor, node_id):
            engine.set_factor(_P, factor, node_id=node_id)
        case "factor of one", factor:
            engine.set_factor(_P, factor, tags="client-id=b,user=")
        case "counting", buckets:
            engine.replace_countings({}, buckets)
        case "purge", _:
            engine.purge_some(now_ms)
    return None
