"""Topics that are created because Metadata asks for them: charged as the CreateTopics that a broker sends for it."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.session.test_asking import OneForAll

from kvota.engine import QuotaWindow
from kvota.model.decision_sink import ADMITTED, NO_ANSWER, REJECTED
from kvota.model.errors import ProtocolError
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.testing.frames import (
    CREATE_TOPICS,
    DESCRIBE_CONFIGS,
    HEARTBEAT,
    METADATA,
    answer,
    decoded,
    metadata_answer,
    parts,
    request,
    split,
    throttle_of,
)
from kvota.testing.stage import BROKER, GATEWAY, NODE_PORT_BASE, Cluster, Row, Stage, quotas
from kvota.wire.apis import APIS
from kvota.wire.metadata_requests import NAMES_MAX

VERSIONS = range(14)
DEFAULT_PARTITIONS = 60
NONE, UNKNOWN, LEADER_NOT_AVAILABLE, INVALID, UNAUTHORIZED = 0, 3, 5, 17, 29
# 10 partitions/s, 100 at once: the second topic of 60 partitions leaves a debt of 2 s.
WINDOW = {QuotaType.CONTROLLER_MUTATION: QuotaWindow(10, 1000)}
DEBT_MS = 2_000

Told = tuple[str, int, int]  # a topic's name, error code, partitions


def cluster(rate: float = 10, **changes: Any) -> Cluster:
    return Cluster(quotas(CONTROLLER_MUTATION=rate), windows=WINDOW, **changes)


def asks_for(
    *names: str | uuid.UUID, version: int = 12, creates: bool = True, correlation: int = 1
) -> bytes:
    rows: list[dict[str, object]] = [{"name": name} for name in names]
    if version >= 10:
        rows = [
            {"name": None, "topic_id": name}
            if isinstance(name, uuid.UUID)
            else {"name": name, "topic_id": None}
            for name in names
        ]
    topics = parts(METADATA, version, "request", "MetadataRequestTopic", *rows)
    flag: dict[str, Any] = {"allow_auto_topic_creation": creates} if version >= 4 else {}
    return request(METADATA, version, correlation=correlation, topics=topics, **flag)


def told(*topics: Told, version: int = 4, asked: bytes) -> bytes:
    correlation = int.from_bytes(asked[8:12], "big")
    return metadata_answer(version, correlation=correlation, brokers=[(1, *BROKER)], topics=topics)


def settings(asked: bytes, *, creates: str | None = "true", partitions: str | None = "60") -> bytes:
    values = {"auto.create.topics.enable": creates, "num.partitions": partitions}
    known = {name: value for name, value in values.items() if value is not None}
    rows = [
        {"name": name, "value": value, "is_sensitive": False, "read_only": True, "synonyms": ()}
        for name, value in known.items()
    ]
    configs = parts(DESCRIBE_CONFIGS, 1, "response", "DescribeConfigsResourceResult", *rows)
    result = {"configs": configs, "error_code": ErrorCode(0), "error_message": None}
    results = parts(DESCRIBE_CONFIGS, 1, "response", "DescribeConfigsResult", result)
    correlation = int.from_bytes(asked[8:12], "big")
    return answer(DESCRIBE_CONFIGS, 1, correlation=correlation, results=results)


def names_of(asked: bytes) -> list[str]:
    version = asked[7]
    return [topic.name for topic in decoded(asked, METADATA, version, is_answer=False).topics]


def creates(asked: bytes) -> bool:
    version = asked[7]
    message = decoded(asked, METADATA, version, is_answer=False)
    return version < 4 or bool(message.allow_auto_topic_creation)


def goes_up(stage: Stage, *chunks: bytes) -> bytes:
    """What the broker gets because of what it has said."""
    before = len(stage.to_broker)
    stage.broker(*chunks)
    return stage.to_broker[before:]


def until_decided(stage: Stage, frame: bytes, *known: Told, configs: bool = True) -> bytes:
    """The client asks, and the gateway's questions are answered; returns what goes up then."""
    question = stage.client(frame)
    assert question[4:8] == bytes([0, METADATA, 0, 4])
    assert not creates(question)
    facts = {topic[0]: topic for topic in known}
    topics = [facts.get(name, (name, UNKNOWN, 0)) for name in names_of(question)]
    behind = goes_up(stage, told(*topics, asked=question))
    if not configs:
        return behind
    assert behind[4:8] == bytes([0, DESCRIBE_CONFIGS, 0, 1])
    return goes_up(stage, settings(behind))


def topics_of(frame: bytes, version: int) -> dict[str, tuple[int, int]]:
    """What the client is told: error code and partitions of each topic."""
    message = decoded(frame, METADATA, version)
    assert [(node.host, node.port) for node in message.brokers] == [(GATEWAY, NODE_PORT_BASE + 1)]
    return {t.name: (int(t.error_code), len(t.partitions)) for t in message.topics}


def charges(rows: Sequence[Row]) -> list[tuple[float, int]]:
    return [(row.value, row.outcome) for row in rows]


def empty_the_bucket(stage: Stage) -> None:
    """Two topics of 60 partitions are created: 100 tokens, and 20 more."""
    frame = asks_for("filler-1", "filler-2", version=4)
    assert until_decided(stage, frame) == frame
    stage.broker(told(("filler-1", UNKNOWN, 0), ("filler-2", UNKNOWN, 0), asked=frame))
    stage.cluster.rows.clear()


# ------------------------------------------------------------------ who is asked, and who is not


@pytest.mark.parametrize("version", VERSIONS)
def test_without_a_limit_nothing_is_asked(version: int) -> None:
    stage = Stage(Cluster(quotas(PRODUCE=1)))
    frame = asks_for("new", version=version)
    assert stage.client(frame) == frame


def test_who_has_no_limit_beside_others_is_asked_nothing() -> None:
    stage = Stage(Cluster(quotas(QuotaEntity(client_id="other"), CONTROLLER_MUTATION=1)))
    frame = asks_for("new")
    assert stage.client(frame) == frame


@pytest.mark.parametrize("version", range(4, 14))
def test_what_creates_nothing_goes_on(version: int) -> None:
    stage = Stage(cluster())
    frame = asks_for("new", version=version, creates=False)
    assert stage.client(frame) == frame
    stage.broker(told(("new", UNKNOWN, 0), version=version, asked=frame))
    assert topics_of(stage.to_client, version) == {"new": (UNKNOWN, 0)}
    assert not stage.cluster.rows
    assert stage.client(again := request(HEARTBEAT, 0, correlation=2)) == again


@pytest.mark.parametrize("version", VERSIONS)
def test_all_topics_are_asked_for_as_ever(version: int) -> None:
    stage = Stage(cluster())
    every = () if version == 0 else None
    frame = request(METADATA, version, topics=every)
    assert stage.client(frame) == frame


def test_topics_by_id_create_nothing() -> None:
    stage = Stage(cluster())
    frame = asks_for(uuid.uuid4())
    assert stage.client(frame) == frame


class NoLimit(OneForAll):
    """Counts everybody, and limits nobody."""

    def quota_limit(self, quota_type: QuotaType, tags: Mapping[str, str]) -> float | None:
        return None


@pytest.mark.parametrize("callback", [OneForAll(), NoLimit()], ids=["a limit", "none"])
def test_a_callback_of_ones_own_is_asked_before_a_clients_first_topics(
    callback: OneForAll,
) -> None:
    stage = Stage(Cluster(callback=callback, enforced=frozenset({QuotaType.CONTROLLER_MUTATION})))
    frame = asks_for("new")
    assert stage.client(frame) == b""
    ((token, question),) = stage.asked
    assert question.quota_type is QuotaType.CONTROLLER_MUTATION

    up = stage.answer(token, question.ask(callback))

    assert (up == frame) is isinstance(callback, NoLimit)
    assert creates(up) is isinstance(callback, NoLimit)
    assert len(stage.asked) == 1


# ------------------------------------------------------------------ within the quota


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_topic_is_charged_with_the_default_partitions(version: int) -> None:
    stage = Stage(cluster())
    frame = asks_for("new", version=version, correlation=7)

    assert until_decided(stage, frame) == frame
    assert not stage.to_client
    stage.broker(told(("new", UNKNOWN, 0), version=version, asked=frame))

    assert topics_of(stage.to_client, version) == {"new": (UNKNOWN, 0)}
    assert stage.to_client[4:8] == frame[8:12]
    (row,) = stage.cluster.rows
    assert (row.value, row.outcome, row.throttle_ms) == (DEFAULT_PARTITIONS, ADMITTED, 0)
    assert (row.memo.api_key, row.memo.api_version) == (CREATE_TOPICS, 7)
    assert not stage.muted


@pytest.mark.parametrize("version", VERSIONS)
def test_beside_known_topics_only_what_is_charged_is_created(version: int) -> None:
    stage = Stage(cluster())
    frame = asks_for("old", "new", "a/b", version=version)

    question = until_decided(stage, frame, ("old", NONE, 3))
    assert (names_of(question), creates(question)) == (["new", "a/b"], True)
    behind = goes_up(stage, told(("new", UNKNOWN, 0), ("a/b", UNAUTHORIZED, 0), asked=question))
    assert (names_of(behind), creates(behind)) == (["old", "new", "a/b"], False)
    topics = [("old", NONE, 3), ("new", UNKNOWN, 0), ("a/b", UNKNOWN, 0)]
    stage.broker(told(*topics, version=max(4, version), asked=behind))

    # Why the last one was not created is not lost.
    told_codes = {"old": (NONE, 3), "new": (UNKNOWN, 0), "a/b": (UNAUTHORIZED, 0)}
    assert topics_of(stage.to_client, version) == told_codes
    assert stage.to_client[4:8] == frame[8:12]
    assert charges(stage.cluster.rows) == [(60, ADMITTED), (60, ADMITTED), (-60, ADMITTED)]
    assert not stage.muted


def test_an_old_client_that_leaves_while_known_topics_are_asked_for_owes_nothing() -> None:
    shared = cluster()
    stage = Stage(shared)
    until_decided(stage, asks_for("old", version=0), ("old", NONE, 3), configs=False)
    stage.end()
    assert not shared.rows
    assert shared.shared.whole_requests.small.used_bytes == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_known_topics_go_on_and_none_is_created_that_goes_meanwhile(version: int) -> None:
    stage = Stage(cluster())
    frame = asks_for("old", version=version)

    behind = until_decided(stage, frame, ("old", NONE, 3), configs=False)

    assert behind[8:12] == frame[8:12]
    assert names_of(behind) == ["old"]
    assert not creates(behind)
    stage.broker(told(("old", NONE, 3), version=max(4, version), asked=behind))
    assert topics_of(stage.to_client, version) == {"old": (NONE, 3)}
    assert not stage.cluster.rows


def test_what_comes_behind_waits_and_keeps_its_place() -> None:
    stage = Stage(cluster())
    frame, behind = asks_for("old", correlation=1), request(HEARTBEAT, 0, correlation=2)
    question = stage.client(frame + behind)
    assert len(split(question)) == 1
    after = goes_up(stage, told(("old", NONE, 1), asked=question))
    assert [part[4:6] for part in split(after)] == [b"\0\x03", bytes([0, HEARTBEAT])]


def test_a_topic_that_is_not_visible_yet_is_charged_once() -> None:
    stage = Stage(cluster())
    frame = asks_for("new")
    until_decided(stage, frame)
    stage.broker(told(("new", UNKNOWN, 0), version=12, asked=frame))

    behind = until_decided(stage, frame, configs=False)

    assert behind == asks_for("new", creates=False)
    assert charges(stage.cluster.rows) == [(60, ADMITTED)]


def test_a_topic_that_never_comes_is_asked_for_again_and_charged() -> None:
    stage = Stage(cluster())
    frame = asks_for("new")
    until_decided(stage, frame)
    stage.broker(told(("new", UNKNOWN, 0), version=12, asked=frame))
    stage.advance(10_000)

    assert until_decided(stage, frame, configs=False) == frame


def test_the_settings_are_asked_for_once() -> None:
    stage = Stage(cluster())
    for name, configs in (("a", True), ("b", False)):
        frame = asks_for(name)
        assert until_decided(stage, frame, configs=configs) == frame
        stage.broker(told((name, UNKNOWN, 0), version=12, asked=frame))


def test_where_the_cluster_creates_no_topics_nothing_is_charged() -> None:
    stage = Stage(cluster())
    for number in range(2):
        frame = asks_for("new")
        question = stage.client(frame)
        behind = goes_up(stage, told(("new", UNKNOWN, 0), asked=question))
        if not number:
            behind = goes_up(stage, settings(behind, creates="false"))
        assert behind == asks_for("new", creates=False)
        stage.broker(told(("new", UNKNOWN, 0), version=12, asked=frame))
    assert not stage.cluster.rows


def test_a_broker_that_does_not_tell_is_taken_to_create_topics() -> None:
    stage = Stage(cluster())
    frame = asks_for("new")
    question = stage.client(frame)
    behind = goes_up(stage, told(("new", UNKNOWN, 0), asked=question))
    assert goes_up(stage, settings(behind, creates=None, partitions=None)) == frame
    stage.broker(told(("new", UNKNOWN, 0), version=12, asked=frame))
    default = stage.cluster.shared.settings.default_partitions
    assert charges(stage.cluster.rows) == [(default, ADMITTED)]


@pytest.mark.parametrize("error", [INVALID, UNAUTHORIZED])
def test_what_the_broker_does_not_create_is_given_back(error: int) -> None:
    stage = Stage(cluster())
    frame = asks_for("a/b")
    until_decided(stage, frame)
    stage.broker(told(("a/b", error, 0), version=12, asked=frame))
    assert charges(stage.cluster.rows) == [(60, ADMITTED), (-60, ADMITTED)]
    assert not stage.muted
    assert stage.cluster.shared.facts.topics.last("a/b") is None


def test_a_topic_that_is_there_at_once_is_charged_with_what_it_has() -> None:
    stage = Stage(cluster())
    frame = asks_for("new")
    until_decided(stage, frame)
    stage.broker(told(("new", NONE, 12), version=12, asked=frame))
    assert charges(stage.cluster.rows) == [(60, ADMITTED), (-48, ADMITTED)]


def test_a_name_that_stands_twice_is_charged_once() -> None:
    stage = Stage(cluster())
    frame = asks_for("new", "new")
    until_decided(stage, frame)
    stage.broker(told(("new", LEADER_NOT_AVAILABLE, 0), version=12, asked=frame))
    assert charges(stage.cluster.rows) == [(60, ADMITTED)]


# ------------------------------------------------------------------ over the quota


@pytest.mark.parametrize("version", VERSIONS)
def test_over_the_quota_nothing_is_created_and_the_client_is_told_how_long_to_wait(
    version: int,
) -> None:
    stage = Stage(cluster())
    empty_the_bucket(stage)
    frame = asks_for("new", "old", version=version, correlation=9)
    before = len(stage.to_client)

    behind = until_decided(stage, frame, ("old", NONE, 3), configs=False)

    assert not creates(behind)
    assert names_of(behind) == ["new", "old"]
    stage.broker(told(("new", UNKNOWN, 0), ("old", NONE, 3), version=max(4, version), asked=behind))
    reply = stage.to_client[before:]
    assert reply[4:8] == frame[8:12]
    assert topics_of(reply, version) == {"new": (UNKNOWN, 0), "old": (NONE, 3)}
    if version >= 3:
        assert throttle_of(reply, METADATA, version) == DEBT_MS
    assert stage.mutes == [DEBT_MS]
    assert [(row.value, row.outcome, row.throttle_ms, row.upstream_ms) for row in stage.cluster.rows] == [
        (60, REJECTED, DEBT_MS, NO_ANSWER)
    ]  # fmt: skip

    # When the wait is over the client comes back, and gets there.
    stage.advance(DEBT_MS)
    stage.cluster.rows.clear()
    again = asks_for("new", version=version)
    assert until_decided(stage, again, configs=False) == again
    stage.broker(told(("new", UNKNOWN, 0), version=version, asked=again))
    assert charges(stage.cluster.rows) == [(60, ADMITTED)]
    assert not stage.muted


@pytest.mark.parametrize("version", VERSIONS)
def test_of_several_topics_those_are_created_that_the_quota_admits(version: int) -> None:
    stage = Stage(cluster())
    frame = asks_for("a", "b", "c", version=version)

    question = until_decided(stage, frame)

    assert question[8:12] != frame[8:12]
    assert creates(question)
    assert names_of(question) == ["a", "b"]
    behind = goes_up(stage, told(("a", UNKNOWN, 0), ("b", INVALID, 0), asked=question))
    assert not stage.to_client
    assert not creates(behind)
    assert names_of(behind) == ["a", "b", "c"]
    topics = [(name, UNKNOWN, 0) for name in "abc"]
    stage.broker(told(*topics, version=max(4, version), asked=behind))
    codes = {"a": (UNKNOWN, 0), "b": (INVALID, 0), "c": (UNKNOWN, 0)}
    assert topics_of(stage.to_client, version) == codes
    assert charges(stage.cluster.rows) == [(60, REJECTED), (60, ADMITTED), (60, ADMITTED), (-60, ADMITTED)]  # fmt: skip
    assert stage.mutes == [DEBT_MS]


def test_in_shadow_mode_there_are_rows_and_nothing_else() -> None:
    stage = Stage(cluster(enforced=frozenset()))
    frame = asks_for("a", "b", "c")
    assert until_decided(stage, frame) == frame
    stage.broker(told(*((name, UNKNOWN, 0) for name in "abc"), version=12, asked=frame))
    assert throttle_of(stage.to_client, METADATA, 12) == 0
    assert charges(stage.cluster.rows) == [(60, REJECTED), (60, ADMITTED), (60, ADMITTED)]
    assert not stage.mutes
    assert until_decided(stage, frame, configs=False) == frame


def test_a_wait_is_no_longer_than_one_mute() -> None:
    stage = Stage(cluster(rate=0.001))
    filler = asks_for("filler", version=4)
    assert until_decided(stage, filler) == filler
    stage.broker(told(("filler", UNKNOWN, 0), asked=filler))
    frame = asks_for("new")
    before = len(stage.to_client)
    behind = until_decided(stage, frame, configs=False)
    stage.broker(told(("new", UNKNOWN, 0), version=12, asked=behind))
    longest_ms = stage.cluster.shared.settings.mute_ms_max
    assert throttle_of(stage.to_client[before:], METADATA, 12) == longest_ms


# ------------------------------------------------------------------ the end, and bad input


def test_a_connection_that_ends_before_the_request_has_gone_up_has_charged_nothing() -> None:
    stage = Stage(cluster())
    question = stage.client(asks_for("new"))
    stage.broker(told(("new", UNKNOWN, 0), asked=question))
    stage.end()
    assert not stage.cluster.rows


def test_what_has_gone_up_stays_charged_when_the_connection_ends() -> None:
    shared = cluster()
    stage = Stage(shared)
    frame = asks_for("new")
    until_decided(stage, frame)
    stage.end()
    assert charges(shared.rows) == [(60, ADMITTED)]
    # Whether it was created nobody knows: who asks next may have it created.
    assert until_decided(Stage(shared, number=2), frame, configs=False) == frame


def test_too_many_names_are_refused_with_what_to_do() -> None:
    stage = Stage(cluster())
    body = (NAMES_MAX + 1).to_bytes(4, "big")
    frame = request(METADATA, 4, topics=None)[:-5] + body + b"\0\1a" * (NAMES_MAX + 1) + b"\1"
    frame = (len(frame) - 4).to_bytes(4, "big") + frame[4:]
    with pytest.raises(ProtocolError, match=r"20001 topics .* send several"):
        stage.client(frame)


def test_a_request_that_ends_too_early_is_refused() -> None:
    frame = asks_for("new", version=4)
    short = (len(frame) - 5).to_bytes(4, "big") + frame[4:-1]
    with pytest.raises(ProtocolError, match="Metadata v4 request"):
        Stage(cluster()).client(short)


def test_thousands_of_names_are_worked_on_in_steps() -> None:
    stage = Stage(cluster(rate=1_000_000))
    names = [f"topic-{number}" for number in range(3_000)]
    frame = asks_for(*names)
    assert until_decided(stage, frame) == frame
    stage.broker(told(*((name, UNKNOWN, 0) for name in names), version=12, asked=frame))
    assert charges(stage.cluster.rows) == [(60, ADMITTED)] * len(names)
    assert stage.cluster.shared.whole_requests.large.used_bytes == 0


def test_the_versions_are_those_that_are_offered() -> None:
    assert APIS[METADATA].versions == (0, max(VERSIONS))


def test_who_has_not_logged_in_makes_no_counters_by_names_it_invents() -> None:
    cluster = Cluster(quotas(QuotaEntity(client_id=DEFAULT), CONTROLLER_MUTATION=5))
    cluster.shared.asks_for_logins = True
    stage = Stage(cluster)
    asked = b"".join(request(METADATA, 12, client="x" * 900 + str(n)) for n in range(100))

    assert stage.client(asked) == asked
    assert len(cluster.engine.counters) == 0
