"""Topic mutations on one connection: asked about, charged topic by topic, answers merged (KIP-599)."""

import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kvota.engine import QuotaWindow
from kvota.model.decision_sink import ADMITTED, NO_ANSWER, REJECTED, THROTTLED
from kvota.model.errors import ProtocolError
from kvota.model.quota_type import QuotaType
from kvota.session.topology import UNNAMED_NODE
from kvota.testing.frames import (
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    HEARTBEAT,
    METADATA,
    answer,
    decoded,
    fetch,
    fetch_answer,
    metadata_answer,
    parts,
    request,
    split,
    throttle_of,
    topic_id,
)
from kvota.testing.manual_clock import START_MS
from kvota.testing.stage import BROKER, Cluster, Row, Stage, quotas

BALANCER = ("balancer.inside", 9092)
EXISTS, INVALID_PARTITIONS, THROTTLING, POLICY = 36, 37, 89, 44
UNKNOWN = 3
# 10 partitions/s, 100 at once.
WINDOW = {QuotaType.CONTROLLER_MUTATION: QuotaWindow(10, 1000)}


def cluster(rate: float = 10, **changes: Any) -> Cluster:
    return Cluster(quotas(CONTROLLER_MUTATION=rate), windows=WINDOW, **changes)


def create(
    *topics: tuple[str, int], version: int = 7, correlation: int = 1, validate_only: bool = False
) -> bytes:
    rows = [
        {
            "name": name,
            "num_partitions": count,
            "replication_factor": 1,
            "assignments": (),
            "configs": (),
        }
        for name, count in topics
    ]
    return request(
        CREATE_TOPICS,
        version,
        correlation=correlation,
        topics=parts(CREATE_TOPICS, version, "request", "CreatableTopic", *rows),
        validate_only=validate_only,
    )


def created(
    *topics: tuple[str, int, int], version: int = 7, correlation: int = 1, throttle_ms: int = 0
) -> bytes:
    """Topics as (name, error code, partitions)."""
    rows: list[dict[str, object]] = [
        {
            "name": name,
            "error_code": ErrorCode(error),
            "error_message": None,
            "num_partitions": count,
            "replication_factor": 1,
            "configs": (),
            "topic_config_error_code": ErrorCode(0),
            "topic_id": topic_id(name),
        }
        for name, error, count in topics
    ]
    return answer(
        CREATE_TOPICS,
        version,
        correlation=correlation,
        throttle_ms=throttle_ms,
        topics=_parts_of(CREATE_TOPICS, version, "CreatableTopicResult", rows),
    )


def _parts_of(key: int, version: int, name: str, rows: list[dict[str, object]]) -> tuple:
    return parts(key, version, "response", name, *rows)


def delete(*names: str, version: int = 5, correlation: int = 1) -> bytes:
    if version < 6:
        return request(DELETE_TOPICS, version, correlation=correlation, topic_names=names)
    rows = [{"name": name, "topic_id": None} for name in names]
    return request(
        DELETE_TOPICS,
        version,
        correlation=correlation,
        topics=parts(DELETE_TOPICS, version, "request", "DeleteTopicState", *rows),
    )


def delete_by_id(*ids: uuid.UUID) -> bytes:
    rows = [{"name": None, "topic_id": known} for known in ids]
    topics = parts(DELETE_TOPICS, 6, "request", "DeleteTopicState", *rows)
    return request(DELETE_TOPICS, 6, topics=topics)


def deleted(*topics: tuple[str, int], version: int = 5) -> bytes:
    rows: list[dict[str, object]] = [
        {"name": name, "error_code": ErrorCode(error), "error_message": None} for name, error in topics
    ]  # fmt: skip
    if version >= 6:
        rows = [{**row, "topic_id": topic_id(str(row["name"]))} for row in rows]
    return answer(
        DELETE_TOPICS,
        version,
        responses=_parts_of(DELETE_TOPICS, version, "DeletableTopicResult", rows),
    )


def grow(*topics: tuple[str, int], version: int = 3) -> bytes:
    rows = [{"name": name, "count": count, "assignments": None} for name, count in topics]
    return request(
        CREATE_PARTITIONS,
        version,
        topics=parts(CREATE_PARTITIONS, version, "request", "CreatePartitionsTopic", *rows),
        validate_only=False,
    )


def grown(*topics: tuple[str, int], version: int = 3) -> bytes:
    rows: list[dict[str, object]] = [
        {"name": name, "error_code": ErrorCode(error), "error_message": None} for name, error in topics
    ]  # fmt: skip
    return answer(
        CREATE_PARTITIONS,
        version,
        results=_parts_of(CREATE_PARTITIONS, version, "CreatePartitionsTopicResult", rows),
    )


def tell(stage: Stage, question: bytes, *topics: tuple[str, int, int]) -> bytes:
    """The broker answers our Metadata question; returns what goes up because of it.

    ``topics`` as (name, error code, partitions); a topic that is not told does not exist.
    """
    (asked,) = split(question)
    assert asked[4:8] == bytes([0, METADATA, 0, 4])
    correlation = int.from_bytes(asked[8:12], "big")
    names = [topic.name for topic in decoded(asked, METADATA, 4, is_answer=False).topics]
    told = {name: (name, error, count) for name, error, count in topics}
    before = len(stage.to_broker)
    stage.broker(
        metadata_answer(
            4,
            correlation=correlation,
            brokers=[(1, *BROKER)],
            topics=[told.get(name, (name, UNKNOWN, 0)) for name in names],
        )
    )
    assert asked[8:12] not in stage.to_client  # nothing of our own question reaches the client
    return stage.to_broker[before:]


def results(frame: bytes, key: int, version: int) -> dict[str, int]:
    """Error code of each topic in an answer."""
    told = decoded(frame, key, version)
    rows = next(getattr(told, n) for n in ("topics", "responses", "results") if hasattr(told, n))
    found = {row.name: int(row.error_code) for row in rows}
    assert len(found) == len(rows)
    return found


def charges(rows: list[Row]) -> list[tuple[float, int]]:
    return [(row.value, row.outcome) for row in rows]


def empty_the_bucket(stage: Stage, size: int = 100) -> None:
    """Takes ``size`` tokens: 100 leave none, more leave a debt of 100 ms each."""
    frame = create(("filler", size))
    tell(stage, stage.client(frame))
    stage.broker(created(("filler", 0, size)))
    stage.cluster.rows.clear()


# ------------------------------------------------------------------ asking


def test_a_request_is_held_until_our_question_is_answered() -> None:
    stage = Stage(cluster())
    frame = create(("new", 3))

    question = stage.client(frame)

    asked = decoded(question, METADATA, 4, is_answer=False)
    assert [topic.name for topic in asked.topics] == ["new"]
    assert asked.allow_auto_topic_creation is False
    assert tell(stage, question) == frame
    assert stage.to_client == b""
    told = created(("new", 0, 3))
    assert stage.broker(told) == told
    assert charges(stage.cluster.rows) == [(3, ADMITTED)]


def test_nothing_else_is_forwarded_while_a_mutation_is_under_way() -> None:
    stage = Stage(cluster())
    frame, behind = create(("new", 3)), request(HEARTBEAT, 4, correlation=2)

    question = stage.client(frame + behind)

    assert len(split(question)) == 1
    assert stage.machine.pauses_reading
    assert tell(stage, question) == frame
    before = len(stage.to_broker)
    stage.broker(created(("new", 0, 3)))
    assert stage.to_broker[before:] == behind
    assert not stage.machine.pauses_reading


def test_brokers_in_our_own_questions_answer_are_learnt_but_not_told() -> None:
    stage = Stage(cluster())

    tell(stage, stage.client(create(("new", 3))))

    assert stage.cluster.shared.topology.brokers == {1: BROKER}
    assert stage.to_client == b""


def test_a_validation_is_neither_asked_about_nor_charged() -> None:
    stage = Stage(cluster())
    frame = create(("new", 300), validate_only=True)

    assert stage.client(frame) == frame
    told = created(("new", 0, 300))
    assert stage.broker(told) == told
    assert stage.cluster.rows == []


def test_a_request_without_topics_is_passed_on() -> None:
    stage = Stage(cluster())

    assert stage.client(create()) == create()


def test_a_topic_name_longer_than_kafkas_strings_closes() -> None:
    stage = Stage(cluster())
    frame = create(("x", 1))
    at = frame.index(b"\x02x")
    long = frame[:at] + b"\xc1\xb8\x02" + b"n" * 40_000 + frame[at + 2 :]

    with pytest.raises(ProtocolError, match="a string of 40000 bytes"):
        stage.client((len(long) - 4).to_bytes(4, "big") + long[4:])


# ------------------------------------------------------------------ what is charged


def test_topics_are_charged_their_partitions_one_by_one() -> None:
    stage = Stage(cluster())
    frame = create(("a", 3), ("b", 5))

    assert tell(stage, stage.client(frame)) == frame
    stage.broker(created(("a", 0, 3), ("b", 0, 5)))

    rows = stage.cluster.rows
    assert charges(rows) == [(3, ADMITTED), (5, ADMITTED)]
    assert {row.memo.node_id for row in rows} == {-1}
    assert {row.memo.quota_type for row in rows} == {QuotaType.CONTROLLER_MUTATION}
    assert {row.memo.algorithm.value for row in rows} == {"token_bucket"}
    assert [row.seq for row in rows] == [0, 1]


def test_a_topic_that_exists_goes_up_uncharged_even_when_the_bucket_is_empty() -> None:
    stage = Stage(cluster())
    empty_the_bucket(stage, 150)
    frame = create(("old", 30))

    assert tell(stage, stage.client(frame), ("old", 0, 3)) == frame
    told = stage.broker(created(("old", EXISTS, -1)))

    assert results(told, CREATE_TOPICS, 7) == {"old": EXISTS}
    assert throttle_of(told, CREATE_TOPICS, 7) == 0
    assert stage.cluster.rows == []
    assert not stage.muted


def test_an_invalid_name_goes_up_uncharged() -> None:
    stage = Stage(cluster())
    frame = create(("no/name", 30))

    assert tell(stage, stage.client(frame), ("no/name", 17, 0)) == frame
    assert stage.cluster.rows == []


@pytest.mark.parametrize("count", [0, -2])
def test_an_impossible_count_goes_up_uncharged(count: int) -> None:
    stage = Stage(cluster())
    frame = create(("new", count))

    assert tell(stage, stage.client(frame)) == frame
    assert stage.broker(created(("new", INVALID_PARTITIONS, -1))) != b""
    assert stage.cluster.rows == []


def test_a_topic_named_twice_goes_up_uncharged() -> None:
    stage = Stage(cluster())
    frame = create(("twice", 3), ("once", 5), ("twice", 3))

    assert tell(stage, stage.client(frame)) == frame
    stage.broker(created(("twice", 42, -1), ("once", 0, 5)))

    assert charges(stage.cluster.rows) == [(5, ADMITTED)]


def test_a_topic_that_may_not_be_described_is_charged_as_a_new_one() -> None:
    stage = Stage(cluster())

    tell(stage, stage.client(create(("secret", 4))), ("secret", 29, 0))
    stage.broker(created(("secret", 0, 4)))

    assert charges(stage.cluster.rows) == [(4, ADMITTED)]


def test_a_deletion_is_charged_the_partitions_the_topic_has() -> None:
    stage = Stage(cluster())
    frame = delete("old", "unknown")

    assert tell(stage, stage.client(frame), ("old", 0, 6)) == frame
    stage.broker(deleted(("old", 0), ("unknown", UNKNOWN)))

    assert charges(stage.cluster.rows) == [(6, ADMITTED)]


def test_new_partitions_are_charged_by_how_many_are_added() -> None:
    stage = Stage(cluster())
    frame = grow(("old", 10), ("shrunk", 2), ("unknown", 5))

    assert tell(stage, stage.client(frame), ("old", 0, 6), ("shrunk", 0, 3)) == frame
    stage.broker(grown(("old", 0), ("shrunk", INVALID_PARTITIONS), ("unknown", UNKNOWN)))

    assert charges(stage.cluster.rows) == [(4, ADMITTED)]


def test_assignments_are_charged_by_their_number() -> None:
    stage = Stage(cluster())
    assignments = parts(
        CREATE_TOPICS, 7, "request", "CreatableReplicaAssignment",
        *({"partition_index": index, "broker_ids": (1,)} for index in range(4)),
    )  # fmt: skip
    topic = {"name": "placed", "num_partitions": -1, "replication_factor": -1, "configs": ()}
    topics = parts(CREATE_TOPICS, 7, "request", "CreatableTopic", {**topic, "assignments": assignments})  # fmt: skip
    frame = request(CREATE_TOPICS, 7, topics=topics, validate_only=False)

    assert tell(stage, stage.client(frame)) == frame
    stage.broker(created(("placed", 0, 4)))

    assert charges(stage.cluster.rows) == [(4, ADMITTED)]


def test_deletions_by_id_are_asked_for_by_id() -> None:
    stage = Stage(cluster())
    stage.machine.caller.upstream_versions = {METADATA: (0, 13)}
    frame = delete_by_id(topic_id("old"), topic_id("unknown"))

    question = stage.client(frame)
    asked = decoded(question, METADATA, 12, is_answer=False)
    assert [topic.topic_id for topic in asked.topics] == [topic_id("old"), topic_id("unknown")]
    correlation = int.from_bytes(question[8:12], "big")
    before = len(stage.to_broker)
    stage.broker(metadata_answer(12, correlation=correlation, topics=[("old", 0, 6)]))

    assert stage.to_broker[before:] == frame
    stage.broker(deleted(("old", 0), ("unknown", 100), version=6))
    assert charges(stage.cluster.rows) == [(6, ADMITTED)]


def test_deletions_by_id_and_by_name_are_two_questions() -> None:
    stage = Stage(cluster())
    topics = parts(
        DELETE_TOPICS, 6, "request", "DeleteTopicState",
        {"name": None, "topic_id": topic_id("a")}, {"name": "b", "topic_id": None},
    )  # fmt: skip
    frame = request(DELETE_TOPICS, 6, topics=topics)

    by_id = tell(stage, stage.client(frame), ("b", 0, 2))
    correlation = int.from_bytes(by_id[8:12], "big")
    before = len(stage.to_broker)
    stage.broker(metadata_answer(12, correlation=correlation, topics=[("a", 0, 5)]))

    assert stage.to_broker[before:] == frame
    stage.broker(deleted(("a", 0), ("b", 0), version=6))
    assert charges(stage.cluster.rows) == [(5, ADMITTED), (2, ADMITTED)]


# ------------------------------------------------------------------ the cluster's default


def test_the_default_count_is_asked_for_once() -> None:
    stage = Stage(cluster())
    frame = create(("a", -1))

    question = tell(stage, stage.client(frame))
    asked = decoded(question, DESCRIBE_CONFIGS, 1, is_answer=False)
    assert [(r.resource_type, r.resource_name) for r in asked.resources] == [(4, "1")]
    assert asked.resources[0].configuration_keys == ("num.partitions",)
    before = len(stage.to_broker)
    stage.broker(default_partitions_answer(question, "6"))
    assert stage.to_broker[before:] == frame
    stage.broker(created(("a", 0, 6)))
    assert charges(stage.cluster.rows) == [(6, ADMITTED)]

    frame = create(("b", -1))
    assert tell(stage, stage.client(frame)) == frame


def default_partitions_answer(question: bytes, value: str | None) -> bytes:
    entry = {
        "name": "num.partitions",
        "value": value,
        "read_only": False,
        "config_source": 5,
        "is_sensitive": False,
        "synonyms": (),
    }
    configs = parts(
        DESCRIBE_CONFIGS, 1, "response", "DescribeConfigsResourceResult", *([entry] if value else [])
    )  # fmt: skip
    result = {
        "error_code": ErrorCode(0 if value else 31),
        "error_message": None,
        "resource_type": 4,
        "resource_name": "1",
        "configs": configs,
    }
    return answer(
        DESCRIBE_CONFIGS,
        1,
        correlation=int.from_bytes(question[8:12], "big"),
        results=parts(DESCRIBE_CONFIGS, 1, "response", "DescribeConfigsResult", result),
    )


@pytest.mark.parametrize(
    ("real", "expected"), [(2, [(4, 0), (-2, 0)]), (4, [(4, 0)]), (9, [(4, 0), (5, 0)])]
)
def test_where_the_broker_does_not_tell_a_setting_counts_and_the_answer_corrects_it(
    real: int, expected: list[tuple[float, int]]
) -> None:
    stage = Stage(cluster(limits={"default_partitions": 4}))
    question = tell(stage, stage.client(create(("a", -1))))

    stage.broker(default_partitions_answer(question, None))
    stage.broker(created(("a", 0, real)))

    assert charges(stage.cluster.rows) == expected


def test_on_a_connection_whose_node_is_unknown_the_setting_counts() -> None:
    stage = Stage(cluster(limits={"default_partitions": 4}), node_id=UNNAMED_NODE, dialled=BALANCER)
    frame = create(("a", -1))

    assert tell(stage, stage.client(frame)) == frame


# ------------------------------------------------------------------ strict versions


def test_a_strict_request_is_refused_topic_by_topic_and_the_answers_are_merged() -> None:
    stage = Stage(cluster())
    frame = create(("a", 60), ("b", 60), ("c", 5), ("old", 9))

    forwarded = tell(stage, stage.client(frame), ("old", 0, 1))

    assert forwarded == create(("a", 60), ("b", 60), ("old", 9))
    told = stage.broker(created(("a", 0, 60), ("b", 0, 60), ("old", EXISTS, -1)))
    assert results(told, CREATE_TOPICS, 7) == {"a": 0, "b": 0, "c": THROTTLING, "old": EXISTS}
    refused = next(t for t in decoded(told, CREATE_TOPICS, 7).topics if t.name == "c")
    assert refused.error_message is None
    assert throttle_of(told, CREATE_TOPICS, 7) == 2_000
    assert stage.mutes == [2_000]
    assert charges(stage.cluster.rows) == [(5, REJECTED), (60, ADMITTED), (60, ADMITTED)]
    assert [row.upstream_ms for row in stage.cluster.rows] == [NO_ANSWER, 0, 0]


def test_a_request_refused_as_a_whole_is_answered_by_the_gateway() -> None:
    stage = Stage(cluster())
    empty_the_bucket(stage, 150)
    before = len(stage.to_client)
    question = stage.client(create(("a", 3), ("b", 4), version=6, correlation=77))

    assert tell(stage, question) == b""

    own = stage.to_client[before:]
    assert own[4:8] == (77).to_bytes(4, "big")
    assert results(own, CREATE_TOPICS, 6) == {"a": THROTTLING, "b": THROTTLING}
    assert throttle_of(own, CREATE_TOPICS, 6) == 5_000
    assert stage.mutes == [5_000]
    assert stage.machine.due_count == 0
    assert charges(stage.cluster.rows) == [(3, REJECTED), (4, REJECTED)]


@pytest.mark.parametrize(
    ("key", "strict_from"), [(CREATE_TOPICS, 6), (DELETE_TOPICS, 5), (CREATE_PARTITIONS, 3)]
)
def test_from_which_version_on_a_topic_can_be_refused(key: int, strict_from: int) -> None:
    makers = {
        CREATE_TOPICS: lambda version: create(("x", 3), version=version),
        DELETE_TOPICS: lambda version: delete("x", version=version),
        CREATE_PARTITIONS: lambda version: grow(("x", 6), version=version),
    }
    existing = [] if key == CREATE_TOPICS else [("x", 0, 3)]
    strict, permissive = Stage(cluster()), Stage(cluster())
    empty_the_bucket(strict, 150)
    empty_the_bucket(permissive, 150)
    older = makers[key](strict_from - 1)

    assert tell(strict, strict.client(makers[key](strict_from)), *existing) == b""
    assert tell(permissive, permissive.client(older), *existing) == older
    assert charges(strict.cluster.rows) == [(3, REJECTED)]


def test_a_mutation_refused_behind_a_slow_fetch_is_answered_in_order() -> None:
    stage = Stage(cluster())
    empty_the_bucket(stage, 150)
    before = len(stage.to_client)
    forwarded = stage.client(fetch(correlation=5) + create(("a", 3), correlation=6))
    fetched, question = split(forwarded)
    assert fetched == fetch(correlation=5)

    large = fetch_answer(correlation=5, records=b"f" * 200_000)
    stage.broker(large)
    assert stage.to_client[before:] == large
    tell(stage, question)

    first, own = split(stage.to_client[before:])
    assert first == large
    assert own[4:8] == (6).to_bytes(4, "big")
    assert results(own, CREATE_TOPICS, 7) == {"a": THROTTLING}


def test_the_longer_of_our_throttle_and_the_brokers_is_told() -> None:
    stage = Stage(cluster())
    tell(stage, stage.client(create(("a", 150), ("b", 1))))

    told = stage.broker(created(("a", 0, 150), throttle_ms=60_000))

    assert throttle_of(told, CREATE_TOPICS, 7) == 60_000
    assert stage.mutes == [5_000]
    assert [row.upstream_ms for row in stage.cluster.rows] == [NO_ANSWER, 60_000]


def test_time_spent_upstream_counts_towards_the_throttle() -> None:
    stage = Stage(cluster())
    tell(stage, stage.client(create(("a", 150), ("b", 1))))

    stage.advance(1_500)
    told = stage.broker(created(("a", 0, 150)))

    assert throttle_of(told, CREATE_TOPICS, 7) == 3_500
    assert stage.mutes == [3_500]
    assert stage.cluster.rows[0].throttle_ms == 5_000


# ------------------------------------------------------------------ permissive versions


@pytest.mark.parametrize("version", [2, 4, 5])
def test_a_permissive_request_is_admitted_and_pays_afterwards(version: int) -> None:
    stage = Stage(cluster())
    frame = create(("a", 90), ("b", 90), version=version)

    assert tell(stage, stage.client(frame)) == frame
    told = stage.broker(created(("a", 0, 90), ("b", 0, 90), version=version))

    assert results(told, CREATE_TOPICS, version) == {"a": 0, "b": 0}
    assert throttle_of(told, CREATE_TOPICS, version) == 8_000
    assert stage.mutes == [8_000]
    assert charges(stage.cluster.rows) == [(90, ADMITTED), (90, THROTTLED)]


@pytest.mark.parametrize(("version", "passes"), [(5, False), (6, True)])
def test_a_mutation_that_cannot_be_refused_stays_muted_behind_the_cap(
    version: int, passes: bool
) -> None:
    stage = Stage(cluster(rate=1), cap_ms=30_000)
    tell(stage, stage.client(create(("big", 100), version=5)))
    stage.broker(created(("big", 0, 100), version=5))
    (throttle_ms,) = stage.mutes
    assert throttle_ms > 60_000

    stage.client(create(("more", 100), version=version, correlation=2))

    assert bool(stage.advance(throttle_ms - 1)) is passes
    if not passes:
        assert tell(stage, stage.advance(1)) == create(("more", 100), version=5, correlation=2)


def test_behind_a_throttled_mutation_the_connection_is_muted() -> None:
    stage = Stage(cluster())
    behind = request(HEARTBEAT, 4, correlation=2)
    tell(stage, stage.client(create(("a", 150), ("b", 10), version=5) + behind))
    before = len(stage.to_broker)

    stage.broker(created(("a", 0, 150), ("b", 0, 10), version=5))

    assert stage.mutes == [6_000]
    assert stage.to_broker[before:] == b""
    assert stage.advance(5_999) == b""
    assert stage.advance(1) == behind


# ------------------------------------------------------------------ what upstream refuses


def test_what_the_broker_refuses_is_given_back() -> None:
    stage = Stage(cluster())
    tell(stage, stage.client(create(("a", 60), ("b", 30))))

    stage.broker(created(("a", 0, 60), ("b", 38, -1), throttle_ms=5))

    assert charges(stage.cluster.rows) == [(60, ADMITTED), (30, ADMITTED), (-30, ADMITTED)]
    assert [row.upstream_ms for row in stage.cluster.rows] == [5, 5, 5]
    assert sorted(row.seq for row in stage.cluster.rows) == [0, 1, 2]
    # 40 tokens are left: another 40 pass, and one more pays nothing yet.
    tell(stage, stage.client(create(("c", 40), ("d", 1), ("e", 1))))
    assert stage.cluster.rows[-1].value == 1
    assert stage.cluster.rows[-1].outcome == REJECTED


def test_who_gets_everything_back_is_not_muted() -> None:
    stage = Stage(cluster())
    tell(stage, stage.client(create(("a", 500), version=5)))

    told = stage.broker(created(("a", 38, -1), version=5))

    assert charges(stage.cluster.rows) == [(500, THROTTLED), (-500, ADMITTED)]
    assert throttle_of(told, CREATE_TOPICS, 5) == 0
    assert not stage.muted


def test_what_timed_out_may_exist_and_stays_charged() -> None:
    stage = Stage(cluster())
    tell(stage, stage.client(create(("a", 60))))

    stage.broker(created(("a", 7, -1)))

    assert charges(stage.cluster.rows) == [(60, ADMITTED)]


def test_a_count_corrected_upwards_is_charged_though_the_bucket_is_in_debt() -> None:
    stage = Stage(cluster())
    topics = [(f"t{number}", -1) for number in range(3)]
    question = tell(stage, stage.client(create(*topics)))
    stage.broker(default_partitions_answer(question, None))

    stage.broker(created(*[(name, 0, 90) for name, _ in topics]))

    corrections = [row for row in stage.cluster.rows if row.memo.api_version == 0]
    assert [row.value for row in corrections] == [89, 89, 89]
    assert REJECTED not in [row.outcome for row in corrections]


def test_an_answer_that_is_refused_leaves_its_charges_in_the_record() -> None:
    stage = Stage(cluster())
    tell(stage, stage.client(create(("a", 60))))
    sent = created(("a", 0, 60))

    with pytest.raises(ProtocolError):
        stage.broker((len(sent) - 7).to_bytes(4, "big") + sent[4:-3])
    stage.machine.close()

    assert [(row.value, row.upstream_ms) for row in stage.cluster.rows] == [(60, -1)]


def test_many_topics_that_grow_are_bounded_together() -> None:
    stage = Stage(cluster(rate=10**6))
    asked = [(f"t{number}", 6_003) for number in range(3)]

    forwarded = tell(stage, stage.client(grow(*asked)), *[(name, 0, 3) for name, _ in asked])

    assert forwarded == grow(asked[0])


def test_a_large_topic_may_grow_by_a_little() -> None:
    stage = Stage(cluster(rate=10**6))

    forwarded = tell(stage, stage.client(grow(("a", 10_001))), ("a", 0, 10_000))

    assert forwarded == grow(("a", 10_001))


def test_the_brokers_own_refusal_for_its_quota_is_given_back_and_told() -> None:
    stage = Stage(cluster())
    tell(stage, stage.client(create(("a", 60))))

    told = stage.broker(created(("a", THROTTLING, -1), throttle_ms=700))

    assert results(told, CREATE_TOPICS, 7) == {"a": THROTTLING}
    assert throttle_of(told, CREATE_TOPICS, 7) == 700
    assert charges(stage.cluster.rows) == [(60, ADMITTED), (-60, ADMITTED)]


def test_quotas_changed_between_question_and_answer_are_the_ones_recorded() -> None:
    stage = Stage(cluster())
    tell(stage, stage.client(create(("a", 3))))

    stage.cluster.engine.replace_quotas(quotas(CONTROLLER_MUTATION=2))
    stage.broker(created(("a", 38, -1)))

    assert [(row.value, row.memo.limit) for row in stage.cluster.rows] == [(3, 10), (-3, 2)]


def test_quotas_that_appear_before_our_question_is_answered_are_in_force() -> None:
    stage = Stage(Cluster())
    question = stage.client(create(("a", 3)))

    stage.cluster.engine.replace_quotas(quotas(CONTROLLER_MUTATION=2))
    tell(stage, question)
    told = stage.broker(created(("a", 38, -1)))

    assert results(told, CREATE_TOPICS, 7) == {"a": 38}
    assert [(row.value, row.memo.samples) for row in stage.cluster.rows] == [(3, 11), (-3, 11)]


def test_a_clock_that_steps_back_meanwhile_does_not_lengthen_the_mute() -> None:
    stage = Stage(cluster())
    tell(stage, stage.client(create(("a", 300), version=5)))
    stage.cluster.clock.step_wall(-3_600_000)

    stage.broker(created(("a", 0, 300), version=5))

    (row,) = stage.cluster.rows
    assert stage.mutes == [row.throttle_ms] == [20_000]


def test_a_counter_forgotten_while_our_question_is_under_way_is_not_charged() -> None:
    stage = Stage(cluster())
    question = stage.client(create(("a", 300)))

    stage.cluster.clock.advance(3_600_001)
    assert stage.cluster.purge_counters() == 1
    tell(stage, question)
    stage.broker(created(("a", 0, 300)))
    tell(stage, stage.client(create(("b", 1))))

    assert [row.outcome for row in stage.cluster.rows] == [ADMITTED, REJECTED]


def test_a_connection_that_ends_in_the_middle_records_what_was_charged() -> None:
    stage = Stage(cluster())
    tell(stage, stage.client(create(("a", 3))))

    stage.machine.close()

    assert charges(stage.cluster.rows) == [(3, ADMITTED)]
    assert stage.cluster.rows[0].upstream_ms == NO_ANSWER
    assert stage.cluster.rows[0].ts_us == START_MS * 1000


def test_a_connection_that_ends_before_our_question_is_answered_has_charged_nothing() -> None:
    stage = Stage(cluster())
    stage.client(create(("a", 3)))

    stage.machine.close()

    assert stage.cluster.rows == []


# ------------------------------------------------------------------ shadow mode


def test_shadow_mode_refuses_nothing_and_throttles_nobody() -> None:
    stage = Stage(cluster(enforced=frozenset()))
    frame = create(("a", 150), ("b", 10))

    assert tell(stage, stage.client(frame)) == frame
    sent = created(("a", 0, 150), ("b", 0, 10))
    assert stage.broker(sent) == sent
    assert stage.mutes == []
    rows = stage.cluster.rows
    assert charges(rows) == [(10, REJECTED), (150, ADMITTED)]
    assert [row.memo.enforced for row in rows] == [False, False]
    assert rows[0].throttle_ms == 5_000


def test_without_a_mutation_quota_charges_are_observed() -> None:
    stage = Stage(Cluster())
    frame = create(("a", 150), ("b", 10))

    assert tell(stage, stage.client(frame)) == frame
    stage.broker(created(("a", 0, 150), ("b", 0, 10)))

    assert [(r.value, r.memo.samples, r.memo.limit) for r in stage.cluster.rows] == [(150, 0, None), (10, 0, None)]  # fmt: skip


# ------------------------------------------------------------------ what no cluster should be asked for


def test_too_many_partitions_in_one_creation_are_refused_before_they_go_up() -> None:
    stage = Stage(cluster(rate=10**6))
    question = stage.client(create(("a", 6_000), ("b", 6_000)))

    assert tell(stage, question) == b""

    told = decoded(stage.to_client, CREATE_TOPICS, 7)
    assert {topic.error_code for topic in told.topics} == {ErrorCode(POLICY)}
    assert "12000; at most 10000" in told.topics[0].error_message
    assert stage.cluster.rows == []


def test_too_many_partitions_for_one_topic_are_refused_beside_others() -> None:
    stage = Stage(cluster(rate=10**6))
    frame = grow(("a", 20_000), ("b", 8))

    forwarded = tell(stage, stage.client(frame), ("a", 0, 3), ("b", 0, 3))

    assert forwarded == grow(("b", 8))
    told = stage.broker(grown(("b", 0)))
    assert results(told, CREATE_PARTITIONS, 3) == {"a": INVALID_PARTITIONS, "b": 0}
    assert charges(stage.cluster.rows) == [(5, ADMITTED)]


def test_neither_of_two_mentions_of_a_topic_goes_up_alone() -> None:
    """The broker refuses both; one alone it would carry out, and nobody would be charged."""
    stage = Stage(cluster(rate=10**6))
    frame = grow(("twice", 20_000), ("once", 8), ("twice", 9))

    assert tell(stage, stage.client(frame), ("twice", 0, 3), ("once", 0, 3)) == frame

    stage.broker(grown(("twice", 42), ("once", 0)))
    assert charges(stage.cluster.rows) == [(5, ADMITTED)]


def test_an_answer_of_the_broker_that_cannot_be_read_closes() -> None:
    stage = Stage(cluster())
    tell(stage, stage.client(create(("a", 3))))
    sent = created(("a", 0, 3))

    with pytest.raises(ProtocolError, match="CreateTopics v7 answer"):
        stage.broker((len(sent) - 7).to_bytes(4, "big") + sent[4:-3])


def test_a_connection_that_asked_for_versions_knows_how_ids_are_asked_for() -> None:
    stage = Stage(cluster())
    stage.client(request(API_VERSIONS, 3))
    offered = parts(
        API_VERSIONS, 3, "response", "ApiVersion",
        {"api_key": METADATA, "min_version": 0, "max_version": 11},
    )  # fmt: skip
    stage.broker(answer(API_VERSIONS, 3, api_keys=offered, error_code=ErrorCode(0)))

    question = stage.client(delete_by_id(topic_id("a")))

    assert question[4:8] == bytes([0, METADATA, 0, 10])
    correlation = int.from_bytes(question[8:12], "big")
    stage.broker(metadata_answer(10, correlation=correlation, topics=[("a", 0, 5), ("b", 0, 7)]))
    stage.broker(deleted(("a", 0), version=6))
    assert charges(stage.cluster.rows) == [(5, ADMITTED)]


# ------------------------------------------------------------------ beside REQUEST


@pytest.mark.parametrize(("partitions", "told_ms"), [(3, 1_000), (200, 10_000)])
def test_the_longer_throttle_of_partitions_and_of_time_is_told(
    partitions: int, told_ms: int
) -> None:
    stage = Stage(Cluster(quotas(CONTROLLER_MUTATION=10, REQUEST=1.0), windows=WINDOW))
    stage.step_ns = 500_000_000
    question = stage.client(create(("new", partitions), version=5))
    stage.step_ns = 0
    tell(stage, question)
    told = stage.broker(created(("new", 0, partitions), version=5))

    assert throttle_of(told, CREATE_TOPICS, 5) == told_ms
    assert max(stage.mutes) == told_ms
    of_time = [row for row in stage.cluster.rows if row.memo.quota_type is QuotaType.REQUEST]
    assert {(row.memo.api_key, row.throttle_ms) for row in of_time} == {(CREATE_TOPICS, 1_000)}
