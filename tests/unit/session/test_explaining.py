"""What an explanation says is what the wire then does, in a table of situations; and saying it moves nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.unit.engine.team_callback import TeamCallback
from tests.unit.session.test_mutations import create, created

from kvota.engine.arithmetic import BLOCKED_THROTTLE_MS
from kvota.engine.question import Answer
from kvota.model.bucket_settings import BucketSettings
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.session.explaining import Outlook, QuotaExplanation, explain
from kvota.session.pausing import Reason
from kvota.testing.frames import (
    CREATE_TOPICS,
    METADATA,
    decoded,
    fetch,
    fetch_answer,
    metadata_answer,
    produce,
    produce_answer,
    throttle_of,
)
from kvota.testing.frames import FETCH as FETCH_KEY
from kvota.testing.stage import ALL_TYPES, Cluster, Stage

PRODUCE, FETCH, MUTATION = QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.CONTROLLER_MUTATION
LIMIT = 10_000.0
BUCKET = BucketSettings(burst_ms=1_000, debt_max_ms=5_000)
THROTTLING = 89

PASSES, THROTTLED, WAITS, REFUSED = (
    Outlook.PASSES,
    Outlook.THROTTLED,
    Outlook.WAITS,
    Outlook.REFUSED,
)

U, C = "u", "c"
USER, CLIENT = QuotaEntity(user=U), QuotaEntity(client_id=C)
BOTH, U_ANY = QuotaEntity(user=U, client_id=C), QuotaEntity(user=U, client_id=DEFAULT)
ANY_C, ANY_ANY = (
    QuotaEntity(user=DEFAULT, client_id=C),
    QuotaEntity(user=DEFAULT, client_id=DEFAULT),
)
ANY_USER, ANY_CLIENT = QuotaEntity(user=DEFAULT), QuotaEntity(client_id=DEFAULT)
ALL_LEVELS = (BOTH, U_ANY, USER, ANY_C, ANY_ANY, ANY_USER, CLIENT, ANY_CLIENT)


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What is configured, what was used before, who asks, and what is expected of the explanation."""

    quotas: Mapping[QuotaEntity, float]
    outlook: Outlook
    quota_type: QuotaType = PRODUCE
    used: float = 0  # of the limit's unit, by another connection of the same client, just before
    idle_ms: int = 0  # since then
    user: str = U
    client_id: str = C
    enforced: bool = True
    bucket: bool = False
    wait_ms: int | None = None  # where it is worth to say
    level: int | None = None
    factor: float = 1.0
    strict: bool = True
    in_line: bool = False  # another connection waits already
    others: Mapping[QuotaEntity, float] = field(default_factory=dict)  # of another type


def levels(*entities: QuotaEntity) -> dict[QuotaEntity, float]:
    """Each level has a limit of its own, so that the wrong one would be seen."""
    return {entity: LIMIT + 100 * ALL_LEVELS.index(entity) for entity in entities}


ONE = {USER: LIMIT}
BROKE = 300_000.0  # 20 s over the window of 10 s at LIMIT

SITUATIONS: dict[str, Situation] = {
    # ------------------------------------------------------------ the eight levels, all configured but those before
    "level 1": Situation(quotas=levels(*ALL_LEVELS), outlook=PASSES, level=1),
    "level 2": Situation(quotas=levels(*ALL_LEVELS[1:]), outlook=PASSES, level=2),
    "level 3": Situation(quotas=levels(*ALL_LEVELS[2:]), outlook=PASSES, level=3),
    "level 4": Situation(quotas=levels(*ALL_LEVELS[3:]), outlook=PASSES, level=4),
    "level 5": Situation(quotas=levels(*ALL_LEVELS[4:]), outlook=PASSES, level=5),
    "level 6": Situation(quotas=levels(*ALL_LEVELS[5:]), outlook=PASSES, level=6),
    "level 7": Situation(quotas=levels(*ALL_LEVELS[6:]), outlook=PASSES, level=7),
    "level 8": Situation(quotas=levels(ANY_CLIENT), outlook=PASSES, level=8),
    "level 8, over it": Situation(quotas=levels(ANY_CLIENT), outlook=THROTTLED, level=8, used=BROKE),
    # ------------------------------------------------------------ who is not meant
    "an unknown user": Situation(quotas=ONE, user="nobody", outlook=PASSES),
    "an unknown user who uses much": Situation(quotas=ONE, user="x", outlook=PASSES, used=1e9),
    "an unknown user under a default": Situation(
        quotas={ANY_USER: LIMIT}, user="x", outlook=THROTTLED, used=BROKE, level=6
    ),
    "an empty client id escapes client defaults": Situation(
        quotas={ANY_CLIENT: LIMIT}, client_id="", outlook=PASSES, used=BROKE
    ),
    "an empty client id has its user's quota": Situation(
        quotas={USER: LIMIT, U_ANY: 5 * LIMIT}, client_id="", outlook=THROTTLED, used=BROKE, level=3
    ),
    "no quota of this type": Situation(quotas={}, others=ONE, outlook=PASSES, used=BROKE),
    "a user called like the default": Situation(
        quotas=ONE, user="<default>", outlook=PASSES, used=BROKE
    ),
    "names that must be encoded": Situation(
        quotas={QuotaEntity(user='"}\n', client_id="é%/,="): LIMIT},
        user='"}\n',
        client_id="é%/,=",
        outlook=THROTTLED,
        used=BROKE,
        level=1,
    ),
    # ------------------------------------------------------------ PRODUCE by sampled_rate
    "produce within the quota": Situation(quotas=ONE, outlook=PASSES, used=50_000, level=3),
    "produce over the quota": Situation(quotas=ONE, outlook=THROTTLED, used=BROKE, wait_ms=20_000),
    "produce over the quota, some time ago": Situation(
        quotas=ONE, outlook=THROTTLED, used=BROKE, idle_ms=4_000
    ),
    "produce over the quota, long ago": Situation(
        quotas=ONE, outlook=PASSES, used=BROKE, idle_ms=60_000
    ),
    "produce in shadow mode": Situation(
        quotas=ONE, outlook=THROTTLED, used=BROKE, enforced=False, wait_ms=20_000
    ),
    "produce blocked": Situation(
        quotas={USER: 0.5}, outlook=THROTTLED, wait_ms=BLOCKED_THROTTLE_MS, level=3
    ),
    "produce blocked in shadow mode": Situation(
        quotas={USER: 0.5}, outlook=THROTTLED, wait_ms=BLOCKED_THROTTLE_MS, enforced=False
    ),
    "produce blocked by a factor": Situation(
        quotas=ONE, outlook=WAITS, factor=0.0, wait_ms=BLOCKED_THROTTLE_MS
    ),
    "produce throttled by a factor": Situation(
        quotas=ONE, outlook=THROTTLED, factor=0.5, used=80_000, wait_ms=6_000
    ),
    # ------------------------------------------------------------ PRODUCE by token_bucket
    "produce within the burst": Situation(quotas=ONE, outlook=PASSES, bucket=True, used=5_000),
    "produce in debt": Situation(
        quotas=ONE, outlook=THROTTLED, bucket=True, used=40_000, wait_ms=3_000
    ),
    "produce beyond debt_max": Situation(
        quotas=ONE, outlook=WAITS, bucket=True, used=90_000, wait_ms=3_000
    ),
    "produce behind others in line": Situation(
        quotas=ONE, outlook=WAITS, bucket=True, used=90_000, wait_ms=3_000, in_line=True
    ),
    "produce beyond debt_max in shadow mode": Situation(
        quotas=ONE, outlook=WAITS, bucket=True, used=90_000, enforced=False, wait_ms=3_000
    ),
    "produce blocked, token_bucket": Situation(
        quotas={USER: 0.5}, outlook=WAITS, bucket=True, wait_ms=BLOCKED_THROTTLE_MS
    ),
    "produce paid for": Situation(
        quotas=ONE, outlook=PASSES, bucket=True, used=40_000, idle_ms=3_500
    ),
    # ------------------------------------------------------------ FETCH
    "fetch within the quota": Situation(quotas=ONE, quota_type=FETCH, outlook=PASSES, used=50_000),
    "fetch over the quota": Situation(
        quotas=ONE, quota_type=FETCH, outlook=WAITS, used=BROKE, wait_ms=20_000
    ),
    "fetch over the quota in shadow mode": Situation(
        quotas=ONE, quota_type=FETCH, outlook=WAITS, used=BROKE, enforced=False
    ),
    "fetch blocked": Situation(
        quotas={USER: 0.5}, quota_type=FETCH, outlook=WAITS, wait_ms=BLOCKED_THROTTLE_MS
    ),
    "fetch unlimited": Situation(quotas=ONE, quota_type=FETCH, user="x", outlook=PASSES, used=BROKE),
    # ------------------------------------------------------------ CONTROLLER_MUTATION
    "mutation within the quota": Situation(
        quotas={USER: 5.0}, quota_type=MUTATION, outlook=PASSES, used=10, level=3
    ),
    "mutation over the quota": Situation(
        quotas={USER: 5.0}, quota_type=MUTATION, outlook=REFUSED, used=80, wait_ms=5_000
    ),
    "mutation over the quota, an old version": Situation(
        quotas={USER: 5.0}, quota_type=MUTATION, outlook=REFUSED, used=80, wait_ms=5_000, strict=False
    ),
    "mutation over the quota in shadow mode": Situation(
        quotas={USER: 5.0}, quota_type=MUTATION, outlook=REFUSED, used=80, enforced=False
    ),
    "mutation blocked": Situation(
        quotas={USER: 1e-9},
        quota_type=MUTATION,
        outlook=REFUSED,
        wait_ms=BLOCKED_THROTTLE_MS,
    ),
    "mutation paid for": Situation(
        quotas={USER: 5.0}, quota_type=MUTATION, outlook=PASSES, used=80, idle_ms=6_000
    ),
}  # fmt: skip


def cluster_of(one: Situation) -> Cluster:
    entries: dict[QuotaEntity, dict[QuotaType, float]] = {}
    for entity, limit in one.quotas.items():
        entries.setdefault(entity, {})[one.quota_type] = limit
    for entity, limit in one.others.items():
        entries.setdefault(entity, {})[FETCH] = limit
    cluster = Cluster(
        ConfiguredQuotas(entries),
        enforced=ALL_TYPES if one.enforced else frozenset(),
        buckets={PRODUCE: BUCKET} if one.bucket else {},
    )
    cluster.engine.set_factor(one.quota_type, one.factor)
    if one.used:
        lane = cluster.engine.lane(one.quota_type, 1, one.user, one.client_id, cluster.now_ms)
        assert lane is not None
        lane.admit(one.used, cluster.now_ms)
    cluster.clock.advance(one.idle_ms)
    if one.in_line:
        assert not send(connection(cluster, one, 9), one)
    return cluster


def connection(cluster: Cluster, one: Situation, number: int) -> Stage:
    stage = Stage(cluster, number=number, cap_ms=10**10)
    stage.machine.caller.principal.name = one.user
    return stage


def send(stage: Stage, one: Situation) -> bytes:
    """A request of the type; returns what went up."""
    if one.quota_type is PRODUCE:
        return stage.client(produce(client=one.client_id))
    if one.quota_type is FETCH:
        return stage.client(fetch(client=one.client_id))
    version = 7 if one.strict else 5
    return stage.client(named(create(("t", 1), version=version), one.client_id))


def named(frame: bytes, client_id: str) -> bytes:
    """The same request of another client; its own has the name "app"."""
    name = client_id.encode()
    body = frame[4:12] + len(name).to_bytes(2, "big") + name + frame[14 + len("app") :]
    return len(body).to_bytes(4, "big") + body


def explained(cluster: Cluster, one: Situation) -> QuotaExplanation:
    all_types = explain(
        cluster.engine, cluster.shared.settings, one.user, one.client_id, cluster.now_ms
    )
    return next(found for found in all_types if found.quota_type is one.quota_type)


def outlook_of(explanation: QuotaExplanation) -> tuple[Outlook, int]:
    if not explanation.counters:
        return PASSES, 0
    (counter,) = explanation.counters
    return counter.outlook, counter.wait_ms


@pytest.mark.parametrize("name", SITUATIONS)
def test_an_explanation_says_what_the_wire_then_does(name: str) -> None:
    one = SITUATIONS[name]
    cluster = cluster_of(one)
    explanation = explained(cluster, one)
    outlook, wait_ms = outlook_of(explanation)

    assert outlook is one.outlook
    assert explanation.enforced is one.enforced
    if one.wait_ms is not None:
        assert abs(wait_ms - one.wait_ms) <= 1
    decides = [
        level.number for level in explanation.levels if level.entity == explanation.decided_by
    ]
    assert decides == ([] if one.level is None else [one.level]) or one.level is None
    stage = connection(cluster, one, 1)
    went_up = send(stage, one)
    if one.quota_type is MUTATION:
        _check_mutation(stage, one, outlook, wait_ms)
    elif not one.enforced or outlook is PASSES:
        assert went_up
        assert not stage.muted
    elif outlook is THROTTLED:
        _check_throttled(stage, explanation, went_up, wait_ms)
    else:
        _check_waits(stage, one, went_up, wait_ms)
    _check_row(cluster, stage, one, explanation)


def _check_throttled(
    stage: Stage, explanation: QuotaExplanation, went_up: bytes, wait_ms: int
) -> None:
    """It goes up, and its client is muted for what was owed and what it costs itself."""
    assert went_up
    assert stage.muted
    (counter,) = explanation.counters
    assert counter.reading.limit is not None
    cost_ms = len(went_up) * 1000 / max(counter.reading.limit, 1e-9)
    longest_ms = wait_ms if counter.reading.is_blocked else wait_ms + cost_ms + 1
    assert wait_ms <= stage.mutes[-1] <= longest_ms


def _check_waits(stage: Stage, one: Situation, went_up: bytes, wait_ms: int) -> None:
    """It is kept back, and goes on when that time is over; a Fetch may go up, and brings nothing."""
    if one.quota_type is FETCH:
        assert went_up  # the first one of its connection: nobody knows what it will bring
        stage.broker(fetch_answer(records=b"f" * 5_000))
        assert not decoded(stage.to_client, FETCH_KEY, 12).responses
        assert throttle_of(stage.to_client, FETCH_KEY, 12) >= min(wait_ms, BLOCKED_THROTTLE_MS)
        assert stage.muted
        return
    assert not went_up
    assert stage.pausing.reasons & Reason.IN_LINE or stage.muted
    if wait_ms > 25_000:
        return
    if one.in_line:
        return  # the one before it pays first
    assert not stage.advance(wait_ms - 20)
    assert stage.advance(40)


def _check_mutation(stage: Stage, one: Situation, outlook: Outlook, wait_ms: int) -> None:
    version = 7 if one.strict else 5
    if stage.to_broker:
        question = decoded_question(stage)
        stage.broker(metadata_answer(question[1], correlation=question[0], topics=[("t", 3, 0)]))
    went_up = stage.to_broker.count(b"\x00\x13\x00")
    if one.enforced and outlook is REFUSED and one.strict:
        body = decoded(stage.to_client, CREATE_TOPICS, version)
        assert [int(topic.error_code) for topic in body.topics] == [THROTTLING]
        assert throttle_of(stage.to_client, CREATE_TOPICS, version) == wait_ms
        assert stage.muted
        return
    assert went_up
    stage.broker(created(("t", 0, 1), version=version))
    told_ms = throttle_of(stage.to_client, CREATE_TOPICS, version)
    if one.enforced and outlook is REFUSED:
        assert wait_ms <= told_ms <= wait_ms + 201  # an old version: carried out, and paid for
        assert stage.muted
    else:
        assert told_ms == 0
        assert not stage.muted


def decoded_question(stage: Stage) -> tuple[int, int]:
    """The correlation id and the version of the gateway's own Metadata question."""
    frame = stage.to_broker
    assert int.from_bytes(frame[4:6], "big") == METADATA
    return int.from_bytes(frame[8:12], "big", signed=True), int.from_bytes(frame[6:8], "big")


def _check_row(
    cluster: Cluster, stage: Stage, one: Situation, explanation: QuotaExplanation
) -> None:
    """The row of the request names the counter, the limit and the mode that were explained."""
    if one.quota_type is PRODUCE:
        stage.broker(produce_answer()) if stage.to_broker else None
    elif one.quota_type is FETCH and not stage.to_client:
        stage.broker(fetch_answer())
    rows = [row for row in cluster.rows if row.memo.connection == 1]
    assert rows
    memo = rows[0].memo
    assert memo.tags == explanation.tags_text
    assert memo.enforced is explanation.enforced
    limit = explanation.limit
    assert memo.limit == (None if limit is None else limit * one.factor)
    assert memo.samples == (explanation.counters[0].reading.samples if explanation.counters else 0)


@pytest.mark.parametrize("name", SITUATIONS)
def test_explaining_moves_nothing(name: str) -> None:
    one = SITUATIONS[name]

    def rows(*, asks: bool) -> list[Any]:
        cluster = cluster_of(one)
        stage = connection(cluster, one, 1)
        for _ in range(4):
            for _ in range(3 if asks else 0):
                explained(cluster, one)
                explain(cluster.engine, cluster.shared.settings, "x", "y", cluster.now_ms)
            send(stage, one)
            cluster.clock.advance(700)
        stage.end()
        return [*[row.columns() for row in cluster.rows], len(cluster.engine.counters)]

    assert rows(asks=True) == rows(asks=False)


def test_there_are_as_many_situations_as_were_asked_for() -> None:
    assert len(SITUATIONS) >= 40


def test_a_client_nobody_has_asked_the_callback_about_is_not_asked_for() -> None:
    callback = TeamCallback()
    cluster = Cluster(callback=callback)

    explanation = explained(cluster, Situation(quotas={}, outlook=PASSES))

    assert explanation.tags is None
    assert explanation.levels == ()
    question = cluster.engine.question(PRODUCE, 1, U, C)
    cluster.engine.learn(question, Answer(tags={"team": "a"}, text="team=a", limit=7.0))
    explanation = explained(cluster, Situation(quotas={}, outlook=PASSES))
    assert (explanation.tags, explanation.limit) == ({"team": "a"}, 7.0)
