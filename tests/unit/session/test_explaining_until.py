"""Until when: a muted connection goes on when ``explain`` says so, for every quota type; and what it says of REQUEST."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from tests.unit.session.test_mutations import create, empty_the_bucket, tell

from kvota.engine.thread_share import COUNTS_PER_PERCENT_S
from kvota.metrics.counter_key import CounterKey
from kvota.metrics.glance import Use
from kvota.model.bucket_settings import BucketSettings
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.session.explaining import Outlook, explain
from kvota.testing.frames import (
    HEARTBEAT,
    answer,
    fetch,
    fetch_answer,
    produce,
    produce_answer,
    request,
    throttle_of,
)
from kvota.testing.stage import ALL_TYPES, Cluster, Stage, quotas
from kvota.web.source import Json
from kvota.web.views import explanation_view

PRODUCE, FETCH, REQUEST, MUTATION = (
    QuotaType.PRODUCE,
    QuotaType.FETCH,
    QuotaType.REQUEST,
    QuotaType.CONTROLLER_MUTATION,
)
U, C = "u", "c"


class NoPlaces:
    """Where limits stand does not matter here."""

    def of_entity(self, entity: QuotaEntity) -> str:
        return str(entity)

    def to_change(self, entity: QuotaEntity, config_key: str, *, is_configured: bool) -> str:
        return f"{entity} {config_key} {is_configured}"


def shown(stage: Stage, quota_type: QuotaType, user: str, client_id: str) -> Json:
    """What the page says of a client of this one connection."""
    cluster = stage.cluster
    caller, clock = stage.machine.caller, cluster.clock
    explained = explain(cluster.engine, cluster.shared.settings, user, client_id, cluster.now_ms)
    uses = {
        CounterKey(lane.quota_type, lane.tags, lane.node_id): Use(
            connections=1,
            muted=1,
            mute_left_ms=stage.pausing.mute_left_ms(clock.monotonic_ms(), clock.now_us()),
        )
        for lane in caller.muted_by
    }
    view = explanation_view(explained, uses, NoPlaces(), cluster.now_ms)
    return next(one for one in view if one["quota_type"] == quota_type)


# ------------------------------------------------------------------ muted


def over_produce(stage: Stage) -> None:
    stage.client(produce(records=bytes(150_000)))
    stage.broker(produce_answer())


def over_fetch(stage: Stage) -> None:
    stage.client(fetch())
    stage.broker(fetch_answer(records=bytes(100_000)))


def over_request(stage: Stage) -> None:
    stage.step_ns = 10**9
    stage.client(request(HEARTBEAT, 4))
    stage.step_ns = 0
    stage.broker(answer(HEARTBEAT, 4))


def over_mutation(stage: Stage) -> None:
    empty_the_bucket(stage, 150)
    tell(stage, stage.client(create(("a", 3), ("b", 4))))


BUCKETS = dict.fromkeys((PRODUCE, FETCH), BucketSettings(burst_ms=1_000, debt_max_ms=100_000))


@pytest.mark.parametrize(
    ("quota_type", "limit", "overuse", "buckets"),
    [
        (PRODUCE, 10_000.0, over_produce, {}),
        (PRODUCE, 10_000.0, over_produce, BUCKETS),
        (FETCH, 9_000.0, over_fetch, {}),
        (FETCH, 10_000.0, over_fetch, BUCKETS),
        (REQUEST, 1.0, over_request, {}),
        (MUTATION, 10.0, over_mutation, {}),
    ],
    ids=["produce", "produce bucket", "fetch", "fetch bucket", "request", "mutation"],
)
def test_a_muted_connection_goes_on_when_it_was_said(
    quota_type: QuotaType,
    limit: float,
    overuse: Callable[[Stage], None],
    buckets: dict[QuotaType, BucketSettings],
) -> None:
    stage = Stage(Cluster(quotas(**{quota_type: limit}), buckets=buckets), cap_ms=10**9)
    overuse(stage)
    assert stage.muted
    (counter,) = shown(stage, quota_type, "ANONYMOUS", "app")["counters"]
    until_ms = counter["throttled_until_ms"]

    assert counter["muted_connections"] == 1
    left_ms = until_ms - stage.cluster.now_ms
    assert 0 < counter["mute_left_ms"] <= left_ms
    before = len(stage.to_broker)
    stage.client(request(HEARTBEAT, 4, correlation=9))
    stage.advance(counter["mute_left_ms"] - 1)
    assert len(stage.to_broker) == before
    stage.advance(left_ms - counter["mute_left_ms"] + 1)
    assert len(stage.to_broker) > before
    (after,) = shown(stage, quota_type, "ANONYMOUS", "app")["counters"]
    assert after["mute_left_ms"] == 0


def test_a_raised_limit_is_seen_at_once() -> None:
    stage = Stage(Cluster(quotas(PRODUCE=10_000.0)))
    over_produce(stage)
    stage.cluster.replace_quotas(quotas(PRODUCE=1e9))
    stage.look_again()
    stage.advance(1)

    said = shown(stage, PRODUCE, "ANONYMOUS", "app")
    assert said["counters"][0]["throttled_until_ms"] is None
    assert not stage.muted


# ------------------------------------------------------------------ REQUEST


@dataclass(frozen=True, kw_only=True)
class Timed:
    """What is configured, in percent; what was spent before, in percent-seconds; and what is expected."""

    limits: dict[QuotaEntity, float]
    outlook: Outlook
    spent: float = 0
    idle_ms: int = 0
    user: str = U
    client_id: str = C
    enforced: bool = True
    level: int | None = None


USER, ANY_USER = QuotaEntity(user=U), QuotaEntity(user=DEFAULT)
BOTH, CLIENT = QuotaEntity(user=U, client_id=C), QuotaEntity(client_id=C)
ANY_CLIENT = QuotaEntity(client_id=DEFAULT)
TIMED: dict[str, Timed] = {
    "within the quota": Timed(limits={USER: 10.0}, outlook=Outlook.PASSES, spent=50, level=3),
    "over the quota": Timed(limits={USER: 10.0}, outlook=Outlook.THROTTLED, spent=500, level=3),
    "over it, a while ago": Timed(
        limits={USER: 10.0}, outlook=Outlook.THROTTLED, spent=500, idle_ms=5_000
    ),
    "over it, long ago": Timed(
        limits={USER: 10.0}, outlook=Outlook.PASSES, spent=500, idle_ms=60_000
    ),
    "in shadow mode": Timed(
        limits={USER: 10.0}, outlook=Outlook.THROTTLED, spent=500, enforced=False
    ),
    "never seen": Timed(limits={USER: 10.0}, outlook=Outlook.PASSES),
    "an unknown user": Timed(limits={USER: 10.0}, outlook=Outlook.PASSES, user="x", spent=5_000),
    "an unknown user under a default": Timed(
        limits={ANY_USER: 10.0}, outlook=Outlook.THROTTLED, user="x", spent=500, level=6
    ),
    "user and client id": Timed(
        limits={BOTH: 10.0, USER: 1e4}, outlook=Outlook.THROTTLED, spent=500, level=1
    ),
    "a client id": Timed(limits={CLIENT: 10.0}, outlook=Outlook.THROTTLED, spent=500, level=7),
    "no client id, under a default": Timed(
        limits={ANY_CLIENT: 10.0}, outlook=Outlook.PASSES, client_id="", spent=500
    ),
}


@pytest.mark.parametrize("name", TIMED)
def test_of_time_it_says_what_the_wire_then_does(name: str) -> None:
    one = TIMED[name]
    table = ConfiguredQuotas({entity: {REQUEST: limit} for entity, limit in one.limits.items()})
    cluster = Cluster(table, enforced=ALL_TYPES if one.enforced else frozenset())
    if one.spent:
        lane = cluster.engine.lane(REQUEST, -1, one.user, one.client_id, cluster.now_ms)
        assert lane is not None
        lane.admit(round(one.spent * COUNTS_PER_PERCENT_S), cluster.now_ms)
    cluster.clock.advance(one.idle_ms)
    stage = Stage(cluster)
    stage.machine.caller.principal.name = one.user
    said = shown(stage, REQUEST, one.user, one.client_id)
    (counter,) = said["counters"]

    assert counter["outlook_if_enforced"] == one.outlook
    decides = [level["level"] for level in said["levels"] if level["decides"]]
    assert decides == ([one.level] if one.level else decides)
    is_held = one.enforced and one.outlook is Outlook.THROTTLED
    assert (counter["throttled_until_ms"] is not None) is is_held
    stage.step_ns = 10_000
    stage.client(request(HEARTBEAT, 4, client=one.client_id))
    told = stage.broker(answer(HEARTBEAT, 4))
    assert throttle_of(told, HEARTBEAT, 4) == (counter["wait_ms"] if is_held else 0)
    assert stage.muted is is_held
    assert counter["wait_ms"] == (1_000 if one.outlook is Outlook.THROTTLED else 0)
