"""Before its first charge the gateway finds out which broker a connection has reached, and asks no more."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from kvota.model.errors import ProtocolError
from kvota.session.topology import UNKNOWN_NODE, UNNAMED_NODE
from kvota.testing.frames import (
    API_VERSIONS,
    CREATE_TOPICS,
    DESCRIBE_CONFIGS,
    HEARTBEAT,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    answer,
    decoded,
    fetch,
    fetch_answer,
    metadata_answer,
    parts,
    produce,
    produce_answer,
    request,
    split,
    with_correlation,
)
from kvota.testing.stage import BROKER, Cluster, Stage, quotas
from kvota.wire.questions import OWN_CORRELATION

OTHER_NAME = ("bootstrap.example", 9092)
BROKERS = [(4, "broker-4.inside", 9092), (5, *BROKER)]


def strange(cluster: Cluster | None = None, dialled: tuple[str, int] = OTHER_NAME) -> Stage:
    """A connection of which nobody knows which broker it has reached."""
    cluster = cluster or Cluster(quotas(PRODUCE=10**9, FETCH=10**9, CONTROLLER_MUTATION=10))
    return Stage(cluster, node_id=UNKNOWN_NODE, dialled=dialled)


def is_question(frame: bytes) -> bool:
    if frame[5] != METADATA or frame[14:19] != b"kvota":
        return False
    return decoded(frame, METADATA, frame[7], is_answer=False).topics == ()


def told(brokers: list[tuple[int, str, int]] = BROKERS) -> bytes:
    return metadata_answer(4, correlation=OWN_CORRELATION, brokers=brokers)


@pytest.mark.parametrize("first", [produce(), fetch(), produce(acks=0)], ids=["P", "F", "acks=0"])
def test_the_first_charge_waits_until_the_broker_is_known_by_its_words(first: bytes) -> None:
    stage = strange(dialled=BROKER)

    question = stage.client(first)

    assert is_question(question)
    assert stage.broker(told()) == b""
    assert stage.to_broker == question + first
    assert stage.finds == 0
    assert stage.machine.caller.node_id == 5


def test_where_no_words_fit_what_addresses_mean_is_asked_and_the_row_has_that_node() -> None:
    stage = strange()
    stage.client(produce())
    stage.broker(told())

    assert (stage.finds, stage.to_broker.count(produce())) == (1, 0)
    assert stage.located(4) == produce()
    stage.broker(produce_answer())

    assert [row.memo.node_id for row in stage.cluster.rows] == [4]
    assert stage.client(produce(correlation=2)) == produce(correlation=2)


def test_connections_to_no_brokers_address_have_one_counter() -> None:
    cluster = Cluster(quotas(PRODUCE=10**6))
    for number, name in enumerate(["a.example", "b.example"]):
        stage = Stage(cluster, number=number, node_id=UNKNOWN_NODE, dialled=(name, 9092))
        stage.client(produce())
        stage.broker(told())
        stage.located(UNNAMED_NODE)
        stage.broker(produce_answer())

    assert [row.memo.node_id for row in cluster.rows] == [UNNAMED_NODE] * 2


def test_nothing_is_asked_where_the_broker_is_known_or_nothing_is_charged() -> None:
    known, idle = Stage(Cluster(quotas(PRODUCE=10**6))), strange()
    beat = request(HEARTBEAT, 4)

    assert known.client(produce()) == produce()
    assert idle.client(beat + request(METADATA, 12, correlation=2)) == beat + request(
        METADATA, 12, correlation=2
    )


def test_what_others_were_told_meanwhile_makes_the_question_needless() -> None:
    stage = strange(dialled=BROKER)
    stage.cluster.shared.topology.address_of(5, *BROKER)

    assert stage.client(produce()) == produce()
    assert stage.machine.caller.node_id == 5


def test_the_clients_own_metadata_makes_the_question_needless() -> None:
    stage = strange(dialled=BROKER)
    stage.client(request(METADATA, 12))
    stage.broker(metadata_answer(12, correlation=1, brokers=BROKERS))

    assert stage.client(produce()) == produce()


def test_what_was_sent_before_goes_up_before_the_question_and_what_comes_behind_waits() -> None:
    stage = strange()
    beat, behind = request(HEARTBEAT, 4, correlation=7), request(HEARTBEAT, 4, correlation=9)

    stage.client(beat + produce(correlation=8) + behind)

    first, question = split(stage.to_broker)
    assert first == beat
    assert is_question(question)
    stage.client(behind)
    assert split(stage.to_broker) == [beat, question]


def test_a_broker_that_cannot_be_told_ends_the_connection() -> None:
    stage = strange()
    stage.client(produce())

    with pytest.raises(ProtocolError, match=r"outside gateway\.node_ids"):
        stage.broker(told([(77, "far.inside", 9092)]))

    assert stage.to_client == b""
    stage.end()
    assert stage.cluster.rows == []


# ------------------------------------------------------------------ where brokers ask for logins


def where_others_have_logged_in() -> Cluster:
    cluster = Cluster(quotas(PRODUCE=10**9, FETCH=10**9, CONTROLLER_MUTATION=10))
    stage = Stage(cluster)
    log_in(stage, b"\0alice\0alice-secret")
    return cluster


def log_in(stage: Stage, token: bytes) -> None:
    stage.client(request(SASL_HANDSHAKE, 1, mechanism="PLAIN"))
    told = {"throttle_ms": None, "error_code": ErrorCode(0)}
    stage.broker(answer(SASL_HANDSHAKE, 1, mechanisms=(), **told))
    stage.client(request(SASL_AUTHENTICATE, 2, correlation=2, auth_bytes=token))
    named = answer(SASL_AUTHENTICATE, 2, correlation=2, error_message=None, auth_bytes=b"", **told)
    assert stage.broker(named) == named


@pytest.mark.parametrize(
    "first",
    [
        produce(),
        produce(acks=0),
        fetch(),
        request(CREATE_TOPICS, 7, topics=(), validate_only=False),
    ],
    ids=["P", "acks=0", "F", "M"],
)
def test_nothing_is_charged_to_who_has_not_logged_in_where_others_have(first: bytes) -> None:
    cluster = where_others_have_logged_in()
    stranger = Stage(cluster, number=2)
    versions = request(API_VERSIONS, 3)

    stranger.client(versions)
    stranger.broker(answer(API_VERSIONS, 3, error_code=ErrorCode(0), api_keys=()))
    stranger.client(first)

    question = stranger.to_broker[len(versions) :]
    assert is_question(question)
    stranger.end()  # as a broker ends it that wants a login
    assert cluster.rows == []


def test_whom_a_broker_answers_without_a_login_is_served() -> None:
    stage = Stage(where_others_have_logged_in(), number=2)

    question = stage.client(produce())
    stage.broker(told())

    assert stage.to_broker == question + produce()
    assert stage.client(produce(acks=0)) == produce(acks=0)


def test_who_has_logged_in_or_has_had_metadata_is_not_asked_about() -> None:
    cluster = where_others_have_logged_in()
    bob, told_before = Stage(cluster, number=2), Stage(cluster, number=3)
    log_in(bob, b"\0bob\0bob-secret")
    told_before.client(request(METADATA, 12))
    told_before.broker(metadata_answer(12, correlation=1, brokers=BROKERS))

    assert bob.client(produce()) == produce()
    assert told_before.client(produce()) == produce()


def test_a_mutation_asks_which_node_tells_its_default_partitions() -> None:
    stage = strange()
    topic = {"name": "a", "num_partitions": -1, "replication_factor": 1}
    frame = _create(topic)

    assert is_question(stage.client(frame))
    stage.broker(told())
    names = stage.located(4)
    stage.broker(
        metadata_answer(
            names[7],
            correlation=int.from_bytes(names[8:12], "big"),
            brokers=BROKERS,
            topics=[("a", 3, 0)],
        )
    )

    configs = split(stage.to_broker)[-1]
    asked = decoded(configs, DESCRIBE_CONFIGS, 1, is_answer=False).resources
    assert [resource.resource_name for resource in asked] == ["4"]


def _create(topic: dict[str, object]) -> bytes:
    rows = [{"assignments": (), "configs": (), **topic}]
    topics = parts(CREATE_TOPICS, 4, "request", "CreatableTopic", *rows)
    return request(CREATE_TOPICS, 4, topics=topics, validate_only=False)


def test_a_fetch_that_was_on_its_way_when_another_broker_was_reached_is_charged_as_planned() -> (
    None
):
    stage = Stage(Cluster(quotas(FETCH=10**6)))
    stage.client(fetch())
    stage.machine.redialled(OTHER_NAME, UNKNOWN_NODE)

    stage.broker(fetch_answer())

    assert [row.memo.node_id for row in stage.cluster.rows] == [1]
    assert is_question(stage.client(produce(correlation=2)))


@given(
    cuts=st.lists(st.integers(1, 400), max_size=8),
    kinds=st.lists(st.sampled_from("PFBZ"), min_size=1, max_size=6),
)
@settings(deadline=None, max_examples=200)
def test_however_it_is_cut_one_question_and_every_charge_on_the_node(
    cuts: list[int], kinds: list[str]
) -> None:
    made = {
        "P": (produce(), produce_answer()),
        "F": (fetch(), fetch_answer()),
        "B": (request(HEARTBEAT, 4), None),
        "Z": (produce(acks=0), b""),
    }
    stage = strange()
    sent = b"".join(made[kind][0] for kind in kinds)
    edges = sorted({0, len(sent), *(cut for cut in cuts if cut < len(sent))})
    for begin, end in pairwise(edges):
        stage.client(sent[begin:end])
    charged = [kind for kind in kinds if kind in "PFZ"]
    passed = kinds.index(charged[0]) if charged else len(kinds)
    before = [made["B"][0]] * passed

    if charged:
        *ahead, question = split(stage.to_broker)
        assert (ahead, is_question(question)) == (before, True)
        for _ in before:
            stage.broker(_beaten())
        stage.broker(told())
        stage.located(4)
        in_all = b"".join(before) + question + sent[len(b"".join(before)) :]
        assert stage.to_broker == in_all or kinds.count("F") > 1
        for kind in kinds[passed:]:  # one Fetch is under way at a time
            stage.broker(_beaten() if kind == "B" else made[kind][1] or b"")
        assert stage.to_broker == in_all
    assert [row.memo.node_id for row in stage.cluster.rows] == [4] * len(charged)


def _beaten() -> bytes:
    return with_correlation(answer(HEARTBEAT, 4), 1)
