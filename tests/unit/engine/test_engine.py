"""Bandwidth lanes and the life of counters, with the scenarios of Kafka's ClientQuotaManagerTest."""

import pytest

from kvota.callbacks import DefaultQuotaCallback
from kvota.engine import Lane, QuotaEngine, QuotaType, QuotaWindow
from kvota.engine.counters import CROWD
from kvota.engine.engine import _KNOWN_CLIENTS_MAX
from kvota.model.configured_quotas import ConfiguredQuotas, QuotaChange
from kvota.model.quota_entity import DEFAULT, QuotaEntity

_P = QuotaType.PRODUCE
_NOW_MS = 1_700_000_000_000
_NODE_ID = 1
_SAMPLES = 11


def _set(engine: QuotaEngine, entity: QuotaEntity, limit: float | None) -> None:
    engine.apply([QuotaChange(entity, _P, limit)])


def _lane(
    engine: QuotaEngine, quota_type: QuotaType, node_id: int, user: str, client_id: str, now_ms: int
) -> Lane:
    lane = engine.lane(quota_type, node_id, user, client_id, now_ms)
    assert lane is not None
    return lane


def _check(engine: QuotaEngine, who: tuple[str, str], limit: float | None, value: int) -> bool:
    """One charge of ``value`` per sample, at once; returns whether it was throttled."""
    lane = _lane(engine, _P, _NODE_ID, *who, _NOW_MS)
    assert lane.limit == limit
    return lane.charge(value * _SAMPLES, _NOW_MS) > 0


# ClientQuotaManagerTest, precedence: (user, client), its limit, charged per sample, throttled.
_FIRST_ROUND = (
    (("userA", "client1"), 5000, 4500, False),
    (("userA", "client2"), 4000, 4500, True),
    (("userA", "client3"), 4000, 0, True),  # shares the user's counter
    (("userA", "client1"), 5000, 0, False),  # its own
    (("userB", "client1"), 7000, 8000, True),
    (("userB", "client2"), 8000, 7000, False),  # a default counts per client
    (("userB", "client3"), 8000, 7000, False),
    (("userD", "client1"), 3000, 3500, True),
    (("userD", "client2"), 3000, 2500, False),
    (("userE", "client1"), 3000, 2500, False),
)
_WITHOUT_DEFAULT_PAIR = (
    (("userD", "client1"), 1000, 0, False),  # other tags: another counter
    (("userE", "client4"), 1000, 1500, True),
    (("userF", "client4"), 1000, 800, False),
    (("userF", "client5"), 1000, 800, True),
)
_WITHOUT_DEFAULT_USER = (
    (("userF", "client4"), 2000, 0, False),
    (("userF", "client5"), 2000, 0, False),
    (("userF", "client5"), 2000, 2500, True),
    (("userG", "client5"), 2000, 0, True),  # a client's counter is shared by all users
)
_RAISED = (
    (("userA", "client2"), 8000, 0, False),
    (("userA", "client2"), 8000, 4500, True),  # with what was charged before
    (("userA", "client1"), 10_000, 0, False),
    (("userA", "client1"), 10_000, 6000, True),
)


def _precedence_engine() -> QuotaEngine:
    engine = QuotaEngine(DefaultQuotaCallback(ConfiguredQuotas()), {})
    for user, client, limit in (
        (DEFAULT, None, 1000),
        (None, DEFAULT, 2000),
        (DEFAULT, DEFAULT, 3000),
        ("userA", None, 4000),
        ("userA", "client1", 5000),
        ("userB", None, 6000),
        ("userB", "client1", 7000),
        ("userB", DEFAULT, 8000),
        ("userC", None, 10_000),
        (None, "client1", 9000),
    ):
        _set(engine, QuotaEntity(user=user, client_id=client), limit)
    return engine


def test_kafkas_own_story_of_precedence() -> None:
    engine = _precedence_engine()

    throttled = [_check(engine, who, limit, value) for who, limit, value, _ in _FIRST_ROUND]
    _set(engine, QuotaEntity(user=DEFAULT, client_id=DEFAULT), None)
    throttled += [_check(engine, who, lim, value) for who, lim, value, _ in _WITHOUT_DEFAULT_PAIR]
    _set(engine, QuotaEntity(user=DEFAULT), None)
    throttled += [_check(engine, who, lim, value) for who, lim, value, _ in _WITHOUT_DEFAULT_USER]
    _set(engine, QuotaEntity(user="userA"), 8000)
    _set(engine, QuotaEntity(user="userA", client_id="client1"), 10_000)
    throttled += [_check(engine, who, limit, value) for who, limit, value, _ in _RAISED]

    story = _FIRST_ROUND + _WITHOUT_DEFAULT_PAIR + _WITHOUT_DEFAULT_USER + _RAISED
    assert throttled == [step[-1] for step in story]


def test_the_storys_last_chapter_more_and_less_specific_counters_take_turns() -> None:
    engine = _precedence_engine()
    user_a = ("userA", "client6")
    _set(engine, QuotaEntity(user="userA"), 8000)
    _check(engine, user_a, 8000, 9000)

    shared = _check(engine, user_a, 8000, 0)
    _set(engine, QuotaEntity(user="userA", client_id="client6"), 11_000)
    own = _check(engine, user_a, 11_000, 8500)
    _set(engine, QuotaEntity(user="userA", client_id=DEFAULT), 12_000)
    _set(engine, QuotaEntity(user="userA", client_id="client6"), None)
    default = _check(engine, user_a, 12_000, 4000)

    assert [shared, own, default] == [True, False, True]


# ClientQuotaManagerTest, one kind of quota: (entity of client 1, default entity).
@pytest.mark.parametrize(
    ("own", "default"),
    [
        (QuotaEntity(client_id="p1"), QuotaEntity(client_id=DEFAULT)),
        (QuotaEntity(user="User1"), QuotaEntity(user=DEFAULT)),
        (
            QuotaEntity(user="User1", client_id="p1"),
            QuotaEntity(user=DEFAULT, client_id=DEFAULT),
        ),
    ],
)
def test_a_changed_quota_judges_what_was_charged_before(
    own: QuotaEntity, default: QuotaEntity
) -> None:
    engine = QuotaEngine(DefaultQuotaCallback(ConfiguredQuotas()), {})
    who = ("User1", "p1")
    throttled = []

    for entity, limit, value in ((own, 2000, 2500), (own, 3000, 0), (own, 500, 0)):
        _set(engine, entity, limit)
        throttled.append(_check(engine, who, limit, value))
    _set(engine, own, None)
    _set(engine, default, 4000)
    throttled.append(_check(engine, who, 4000, 1000))

    assert throttled == [True, False, True, False]


@pytest.mark.parametrize(
    "entity",
    [
        QuotaEntity(user=DEFAULT),
        QuotaEntity(user="userA"),
        QuotaEntity(user="userA", client_id="client1"),
    ],
)
def test_with_the_last_quota_gone_nothing_is_recorded(entity: QuotaEntity) -> None:
    engine = QuotaEngine(DefaultQuotaCallback(ConfiguredQuotas()), {})
    _set(engine, entity, 10.0)
    assert _check(engine, ("userA", "client1"), 10.0, 1000)

    _set(engine, entity, None)
    lane = _lane(engine, _P, _NODE_ID, "userA", "client1", _NOW_MS)

    assert lane.charge(1e300, _NOW_MS) == 0
    assert (lane.samples, lane.sample_ms, lane.limit) == (0, 0, None)
    assert lane.tags == "client-id=client1,user="
    assert lane.allowance(_NOW_MS) == 2**31 - 1


def test_a_quota_set_again_finds_what_was_left_in_its_counter() -> None:
    engine = QuotaEngine(DefaultQuotaCallback(ConfiguredQuotas()), {})
    entity = QuotaEntity(user="u")
    _set(engine, entity, 10.0)
    _check(engine, ("u", "c"), 10.0, 1000)

    _set(engine, entity, None)
    _lane(engine, _P, _NODE_ID, "u", "c", _NOW_MS).charge(5_000, _NOW_MS)
    _set(engine, entity, 100.0)

    # 11,000 were charged under the first quota, nothing in between.
    lane = _lane(engine, _P, _NODE_ID, "u", "c", _NOW_MS)
    assert lane.charge(0, _NOW_MS) == 100_000


def test_a_client_nobody_named_is_recorded_without_a_limit() -> None:
    engine = QuotaEngine(
        DefaultQuotaCallback(ConfiguredQuotas({QuotaEntity(user="x"): {_P: 1.0}})), {}
    )

    lane = _lane(engine, _P, _NODE_ID, "u", "c", _NOW_MS)

    assert (lane.limit, lane.samples, lane.sample_ms) == (None, 11, 1000)
    assert lane.charge(10**12, _NOW_MS) == 0
    assert lane.allowance(_NOW_MS) == 2**31 - 1


def test_bandwidth_is_counted_per_broker_type_and_tags() -> None:
    entity = QuotaEntity(user="u")
    engine = QuotaEngine(
        DefaultQuotaCallback(ConfiguredQuotas({entity: {_P: 100.0, QuotaType.FETCH: 100.0}})), {}
    )
    first = _lane(engine, _P, 1, "u", "c", _NOW_MS)
    same = _lane(engine, _P, 1, "u", "other", _NOW_MS)
    others = [
        _lane(engine, _P, 2, "u", "c", _NOW_MS),
        _lane(engine, QuotaType.FETCH, 1, "u", "c", _NOW_MS),
        _lane(engine, _P, 1, "v", "c", _NOW_MS),
    ]

    first.charge(400, _NOW_MS)

    assert same.allowance(_NOW_MS) == 600
    assert [lane.allowance(_NOW_MS) for lane in others[:2]] == [1000, 1000]
    assert others[2].limit is None


def test_a_type_has_its_own_window() -> None:
    entity = QuotaEntity(user="u")
    engine = QuotaEngine(
        DefaultQuotaCallback(ConfiguredQuotas({entity: {_P: 100.0}})), {_P: QuotaWindow(3, 500)}
    )

    lane = _lane(engine, _P, _NODE_ID, "u", "c", _NOW_MS)

    assert (lane.samples, lane.sample_ms) == (3, 500)
    assert lane.allowance(_NOW_MS) == 100


def test_a_counter_is_kept_while_it_is_used_and_forgotten_after_an_hour() -> None:
    table = ConfiguredQuotas({QuotaEntity(user="u"): {_P: 1.0, QuotaType.CONTROLLER_MUTATION: 1.0}})
    engine = QuotaEngine(DefaultQuotaCallback(table), {})
    _lane(engine, _P, 1, "u", "c", _NOW_MS).charge(1, _NOW_MS)
    engine.mutations("u", "c", strict=True, now_ms=_NOW_MS).charge(1, _NOW_MS)
    _lane(engine, _P, 2, "u", "c", _NOW_MS).charge(1, _NOW_MS + 10)

    forgotten = engine.purge_expired(_NOW_MS + 3_600_001)

    assert forgotten == 2


def test_an_old_lane_forgets_by_itself_what_a_purge_would() -> None:
    window = QuotaWindow(11, 1_000_000)
    engine = QuotaEngine(
        DefaultQuotaCallback(ConfiguredQuotas({QuotaEntity(user="u"): {_P: 1.0}})), {_P: window}
    )
    lane = _lane(engine, _P, _NODE_ID, "u", "c", _NOW_MS)
    lane.charge(10**9, _NOW_MS)

    assert lane.allowance(_NOW_MS + 3_600_001) == 10_000
    assert lane.charge(0, _NOW_MS + 3_600_001) == 0


def test_remembered_mutation_clients_have_an_end() -> None:
    table = ConfiguredQuotas({QuotaEntity(user="u"): {QuotaType.CONTROLLER_MUTATION: 1.0}})
    engine = QuotaEngine(DefaultQuotaCallback(table), {})

    for number in range(_KNOWN_CLIENTS_MAX + 1):
        engine.mutations("u", f"client-{number}", strict=True, now_ms=_NOW_MS).charge(1, _NOW_MS)

    assert len(engine._clients) <= _KNOWN_CLIENTS_MAX
    # One user, one counter, whatever its clients call themselves.
    assert engine.purge_expired(_NOW_MS + 3_600_001) == 1


def test_a_crowd_of_invented_client_ids_is_forgotten_when_its_window_is_over() -> None:
    table = ConfiguredQuotas(
        {QuotaEntity(client_id=DEFAULT): {_P: 1e9, QuotaType.CONTROLLER_MUTATION: 1.0}}
    )
    engine = QuotaEngine(DefaultQuotaCallback(table), {})
    busy = _lane(engine, _P, _NODE_ID, "u", "busy", _NOW_MS)
    engine.mutations("u", "in-debt", strict=True, now_ms=_NOW_MS).charge(1_000, _NOW_MS)
    for number in range(CROWD):
        _lane(engine, _P, _NODE_ID, "u", f"{number}", _NOW_MS).charge(1, _NOW_MS)
    busy.charge(1, _NOW_MS + 1)

    assert engine.purge_expired(_NOW_MS + 10_999) == 0
    assert engine.purge_expired(_NOW_MS + 11_000) == CROWD
    assert engine.purge_expired(_NOW_MS + 11_001) == 0  # two are no crowd


def test_a_client_looked_up_again_has_the_lane_it_had() -> None:
    engine = QuotaEngine(
        DefaultQuotaCallback(ConfiguredQuotas({QuotaEntity(user="u"): {_P: 100.0}})), {}
    )
    lane = _lane(engine, _P, _NODE_ID, "u", "c", _NOW_MS)

    assert _lane(engine, _P, _NODE_ID, "u", "c", _NOW_MS) is lane
    assert _lane(engine, _P, _NODE_ID + 1, "u", "c", _NOW_MS) is not lane
    for number in range(_KNOWN_CLIENTS_MAX + 1):
        _lane(engine, _P, _NODE_ID, "u", f"{number}", _NOW_MS)
    assert len(engine._clients) <= _KNOWN_CLIENTS_MAX
    engine.replace_quotas(ConfiguredQuotas({QuotaEntity(user="u"): {_P: 200.0}}))
    assert _lane(engine, _P, _NODE_ID, "u", "c", _NOW_MS).limit == 200.0
