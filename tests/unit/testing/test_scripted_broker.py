"""A broker that answers as its script says; the answers are read by kio."""

import pytest
from kio.schema.errors import ErrorCode

from kvota.testing.frames import (
    API_VERSIONS,
    CREATE_TOPICS,
    DESCRIBE_CONFIGS,
    FETCH,
    HEARTBEAT,
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    decoded,
    fetch,
    parts,
    produce,
    request,
    split,
    throttle_of,
)
from kvota.testing.script import Script
from kvota.testing.scripted_broker import ScriptedBroker
from kvota.testing.scripted_cluster import ScriptedCluster

PLAIN = b"\0alice\0secret"


class Strict(Script):
    """Says something else than usual, everywhere."""

    def delay_ms(self, key: int) -> int:
        return key + 5

    def throttle_ms(self, key: int) -> int:
        return 70

    def produce_error(self) -> int:
        return ErrorCode.not_leader_or_follower.value

    def authenticate_error(self) -> int:
        return ErrorCode.sasl_authentication_failed.value

    def fetched_bytes(self) -> int:
        return 9

    def fetched_partitions(self) -> int:
        return 2

    def named_nodes(self, key: int) -> tuple[int, ...]:
        return (1,)


def test_requests_are_answered_in_order_when_they_are_whole() -> None:
    broker = ScriptedBroker()
    asked = [produce(correlation=1), fetch(correlation=2), request(HEARTBEAT, 4, correlation=-3)]
    together = b"".join(asked)

    early = broker.receive(together[:-1])
    late = broker.receive(together[-1:])

    assert [reply.request for reply in early + late] == asked
    assert (len(early), len(late)) == (2, 1)
    assert broker.requests == asked
    answers = b"".join(reply.answer for reply in early + late)
    correlations = [int.from_bytes(one[4:8], "big", signed=True) for one in split(answers)]
    assert correlations == [1, 2, -3]
    assert not broker.is_inside_frame


def test_half_a_request_is_kept_in_mind() -> None:
    broker = ScriptedBroker()

    assert broker.answers(produce()[:30]) == b""

    assert broker.is_inside_frame


def test_nobody_waits_for_an_answer_to_a_produce_without_acks() -> None:
    (reply,) = ScriptedBroker().receive(produce(acks=0))

    assert reply.answer == b""


def test_the_script_says_how_a_produce_is_answered() -> None:
    (reply,) = ScriptedBroker(script=Strict()).receive(produce(10))

    told = decoded(reply.answer, PRODUCE, 10)
    assert told.responses[0].partition_responses[0].error_code is ErrorCode.not_leader_or_follower
    assert [node.host for node in told.node_endpoints] == ["broker-1.inside"]
    assert (throttle_of(reply.answer, PRODUCE, 10), reply.throttle_ms, reply.delay_ms) == (
        70,
        70,
        5,
    )


def test_the_script_says_how_a_fetch_is_answered() -> None:
    (reply,) = ScriptedBroker(script=Strict()).receive(fetch(17))

    told = decoded(reply.answer, FETCH, 17)
    assert [len(part.records) for part in told.responses[0].partitions] == [9, 9]
    assert reply.delay_ms == FETCH + 5


def test_metadata_and_mutations_are_about_the_same_topics() -> None:
    broker = ScriptedBroker(ScriptedCluster(refused={"bad": ErrorCode.policy_violation.value}))
    rows = (
        {"name": name, "num_partitions": 3, "replication_factor": 1, "assignments": (), "configs": ()}
        for name in ("a", "bad")
    )  # fmt: skip
    topics = parts(CREATE_TOPICS, 7, "request", "CreatableTopic", *rows)

    (created,) = broker.receive(request(CREATE_TOPICS, 7, topics=topics, validate_only=False))
    (described,) = broker.receive(request(METADATA, 9, topics=None))

    told = decoded(created.answer, CREATE_TOPICS, 7).topics
    assert [(one.name, one.error_code, one.num_partitions) for one in told] == [
        ("a", ErrorCode.none, 3),
        ("bad", ErrorCode.policy_violation, -1),
    ]
    assert [outcome.partitions for outcome in created.outcomes] == [3, 0]
    there = decoded(described.answer, METADATA, 9).topics
    assert [(one.name, len(one.partitions)) for one in there] == [("a", 3)]


@pytest.mark.parametrize("allowed", [True, False])
def test_the_default_partitions_are_told_where_that_is_allowed(allowed: bool) -> None:
    cluster = ScriptedCluster(default_partitions=6, tells_configs=allowed)
    row = {"resource_type": 4, "resource_name": "1", "configuration_keys": ("num.partitions",)}
    resources = parts(DESCRIBE_CONFIGS, 1, "request", "DescribeConfigsResource", row)

    (reply,) = ScriptedBroker(cluster).receive(request(DESCRIBE_CONFIGS, 1, resources=resources))

    (result,) = decoded(reply.answer, DESCRIBE_CONFIGS, 1).results
    assert [config.value for config in result.configs] == (["6"] if allowed else [])


def test_bare_tokens_follow_a_handshake_of_v0_until_the_login_is_complete() -> None:
    broker = ScriptedBroker()
    token = b"n,,n=alice,r=nonce"
    bare = len(token).to_bytes(4, "big") + token

    broker.answers(request(SASL_HANDSHAKE, 0, mechanism="SCRAM-SHA-256"))
    first, second = broker.answers(bare), broker.answers(bare)
    behind = broker.answers(request(HEARTBEAT, 4, correlation=9))

    assert (first[4:6], second[4:6]) == (b"r=", b"v=")
    assert behind[4:8] == (9).to_bytes(4, "big")


def test_a_login_within_requests_takes_plain_and_scram_and_fails_as_the_script_says() -> None:
    handshake = request(SASL_HANDSHAKE, 1, mechanism="PLAIN")
    authenticate = request(SASL_AUTHENTICATE, 2, auth_bytes=PLAIN)

    obliging = ScriptedBroker().receive(handshake + authenticate)[1]
    strict = ScriptedBroker(script=Strict()).receive(handshake + authenticate)[1]

    codes = [decoded(one.answer, SASL_AUTHENTICATE, 2).error_code for one in (obliging, strict)]
    assert codes == [ErrorCode.none, ErrorCode.sasl_authentication_failed]


def test_versions_are_offered() -> None:
    (reply,) = ScriptedBroker().receive(request(API_VERSIONS, 3))

    keys = [api.api_key for api in decoded(reply.answer, API_VERSIONS, 3).api_keys]
    assert METADATA in keys
