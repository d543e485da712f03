"""A whole cluster out of Metadata answers: all versions, what has changed, and little of it at a time."""

import struct
from collections.abc import Sequence
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from kvota.model.cluster_view import NO_LEADER, ClusterView
from kvota.model.errors import ProtocolError
from kvota.testing.frames import METADATA, answer, parts
from kvota.wire.cluster_reader import VERSIONS, ClusterReader
from kvota.wire.steps import at_once
from kvota.wire.varint import uvarint

ALL_VERSIONS = range(VERSIONS[0], VERSIONS[1] + 1)
ID = UUID(int=0x0123456789ABCDEF0123456789ABCDEF)


def metadata(
    version: int,
    topics: dict[str, Sequence[int]],
    *,
    racks: bool = True,
    errors: Sequence[str] = (),
) -> bytes:
    """An answer, without the size before it; leaders by partition, which come in reverse order."""
    rows = []
    for name, leaders in topics.items():
        partitions = [
            {
                "error_code": ErrorCode(0 if leader >= 0 else 5),
                "partition_index": index,
                "leader_id": leader,
                "replica_nodes": (1, 2, 3),
                "isr_nodes": (1,),
            }
            | ({"leader_epoch": 7} if version >= 7 else {})
            | ({"offline_replicas": (2, 3)} if version >= 5 else {})
            for index, leader in reversed(list(enumerate(leaders)))
        ]
        row: dict[str, object] = {
            "error_code": ErrorCode(29 if name in errors else 0),
            "name": name,
            "is_internal": name.startswith("__"),
            "partitions": parts(
                METADATA, version, "response", "MetadataResponsePartition", *partitions
            ),
        }
        if version >= 10:
            row["topic_id"] = ID
        if version >= 8:
            row["topic_authorized_operations"] = 0
        rows.append(row)
    brokers = [
        {
            "node_id": node_id,
            "host": f"broker-{node_id}",
            "port": 9092,
            "rack": f"r{node_id}" if racks else None,
        }
        for node_id in (1, 2, 3)
    ]
    fields: dict[str, object] = {
        "brokers": parts(METADATA, version, "response", "MetadataResponseBroker", *brokers),
        "topics": parts(METADATA, version, "response", "MetadataResponseTopic", *rows),
        "cluster_id": "the-cluster",
        "controller_id": 2,
    }
    return answer(METADATA, version, **fields)[4:]


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_topics_leaders_racks_and_ids_of_every_version(version: int) -> None:
    view = at_once(
        ClusterReader().read_in_steps(
            metadata(version, {"a": [1, 2, 3, -1], "__internal": [], "b": [2]}), version
        )
    )

    assert view.cluster_id == "the-cluster"
    assert {broker.node_id: (broker.address, broker.rack) for broker in view.brokers.values()} == {
        n: ((f"broker-{n}", 9092), f"r{n}") for n in (1, 2, 3)
    }
    assert {name: tuple(topic.leaders) for name, topic in view.topics.items()} == {
        "a": (1, 2, 3, NO_LEADER),
        "__internal": (),
        "b": (2,),
    }
    assert [topic.is_internal for topic in view.topics.values()] == [False, True, False]
    assert {topic.topic_id for topic in view.topics.values()} == {ID if version >= 10 else None}
    assert not view.is_stale


@pytest.mark.parametrize("version", [4, 9, 12])
def test_what_has_not_changed_is_the_same_object(version: int) -> None:
    reader = ClusterReader()
    first = at_once(reader.read_in_steps(metadata(version, {"a": [1], "b": [2]}), version))

    same = at_once(reader.read_in_steps(metadata(version, {"a": [1], "b": [2]}), version))
    moved = at_once(reader.read_in_steps(metadata(version, {"b": [3], "a": [1]}), version))
    racks = at_once(
        reader.read_in_steps(metadata(version, {"b": [3], "a": [1]}, racks=False), version)
    )
    gone = at_once(reader.read_in_steps(metadata(version, {"b": [3]}), version))

    assert same is first
    assert moved is not first
    assert moved.topics["a"] is first.topics["a"]
    assert tuple(moved.topics["b"].leaders) == (3,)
    assert racks.brokers[1].rack is None
    assert racks.topics["b"] is moved.topics["b"]
    assert list(gone.topics) == ["b"]


def test_another_order_of_the_same_is_the_same() -> None:
    reader = ClusterReader()
    first = at_once(reader.read_in_steps(metadata(12, {"a": [1], "b": [2]}), 12))

    assert at_once(reader.read_in_steps(metadata(12, {"b": [2], "a": [1]}), 12)) is first


def test_a_broker_that_speaks_another_version_is_read_anew() -> None:
    reader = ClusterReader()
    at_once(reader.read_in_steps(metadata(12, {"a": [1]}), 12))

    view = at_once(reader.read_in_steps(metadata(9, {"a": [1]}), 9))

    assert view.topics["a"].topic_id is None


def test_a_topic_with_an_error_is_none_until_it_has_none() -> None:
    reader = ClusterReader()
    names = {"a": [1], "b": [2]}

    views = [
        at_once(reader.read_in_steps(metadata(12, names, errors=errors), 12))
        for errors in (["b"], ["b"], [])
    ]

    assert [list(view.topics) for view in views] == [["a"], ["a"], ["a", "b"]]


@pytest.mark.parametrize("version", [4, 8, 9, 12])
def test_an_answer_that_ends_early_is_refused_and_what_was_known_stays(version: int) -> None:
    reader = ClusterReader()
    whole = metadata(version, {"a": [1, 2], "b": [3]})
    known = at_once(reader.read_in_steps(whole, version))
    other = metadata(version, {"a": [2, 2], "b": [3]})

    # What is behind the last topic is not read; it has no more than a few bytes.
    for end in range(5, len(other) - 8):
        with pytest.raises(ProtocolError):
            at_once(reader.read_in_steps(other[:end], version))

    assert at_once(reader.read_in_steps(whole, version)) is known


@pytest.mark.parametrize("byte", [0x00, 0x7F, 0xFF])
def test_bytes_that_are_wrong_anywhere_are_read_or_refused(byte: int) -> None:
    whole = bytearray(metadata(12, {"a": [1, 2], "b": [3]}))
    for at in range(4, len(whole)):
        wrong = bytes(whole[:at]) + bytes((byte,)) + bytes(whole[at + 1 :])
        try:
            view = at_once(ClusterReader().read_in_steps(wrong, 12))
        except ProtocolError:
            continue
        assert isinstance(view, ClusterView)


def large(topics: int, partitions: int, *, leader: int = 1) -> bytes:
    """Metadata v12 of a large cluster; every 100th topic has this leader."""
    lists = (uvarint(4) + struct.pack(">iii", 1, 2, 3)) * 2 + b"\x01\0"
    rows = [b"\0\0\0\1\0", bytes(4), b"\x01\x01", bytes(4), uvarint(topics + 1)]
    for topic in range(topics):
        name = f"topic-{topic:06d}".encode()
        rows += [b"\0\0", uvarint(len(name) + 1), name, bytes(16), b"\0", uvarint(partitions + 1)]
        of_topic = leader if topic % 100 == 0 else 1
        rows += [struct.pack(">hiii", 0, n, of_topic, 5) + lists for n in range(partitions)]
        rows.append(bytes(4) + b"\0")
    return b"".join([*rows, b"\0"])


@pytest.mark.parametrize(("topics", "partitions"), [(200, 50), (2, 5_000), (10_000, 1)])
def test_others_have_their_turn_after_every_few_hundred_partitions(
    topics: int, partitions: int
) -> None:
    reader = ClusterReader()
    steps = sum(1 for _ in reader.read_in_steps(large(topics, partitions), 12))
    assert steps >= 10_000 / 512

    # Of what is as it was only the topics are looked at, and nothing at all where all of it is.
    assert sum(1 for _ in reader.read_in_steps(large(topics, partitions), 12)) == 0
    again = sum(1 for _ in reader.read_in_steps(large(topics, partitions, leader=2), 12))
    assert again < steps or topics == 10_000
