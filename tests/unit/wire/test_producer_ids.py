"""Producer ids read from Produce requests, against kio's encoding, and from hostile bytes."""

import io
import tracemalloc
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.records.schema import NewRecordBatch, Record
from kio.records.writers import write_new_batch
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i64

from kvota.model.errors import ProtocolError
from kvota.testing import frames
from kvota.testing.kafka_messages import body_offset, mutate, versions
from kvota.testing.producer_frames import Of, produce_of
from kvota.testing.producer_frames import batch as made_batch
from kvota.wire.produce_parts import scan_answer_in_steps, without_in_steps
from kvota.wire.producer_ids import (
    BATCHES_MAX,
    BATCHES_OF_PARTITION_MAX,
    PARTITIONS_MAX,
    BatchProducer,
    id_behind,
    only_batch_at,
    only_producer,
    producers,
    producers_in_steps,
)
from kvota.wire.varint import uvarint

VERSIONS = [version for version in versions(frames.PRODUCE) if version >= 3]
OLD = (0, 1, 2)
Topics = Sequence[tuple[str, Sequence[tuple[int, bytes | None]]]]


def batch(producer_id: int, epoch: int = 3, base_sequence: int = 17, records: int = 2) -> bytes:
    moment = TZAwareMicros.parse(datetime.fromtimestamp(1_700_000_000, UTC))
    made = [
        Record(
            attributes=i8(0),
            timestamp=moment,
            offset=i64(number),
            key=b"k",
            value=b"v" * 20,
            headers=(),
        )
        for number in range(records)
    ]
    encoded = io.BytesIO()
    write_new_batch(
        encoded,
        NewRecordBatch(
            producer_id=i64(producer_id),
            producer_epoch=i16(epoch),
            base_sequence=i32(base_sequence),
            records=tuple(made),
            attributes=i16(0),
        ),
    )
    return encoded.getvalue()


def topic_id(name: str) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_DNS, name)


def request(version: int, topics: Topics, *, transactional_id: str | None = None) -> bytes:
    encoded = [
        {
            **({"topic_id": topic_id(name)} if version >= 13 else {"name": name}),
            "partition_data": frames.parts(
                frames.PRODUCE,
                version,
                "request",
                "PartitionProduceData",
                *({"index": index, "records": records} for index, records in partitions),
            ),
        }
        for name, partitions in topics
    ]
    return frames.request(
        frames.PRODUCE,
        version,
        acks=-1,
        transactional_id=transactional_id,
        topic_data=frames.parts(frames.PRODUCE, version, "request", "TopicProduceData", *encoded),
    )


def read(frame: bytes, version: int) -> list[BatchProducer]:
    return producers(frame, body_offset(frame, frames.PRODUCE, version, "request"), version)


def one(records: bytes | None, version: int = 9) -> list[BatchProducer]:
    return read(request(version, [("orders", [(0, records)])]), version)


IDS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), -1, 0, 2**63 - 1]))
BATCHES = st.lists(
    st.tuples(IDS, st.integers(-1, 2**15 - 1), st.integers(-1, 2**31 - 1)), max_size=3
)
PARTITIONS = st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), BATCHES), max_size=4)
TOPICS = st.lists(st.tuples(st.sampled_from(["a", "müller", "x" * 249]), PARTITIONS), max_size=4)


@given(
    version=st.sampled_from(VERSIONS),
    topics=TOPICS,
    transactional_id=st.sampled_from([None, "", "tx", "t" * 300]),
)
@settings(deadline=None, max_examples=150)
def test_what_was_encoded_is_read(
    version: int,
    topics: list[tuple[str, list[tuple[int, list[tuple[int, int, int]]]]]],
    transactional_id: str | None,
) -> None:
    encoded = [
        (name, [(index, b"".join(batch(*of) for of in batches)) for index, batches in partitions])
        for name, partitions in topics
    ]
    frame = request(version, encoded, transactional_id=transactional_id)

    assert read(frame, version) == [
        (topic_id(name).bytes if version >= 13 else name.encode(), index, *of)
        for name, partitions in topics
        for index, batches in partitions
        for of in batches
    ]


@pytest.mark.parametrize("producer_id", [-(2**63), -1, 0, 1_000, 2**63 - 1])
def test_every_id_is_read_as_it_stands(producer_id: int) -> None:
    assert one(batch(producer_id, -1, -1)) == [(b"orders", 0, producer_id, -1, -1)]


@pytest.mark.parametrize("version", OLD)
def test_versions_before_3_have_no_ids(version: int) -> None:
    frame = frames.produce(version, records=batch(7))

    assert producers(frame, 17, version) == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("records", [None, b""])
def test_a_partition_without_records_has_no_id(version: int, records: bytes | None) -> None:
    assert one(records, version) == []


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_a_batch_of_another_magic_has_no_id(magic: int) -> None:
    other = bytearray(batch(7))
    other[16] = magic

    assert one(bytes(other)) == []
    assert [found.producer_id for found in one(batch(8) + bytes(other))] == [8]


@pytest.mark.parametrize("kept", range(61))
def test_a_batch_that_is_cut_in_its_head_has_no_id(kept: int) -> None:
    assert one(batch(7)[:kept]) == []
    assert [found.producer_id for found in one(batch(8) + batch(7)[:kept])] == [8]


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 10**6, 2**31 - 1])
def test_a_length_that_does_not_fit_ends_the_reading_of_its_partition(length: int) -> None:
    wrong = bytearray(batch(7))
    wrong[8:12] = length.to_bytes(4, "big", signed=True)
    frame = request(9, [("orders", [(0, bytes(wrong) + batch(9)), (1, batch(5))])])

    assert [(found.partition, found.producer_id) for found in read(frame, 9)] == [(1, 5)]


def test_a_cut_batch_has_no_id_as_a_broker_finds_none() -> None:
    assert one(batch(7, records=50)[:-1]) == []


def test_several_batches_follow_each_other_up_to_a_limit() -> None:
    few = b"".join(batch(number) for number in range(BATCHES_OF_PARTITION_MAX))

    assert [found.producer_id for found in one(few)] == list(range(BATCHES_OF_PARTITION_MAX))
    with pytest.raises(ProtocolError, match="more than 10 batches in one partition"):
        one(few + batch(99))


def test_a_request_with_more_batches_than_are_taken_is_refused() -> None:
    ten = batch(7, records=1) * 10
    partitions = BATCHES_MAX // 10
    frame = request(9, [("t", [(number, ten) for number in range(partitions)])])
    assert len(read(frame, 9)) == BATCHES_MAX
    frame = request(9, [("t", [(number, ten) for number in range(partitions + 1)])])
    with pytest.raises(ProtocolError, match="more than 100000 batches"):
        read(frame, 9)


@pytest.mark.parametrize("version", [3, 9, 13])
def test_ten_thousand_partitions_are_read_a_little_at_a_time(version: int) -> None:
    made = batch(7)
    frame = request(version, [("t", [(number, made) for number in range(10_000)])])
    body_at = body_offset(frame, frames.PRODUCE, version, "request")
    steps, breaks = producers_in_steps(frame, body_at, version), 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found = end.value
            break
        breaks += 1

    assert [of.partition for of in found] == list(range(10_000))
    assert breaks >= 10_000 // 256 - 1


@pytest.mark.parametrize("version", [3, 9, 13])
def test_topics_without_a_partition_are_read_a_little_at_a_time(version: int) -> None:
    count = 5_000
    frame = request(version, [(f"t{number}", []) for number in range(count)])
    body_at = body_offset(frame, frames.PRODUCE, version, "request")
    answer = b"\0" * 8  # size, correlation
    if version >= 9:
        answer += b"\0"  # tags
    answer += frame[topics_at(frame, body_at, version) :]

    for steps in (
        producers_in_steps(frame, body_at, version),
        without_in_steps(frame, body_at, version, {(b"other", 0)}),
        scan_answer_in_steps(answer, version),
    ):
        assert sum(1 for _ in steps) >= count // 256 - 1


def topics_at(frame: bytes, body_at: int, version: int) -> int:
    """Behind the transactional id, acks and timeout: an answer begins with topics of the same form, without partitions."""
    return body_at + (1 if version >= 9 else 2) + 2 + 4


def test_more_partitions_than_are_taken_are_refused_before_they_are_read() -> None:
    body = b"\0" + bytes(6) + uvarint(2) + uvarint(2) + b"t"
    body += uvarint(PARTITIONS_MAX + 1) + bytes(6) * PARTITIONS_MAX + b"\0\0"
    frame = frames.resized(bytes(4) + body)

    with pytest.raises(ProtocolError, match="more items than one message may have"):
        producers(frame, 4, 9)


@given(version=st.sampled_from(VERSIONS), seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=200)
def test_damaged_requests_are_read_or_refused_with_a_reason(version: int, seed: int) -> None:
    rng = Random(seed)
    topics = [("orders", [(0, batch(7)), (1, batch(8) + batch(9))]), ("other", [(2, None)])]
    whole = request(version, topics)
    body_at = body_offset(whole, frames.PRODUCE, version, "request")
    damaged = mutate(whole, rng)

    try:
        found = producers(damaged, min(body_at, len(damaged)), version)
    except ProtocolError as fault:
        assert str(fault)  # noqa: PT017
    else:
        assert len(found) <= len(damaged) // 61


@given(version=st.integers(3, 13), body=st.binary(max_size=200))
@settings(deadline=None, max_examples=200)
def test_any_bytes_are_read_or_refused_in_little_memory(version: int, body: bytes) -> None:
    frame = frames.resized(bytes(4) + body)
    tracemalloc.start()
    try:
        producers(frame, 4, version)
    except ProtocolError as fault:
        assert str(fault)  # noqa: PT017
    finally:
        _now, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert peak_bytes < 100_000


@given(
    version=st.sampled_from(VERSIONS),
    # Lengths of which each takes another number of bytes.
    padding=st.sampled_from([0, 1, 40, 70, 16_200, 16_290, 16_400]),
    producer_id=st.integers(-(2**63), 2**63 - 1),
    damage=st.lists(st.tuples(st.integers(0, 70), st.integers(0, 255)), max_size=3),
    cut=st.sampled_from([0, 0, 1, 30, 200]),
    behind=st.sampled_from([b"", b"\0" * 90]),
)
@settings(max_examples=400, deadline=None)
def test_what_a_remembered_front_stands_before_is_read_as_the_whole_request_is(
    version: int,
    padding: int,
    producer_id: int,
    damage: list[tuple[int, int]],
    cut: int,
    behind: bytes,
) -> None:
    """The shortest way: only what stands behind the partition's number is looked at, and it may be anything."""
    records = made_batch(Of(producer_id, records_bytes=padding))
    frame = bytearray(produce_of(("orders", 0, records), version=version))
    body_at = body_offset(bytes(frame), frames.PRODUCE, version, "request")
    name_end = only_batch_at(frame, body_at, version, len(frame))[1]
    front_end = name_end + (1 if version >= 9 else 4) + 4
    for at, byte in damage:
        frame[min(front_end + at, len(frame) - 1)] = byte
    frame_end = max(front_end, len(frame) - cut)
    data = bytes(frame[:frame_end]) + behind

    found = id_behind(data, front_end, frame_end, version >= 9)

    one = only_producer(data, body_at, version, frame_end)
    assert found == (None if one is None else one.producer_id)
