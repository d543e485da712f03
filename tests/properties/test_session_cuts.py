"""However a conversation is cut into chunks: the same bytes, answers and rows."""

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from kvota.testing.frames import (
    API_VERSIONS,
    CREATE_TOPICS,
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
)
from kvota.testing.script import Script
from kvota.testing.scripted_broker import ScriptedBroker
from kvota.testing.scripted_cluster import ScriptedCluster
from kvota.testing.stage import ALL_TYPES, BROKER, Cluster, Stage, quotas

ENDPOINTS = [(2, "broker-2.inside", 9092)]
ENDPOINTS_BYTES_MAX = 40  # at an answer's end
FETCH = 1
NO_ERROR = ErrorCode(0)


class Answering(Script):
    """Answers of one size, with the cluster's other node in each that may name it."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def fetched_bytes(self) -> int:
        return self._world.answer_bytes

    def fetched_partitions(self) -> int:
        return 3

    def named_nodes(self, key: int) -> tuple[int, ...]:
        return (2,) if self._world.endpoints else ()

    def produce_error(self) -> int:
        return ErrorCode.not_leader_or_follower.value if self._world.endpoints else 0


def broker_of(world: "World") -> ScriptedBroker:
    cluster = ScriptedCluster(
        brokers={1: BROKER, 2: ("broker-2.inside", 9092)},
        refused={"bad": ErrorCode.invalid_replication_factor.value},
    )
    return ScriptedBroker(cluster, Answering(world))


# ------------------------------------------------------------------ conversations


def _newer_api_versions(correlation: int) -> bytes:
    frame = request(API_VERSIONS, 0, correlation=correlation)
    return frame[:6] + b"\0\x09" + frame[8:]


def _creation(version: int, topics: list[tuple[str, int]]) -> bytes:
    rows = (
        {"name": name, "num_partitions": count, "replication_factor": 1, "assignments": (), "configs": ()}
        for name, count in topics
    )  # fmt: skip
    asked = parts(CREATE_TOPICS, version, "request", "CreatableTopic", *rows)
    return request(CREATE_TOPICS, version, topics=asked, validate_only=False)


TOPICS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "bad", "c" * 30]), st.integers(1, 60)), min_size=1, max_size=3
)  # fmt: skip
RECORDS = st.sampled_from([0, 100, 3_000, 16_000, 17_000, 90_000]).map(bytes)
REQUESTS = st.one_of(
    st.builds(
        produce,
        st.integers(3, 13),
        acks=st.sampled_from([0, 1, -1]),
        records=RECORDS,
        transactional_id=st.sampled_from([None, "t"]),
        client=st.sampled_from(["app", None, "ä" * 5]),
    ),
    st.builds(fetch, st.integers(4, 18)),
    st.builds(_creation, st.integers(2, 7), TOPICS),
    st.builds(lambda version: request(METADATA, version), st.integers(0, 13)),
    st.builds(lambda version: request(HEARTBEAT, version), st.integers(0, 4)),
    st.builds(lambda version: request(API_VERSIONS, version), st.integers(0, 4)),
    st.just(_newer_api_versions(1)),
)
PLAIN = b"\0alice\0secret"
LOGINS = st.sampled_from(
    [
        b"",
        request(SASL_HANDSHAKE, 0, mechanism="PLAIN") + len(PLAIN).to_bytes(4, "big") + PLAIN,
        request(SASL_HANDSHAKE, 1, mechanism="PLAIN")
        + request(SASL_AUTHENTICATE, 2, auth_bytes=PLAIN),
    ]
)


@dataclass(frozen=True)
class World:
    login: bytes
    requests: list[bytes]
    enforced: bool
    answer_bytes: int
    endpoints: bool


WORLDS = st.builds(
    World,
    login=LOGINS,
    requests=st.lists(REQUESTS, min_size=1, max_size=12),
    enforced=st.booleans(),
    answer_bytes=st.sampled_from([0, 50, 9_000, 50_000]),
    endpoints=st.booleans(),
)
Cut = Callable[[bytes], list[bytes]]


def converse(world: World, cut: Cut) -> tuple[object, ...]:
    """All the client sends, then all the broker answers, then a mute's end, until nothing is left."""
    stage = Stage(
        Cluster(
            quotas(PRODUCE=5_000, FETCH=20_000, CONTROLLER_MUTATION=5),
            enforced=ALL_TYPES if world.enforced else frozenset(),
        )
    )
    broker = broker_of(world)
    asked = stage.client(*cut(world.login))
    stage.broker(*cut(broker.answers(asked)))
    stage.client(*cut(b"".join(world.requests)))
    seen = len(asked)
    for _ in range(100):
        forwarded, seen = stage.to_broker[seen:], len(stage.to_broker)
        told = broker.answers(forwarded)
        stage.broker(*cut(told))
        if not told and not _comes_later(stage):
            break
    assert stage.machine.idle
    assert not stage.machine.pausing.reasons
    return (
        stage.to_broker,
        stage.to_client,
        [row.columns() for row in stage.cluster.rows],
        stage.mutes,
        stage.warnings,
    )


def _comes_later(stage: Stage) -> bool:
    """Time passes until something goes up; no longer than a question may take."""
    return any(stage.advance(20_000) for _ in range(50))


def whole(data: bytes) -> list[bytes]:
    return [data] if data else []


def cutter(data: st.DataObject) -> Cut:
    """Cuts by lengths that are drawn as they are needed; a few long runs, so that it ends."""

    def cut(whole_: bytes) -> list[bytes]:
        lengths = data.draw(
            st.lists(st.sampled_from([1, 2, 4, 7, 9, 13, 40, 999, 20_000, 150_000]), max_size=12)
        )
        pieces = []
        at = 0
        for length in lengths:
            if at < len(whole_):
                pieces.append(whole_[at : at + length])
                at += length
        return pieces + whole(whole_[at:])

    return cut


def _names_nodes_in_large_answers(world: World) -> bool:
    return world.endpoints and world.answer_bytes > 40_000


@settings(deadline=None, max_examples=150)
@given(world=WORLDS.filter(lambda world: not _names_nodes_in_large_answers(world)), data=st.data())
def test_a_conversation_cut_anywhere_gives_the_same_bytes_answers_and_rows(
    world: World, data: st.DataObject
) -> None:
    expected = converse(world, whole)

    assert converse(world, cutter(data)) == expected


@settings(deadline=None, max_examples=30)
@given(world=WORLDS, data=st.data())
def test_only_the_nodes_a_streamed_answer_names_depend_on_the_cuts(
    world: World, data: st.DataObject
) -> None:
    """A large answer that arrives whole has its addresses rewritten, a streamed one has none left."""
    large = World(world.login, world.requests, world.enforced, 50_000, endpoints=True)
    to_broker, to_client, *told = converse(large, whole)

    cut_to_broker, cut_to_client, *cut_told = converse(large, cutter(data))

    assert (cut_to_broker, cut_told) == (to_broker, told)
    assert isinstance(to_client, bytes)
    assert isinstance(cut_to_client, bytes)
    login = _login_answer_bytes(large)
    for key_version, answer_, cut_answer in zip(
        _keys_and_versions(large),
        split(to_client[login:]),
        split(cut_to_client[login:]),
        strict=True,
    ):
        if cut_answer != answer_:
            assert key_version[0] == FETCH
            assert answer_[4:].startswith(cut_answer[4:-ENDPOINTS_BYTES_MAX])
            assert b"inside" not in cut_answer


@settings(deadline=None, max_examples=20)
@given(world=WORLDS)
def test_a_conversation_byte_by_byte_gives_the_same_bytes_answers_and_rows(world: World) -> None:
    small = World(
        world.login,
        [frame for frame in world.requests if len(frame) < 20_000],
        world.enforced,
        min(world.answer_bytes, 50),
        world.endpoints,
    )

    one_by_one = converse(small, lambda data: [data[i : i + 1] for i in range(len(data))])

    assert one_by_one == converse(small, whole)


@settings(deadline=None, max_examples=150)
@given(world=WORLDS)
def test_every_request_is_answered_once_and_in_order(world: World) -> None:
    to_broker, to_client, *_ = converse(world, whole)

    asked = [frame[5] for frame in world.requests if not _is_without_answer(frame)]
    assert isinstance(to_client, bytes)
    assert isinstance(to_broker, bytes)
    answers = split(to_client[_login_answer_bytes(world) :])
    assert len(answers) == len(asked)
    for frame, key_version in zip(answers, _keys_and_versions(world), strict=True):
        decoded(frame, *key_version)
    assert b"inside" not in to_client


def _login_answer_bytes(world: World) -> int:
    if not world.login:
        return 0
    return len(broker_of(world).answers(world.login))


def _is_without_answer(frame: bytes) -> bool:
    return frame[5] == 0 and decoded(frame, PRODUCE, frame[7], is_answer=False).acks == 0


def _keys_and_versions(world: World) -> list[tuple[int, int]]:
    return [
        (frame[5], 0 if frame[5] == API_VERSIONS and frame[7] > 4 else frame[7])
        for frame in world.requests
        if not _is_without_answer(frame)
    ]


@settings(deadline=None, max_examples=150)
@given(world=WORLDS)
def test_in_shadow_mode_the_broker_and_the_client_see_each_other_unchanged(world: World) -> None:
    plain = World(world.login, world.requests, False, world.answer_bytes, endpoints=False)

    to_broker, _to_client, rows, mutes, _warnings = converse(plain, whole)

    assert isinstance(to_broker, bytes)
    assert _of_the_client(to_broker[len(world.login) :]) == [
        frame for frame in world.requests if frame != _newer_api_versions(1)
    ]
    assert mutes == []
    assert rows or not any(frame[5] in {0, 1} for frame in world.requests)


def _of_the_client(to_broker: bytes) -> list[bytes]:
    """The frames without our own questions, which name another client."""
    return [frame for frame in split(to_broker) if frame[12:19] != b"\0\5kvota"]
