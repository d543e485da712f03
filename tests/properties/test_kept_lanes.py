"""Whoever keeps a lane and compares its version is always charged where a new engine would charge."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvota.callbacks import DefaultQuotaCallback
from kvota.engine import Lane, QuotaEngine, QuotaType
from kvota.model.configured_quotas import ConfiguredQuotas, QuotaChange
from kvota.model.quota_entity import DEFAULT, QuotaEntity

pytestmark = pytest.mark.timeout(120)

_CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=200)
_TYPES = (QuotaType.PRODUCE, QuotaType.FETCH)
_NAMES = st.sampled_from(["alice", "bob", DEFAULT, None])
_CLIENT_NAMES = st.sampled_from(["app", "other", DEFAULT, None])
_ENTITIES = st.tuples(_NAMES, _CLIENT_NAMES).filter(any).map(lambda names: QuotaEntity(*names))
_CHANGES = st.builds(
    QuotaChange,
    _ENTITIES,
    st.sampled_from(_TYPES),
    st.one_of(st.none(), st.sampled_from([0.0, 10.0, 20.0])),
)
_FACTORS = st.tuples(
    st.sampled_from(_TYPES), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([None, 1, 2])
)
_BATCHES = st.lists(st.one_of(st.lists(_CHANGES, max_size=4), _FACTORS), max_size=8)
_CLIENTS = [
    (quota_type, node_id, user, client_id)
    for quota_type in _TYPES
    for node_id in (1, 2)
    for user, client_id in (("alice", "app"), ("alice", ""), ("bob", "app"), ("carol", "other"))
]
_NOW_MS = 1_700_000_000_000


@_CALM
@given(batches=_BATCHES)
def test_a_lane_of_the_seen_version_is_the_one_a_new_engine_gives(
    batches: list[list[QuotaChange] | tuple[QuotaType, float, int | None]],
) -> None:
    engine = QuotaEngine(DefaultQuotaCallback(), {})
    factors: dict[tuple[QuotaType, int | None], float] = {}
    kept: dict[tuple[QuotaType, int, str, str], tuple[Lane, int]] = {}
    followed: dict[tuple[QuotaType, int, str, str], tuple[Lane, int]] = {}

    for batch in batches:
        if isinstance(batch, tuple):
            quota_type, factor, node_id = batch
            engine.set_factor(quota_type, factor, node_id=node_id)
            factors[quota_type, node_id] = factor
        else:
            engine.apply(batch)
        fresh = QuotaEngine(DefaultQuotaCallback(engine.quotas), {})
        for (quota_type, node_id), factor in factors.items():
            fresh.set_factor(quota_type, factor, node_id=node_id)
        for client in _CLIENTS:
            lane, version = kept.get(client, (None, -1))
            if lane is None or lane.version != version:
                lane = engine.lane(*client, _NOW_MS)
                assert lane is not None
                kept[client] = (lane, lane.version)
            expected = fresh.lane(*client, _NOW_MS)
            assert expected is not None
            assert _facts(lane) == _facts(expected)
            # One that has not moved is still the client's, and says itself what is in force.
            lane, moves = followed.get(client, (None, -1))
            if lane is None or lane.moves != moves:
                lane = engine.lane(*client, _NOW_MS)
                assert lane is not None
                followed[client] = (lane, lane.moves)
            assert _facts(lane) == _facts(expected)


def _facts(lane: Lane) -> tuple[object, ...]:
    return (lane.tags, lane.configured_limit, lane.limit, lane.samples, lane.is_blocked)


@_CALM
@given(first=st.lists(_CHANGES, max_size=6), second=st.lists(_CHANGES, max_size=6))
def test_replacing_all_quotas_is_applying_the_difference(
    first: list[QuotaChange], second: list[QuotaChange]
) -> None:
    after = ConfiguredQuotas().with_changes(second)
    engine = QuotaEngine(DefaultQuotaCallback(ConfiguredQuotas().with_changes(first)), {})
    lanes = [engine.lane(*client, _NOW_MS) for client in _CLIENTS]

    engine.replace_quotas(after)

    fresh = QuotaEngine(DefaultQuotaCallback(after), {})
    assert engine.quotas == after
    assert len(lanes) == len(_CLIENTS)
    for client in _CLIENTS:
        ours, expected = engine.lane(*client, _NOW_MS), fresh.lane(*client, _NOW_MS)
        assert ours is not None
        assert expected is not None
        assert _facts(ours) == _facts(expected)
