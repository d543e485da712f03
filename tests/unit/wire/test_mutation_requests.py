"""Mutation requests, topic by topic, against kio's encoding."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvota.model.errors import ProtocolError
from kvota.testing.kafka_messages import RandomMessages, to_frame, versions
from kvota.wire import mutations
from kvota.wire.apis import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS

SEEDS = st.integers(0, 2**32)
CREATE = st.sampled_from(versions(CREATE_TOPICS))
DELETE = st.sampled_from(versions(DELETE_TOPICS))
PARTITIONS = st.sampled_from(versions(CREATE_PARTITIONS))
ANY = st.sampled_from(
    [
        (key, version)
        for key in (CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS)
        for version in versions(key)
    ]
)


def scanned(key: int, version: int, seed: int) -> tuple[Any, mutations.MutationRequest]:
    payload = RandomMessages(Random(seed)).payload(key, version, "request")
    frame = to_frame(payload, correlation_id=seed % 1000, client_id="ci-bot")
    return payload, mutations.scan_request(frame, key, version)


def milliseconds(payload: Any) -> int:
    return round(payload.timeout.total_seconds() * 1000)


@given(version=CREATE, seed=SEEDS)
@settings(deadline=None)
def test_creations_are_what_kio_wrote(version: int, seed: int) -> None:
    payload, request = scanned(CREATE_TOPICS, version, seed)

    assert [
        (t.name, t.topic_id, t.partitions, t.replication_factor, t.assignments)
        for t in request.topics
    ] == [
        (t.name, None, t.num_partitions, t.replication_factor, len(t.assignments))
        for t in payload.topics
    ]
    assert request.validate_only == payload.validate_only
    assert request.timeout_ms == milliseconds(payload)


@given(version=PARTITIONS, seed=SEEDS)
@settings(deadline=None)
def test_new_partitions_are_what_kio_wrote(version: int, seed: int) -> None:
    payload, request = scanned(CREATE_PARTITIONS, version, seed)

    assert [(t.name, t.partitions, t.assignments) for t in request.topics] == [
        (t.name, t.count, len(t.assignments or ())) for t in payload.topics
    ]
    assert request.validate_only == payload.validate_only
    assert request.timeout_ms == milliseconds(payload)


@given(version=DELETE.filter(lambda version: version < 6), seed=SEEDS)
@settings(deadline=None)
def test_deletions_are_what_kio_wrote(version: int, seed: int) -> None:
    payload, request = scanned(DELETE_TOPICS, version, seed)

    assert [(t.name, t.topic_id) for t in request.topics] == [
        (name, None) for name in payload.topic_names
    ]
    assert not request.validate_only
    assert request.timeout_ms == milliseconds(payload)


@given(seed=SEEDS)
@settings(deadline=None)
def test_deletions_by_id_are_what_kio_wrote(seed: int) -> None:
    payload, request = scanned(DELETE_TOPICS, 6, seed)

    zero = bytes(16)
    ids = [zero if t.topic_id is None else t.topic_id.bytes for t in payload.topics]
    assert [t.name for t in request.topics] == [t.name for t in payload.topics]
    assert [t.topic_id or zero for t in request.topics] == ids


@given(key_version=ANY, seed=SEEDS, data=st.data())
@settings(deadline=None, max_examples=200)
def test_a_request_for_fewer_topics_is_what_kio_would_write(
    key_version: tuple[int, int], seed: int, data: st.DataObject
) -> None:
    payload, request = scanned(*key_version, seed)
    indexes = data.draw(
        st.lists(st.sampled_from(range(len(request.topics))), unique=True)
        if request.topics
        else st.just([])
    )
    name = "topic_names" if hasattr(payload, "topic_names") else "topics"
    kept = tuple(getattr(payload, name)[index] for index in indexes)

    frame = mutations.subset(request, indexes)

    assert frame == to_frame(
        replace(payload, **{name: kept}), correlation_id=seed % 1000, client_id="ci-bot"
    )


@given(key_version=ANY, seed=SEEDS)
@settings(deadline=None)
def test_a_request_for_all_topics_is_the_request_itself(
    key_version: tuple[int, int], seed: int
) -> None:
    _payload, request = scanned(*key_version, seed)

    assert mutations.subset(request, range(len(request.topics))) == request.frame


def test_the_asking_client_is_read() -> None:
    _payload, request = scanned(CREATE_TOPICS, 7, 12)

    assert (request.correlation_id, request.client_id) == (12, "ci-bot")
    assert (request.key, request.version) == (CREATE_TOPICS, 7)


def test_a_null_client_id_is_the_empty_one() -> None:
    payload = RandomMessages(Random(1)).payload(DELETE_TOPICS, 3, "request")

    request = mutations.scan_request(to_frame(payload, client_id=None), DELETE_TOPICS, 3)

    assert request.client_id == ""


@pytest.mark.parametrize("version", [0, 1])
def test_the_first_versions_are_read_too(version: int) -> None:
    topic = b"\0\x01t" + b"\0\0\0\x06" + b"\0\x03" + b"\0\0\0\0" * 2
    flag = b"\x01" * version
    body = (
        b"\0\x13"
        + bytes((0, version))
        + b"\0\0\0\x05"
        + b"\xff\xff"
        + b"\0\0\0\x01"
        + topic
        + b"\0\0\x75\x30"
        + flag
    )

    request = mutations.scan_request(len(body).to_bytes(4, "big") + body, CREATE_TOPICS, version)

    assert [(t.name, t.partitions, t.replication_factor) for t in request.topics] == [("t", 6, 3)]
    assert (request.timeout_ms, request.validate_only) == (30_000, version == 1)


def test_unknown_tags_of_topic_and_request_survive_in_a_smaller_request() -> None:
    topics = [b"\x02" + name + bytes(16) + b"\x01\x07\x02zz" for name in (b"a", b"b")]
    head = b"\0\x14\0\x06" + b"\0\0\0\x05" + b"\0\x01c" + b"\0"
    tail = b"\0\0\x75\x30" + b"\x01\x63\x01y"
    frame = sized(head + b"\x03" + topics[0] + topics[1] + tail)
    request = mutations.scan_request(frame, DELETE_TOPICS, 6)

    assert mutations.subset(request, [1]) == sized(head + b"\x02" + topics[1] + tail)


def sized(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def deletion(count: bytes, rest: bytes = b"\0\0\0\0") -> bytes:
    return sized(b"\0\x14\0\x03" + b"\0\0\0\x05" + b"\xff\xff" + count + rest)


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        (b"\0\0\0\x04abcd", "are too few for a header"),
        (deletion(b"\xff\xff\xff\xff"), "-1 topics"),
        (deletion(b"\x7f\xff\xff\xff"), "2147483647 items"),
        (deletion(b"\0\0\0\0", b"\0\0\0\0x"), "1 bytes behind"),
        (deletion(b"\0\0\0\x01", b"\0\x05ab"), "a field of 5 bytes"),
    ],
)
def test_what_is_no_request_is_refused_with_a_reason(frame: bytes, problem: str) -> None:
    with pytest.raises(ProtocolError, match=problem):
        mutations.scan_request(frame, DELETE_TOPICS, 3)


def test_more_topics_than_a_controller_takes_are_refused_before_they_are_read() -> None:
    count = mutations.TOPICS_MAX + 1
    frame = deletion(count.to_bytes(4, "big"), b"\0\x01t" * count + b"\0\0\0\0")

    with pytest.raises(ProtocolError, match="20001 topics in one request"):
        mutations.scan_request(frame, DELETE_TOPICS, 3)


def test_more_settings_than_anyone_sends_are_refused_before_they_are_read() -> None:
    setting = b"\x01\x01\0"
    topic = b"\x02t" + bytes(4 + 2) + b"\x01" + b"\xc1\xda\x18" + setting * 400_000 + b"\0"
    head = b"\0\x13\0\x07" + b"\0\0\0\x05" + b"\xff\xff" + b"\0"
    frame = sized(head + b"\x02" + topic + b"\0\0\0\0" + b"\0" + b"\0")

    with pytest.raises(ProtocolError, match="more items than one message may have"):
        mutations.scan_request(frame, CREATE_TOPICS, 7)
