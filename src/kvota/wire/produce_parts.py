"""A Produce request without some of its partitions, and the answer that these get in the broker's place.

What goes on is put together from slices: no batch is decoded, and fields that nobody knows survive.
"""

from collections.abc import Sequence, Set
from struct import Struct
from typing import NamedTuple

from kvota.wire.apis import APIS, PRODUCE
from kvota.wire.encode import encode_count, encode_int32, encode_text
from kvota.wire.headers import (
    answer_body_offset,
    answer_header_version,
    encode_answer,
    is_flexible,
    with_size,
)
from kvota.wire.producer_ids import PARTITIONS_MAX, TOPIC_ID_FROM, Place, topic_of
from kvota.wire.scanner import Scanner
from kvota.wire.steps import StepCount, Steps
from kvota.wire.varint import Bytes, Frame

_APPEND_TIME_FROM, _START_OFFSET_FROM, _MESSAGE_FROM = 2, 5, 8
_THROTTLE_FROM = APIS[PRODUCE].throttle_from
_PARTITION_HEAD = Struct(">ihq")  # number, error code, base offset
_INT64 = Struct(">q").pack
# The least that a partition takes, and a topic: in a request, and in an answer.
_ASKED_BYTES_MIN, _ANSWERED_BYTES_MIN, _TOPIC_BYTES_MIN = 5, 14, 3
# As Kafka says that nothing was stored: no offset, no time.
_NONE = -1


class RefusedPartition(NamedTuple):
    """What a partition is answered that did not go on.

    Attributes:
        place: its topic and number, as ``BatchProducer`` has them.
        error_code: of Kafka's.
        message: for people, from v8 on.
    """

    place: Place
    error_code: int
    message: str


class PartitionResult(NamedTuple):
    """What the broker has answered for one partition, and where that stands."""

    place: Place
    error_code: int
    at: int
    end: int


class ProduceAnswer(NamedTuple):
    """A whole answer, scanned.

    Attributes:
        body_at: where its topics begin, with their count.
        topics: of each its name or id, its partitions, and its tags.
        topics_end: where the throttle time stands, if there is one.
    """

    body_at: int
    topics: Sequence[tuple[bytes, Sequence[PartitionResult], bytes]]
    topics_end: int


# ------------------------------------------------------------------ the request


def without_in_steps(
    frame: Bytes, body_at: int, version: int, left_out: Set[Place]
) -> Steps[bytes | None]:
    """Returns the request without these partitions; None: no other one is left.

    Args:
        frame: the request, size field included.
        body_at: where its body begins.
        version: of the request, 3 to 13.
        left_out: all partitions of these places, however often they are in it.

    Raises:
        ProtocolError: it is no such request.
    """
    flexible = is_flexible(PRODUCE, version)
    what = f"Produce v{version} request"
    scanner = Scanner(
        frame, body_at, len(frame), flexible=flexible, what=what, items_max=PARTITIONS_MAX
    )
    scanner.skip_text()  # transactional id
    scanner.skip(2 + 4)  # acks, timeout
    head = frame[: scanner.at]
    topics: list[Bytes] = []
    kept_topics = 0
    for _ in range(scanner.count(_TOPIC_BYTES_MIN)):
        topic_at = scanner.at
        topic = topic_of(scanner, version)
        name = frame[topic_at : scanner.at]
        kept: list[Bytes] = []
        for _ in range(scanner.count(_ASKED_BYTES_MIN)):
            at = scanner.at
            partition = scanner.int32()
            records_bytes = scanner.uvarint() - 1 if flexible else scanner.int32()
            scanner.skip(max(0, records_bytes))
            scanner.skip_tags()
            if (topic, partition) not in left_out:
                kept.append(frame[at : scanner.at])
            if scanner.is_step_done():
                yield None
        tags_at = scanner.at
        scanner.skip_tags()
        if kept:
            kept_topics += 1
            count = encode_count(len(kept), flexible=flexible)
            topics += name, count, *kept, frame[tags_at : scanner.at]
        if scanner.is_step_done():
            yield None
    tail_at = scanner.at
    scanner.skip_tags()
    scanner.finish()
    if not kept_topics:
        return None
    return with_size([head, encode_count(kept_topics, flexible=flexible), *topics, frame[tail_at:]])


# ------------------------------------------------------------------ the answer


def refusal_in_steps(
    correlation_id: int, version: int, refused: Sequence[RefusedPartition], throttle_ms: int
) -> Steps[bytes]:
    """Makes a whole answer of the gateway's own, for a request of which nothing goes on."""
    flexible = is_flexible(PRODUCE, version)
    topics = yield from _with_refused((), refused, version, b"")
    throttle = encode_int32(throttle_ms) if version >= _THROTTLE_FROM else b""
    body = b"".join((topics, throttle, b"\0" * flexible))
    return encode_answer(PRODUCE, version, correlation_id, body)


def scan_answer_in_steps(frame: Frame, version: int) -> Steps[ProduceAnswer]:
    """Reads a whole answer, a little at a time.

    Raises:
        ProtocolError: it is no such answer.
    """
    flexible = is_flexible(PRODUCE, version)
    what = f"Produce v{version} answer"
    header_version = answer_header_version(PRODUCE, version)
    body_at = answer_body_offset(frame, 0, len(frame), header_version)
    scanner = Scanner(frame, body_at or len(frame), len(frame), flexible=flexible, what=what)
    body_at = scanner.at
    topics = []
    for _ in range(scanner.count(_TOPIC_BYTES_MIN)):
        topic = topic_of(scanner, version)
        results = []
        for _ in range(scanner.count(_ANSWERED_BYTES_MIN)):
            results.append(_scan_partition(scanner, topic, version))
            if scanner.is_step_done():
                yield None
        tags_at = scanner.at
        scanner.skip_tags()
        topics.append((topic, results, bytes(frame[tags_at : scanner.at])))
        if scanner.is_step_done():
            yield None
    return ProduceAnswer(body_at, topics, scanner.at)


def merge_in_steps(
    frame: Frame, scanned: ProduceAnswer, version: int, refused: Sequence[RefusedPartition]
) -> Steps[bytes]:
    """Adds refused partitions to the broker's answer: to their topics, where these are in it."""
    topics = yield from _with_refused(scanned.topics, refused, version, frame)
    return with_size([frame[: scanned.body_at], topics, frame[scanned.topics_end :]])


def _scan_partition(scanner: Scanner, topic: bytes, version: int) -> PartitionResult:
    at = scanner.at
    partition, error_code = scanner.int32(), scanner.int16()
    times = (version >= _APPEND_TIME_FROM) + (version >= _START_OFFSET_FROM)
    scanner.skip(8 + 8 * times)
    if version >= _MESSAGE_FROM:
        for _ in range(scanner.count(4 + 1)):
            scanner.skip(4)
            scanner.skip_text()
            scanner.skip_tags()
        scanner.skip_text()
    scanner.skip_tags()
    return PartitionResult((topic, partition), error_code, at, scanner.at)


def _with_refused(
    topics: Sequence[tuple[bytes, Sequence[PartitionResult], bytes]],
    refused: Sequence[RefusedPartition],
    version: int,
    frame: Bytes,
) -> Steps[bytearray]:
    """The topics of an answer, with their count."""
    flexible = is_flexible(PRODUCE, version)
    # Of each topic its partitions' number, and they themselves: put together as they come, or the last step were long.
    counts: dict[bytes, int] = {}
    encoded: dict[bytes, bytearray] = {}
    tags_of: dict[bytes, bytes] = {}
    work = StepCount()
    for topic, results, tags in topics:
        tags_of[topic] = tags
        rows = encoded.setdefault(topic, bytearray())
        counts[topic] = counts.get(topic, 0) + len(results)
        for result in results:
            rows += frame[result.at : result.end]
            if work.is_step_done():
                yield None
        if work.is_step_done():
            yield None
    for partition in refused:
        topic = partition.place[0]
        rows = encoded.setdefault(topic, bytearray())
        counts[topic] = counts.get(topic, 0) + 1
        rows += _encoded(partition, version)
        if work.is_step_done():
            yield None
    told = bytearray(encode_count(len(encoded), flexible=flexible))
    for topic, rows in encoded.items():
        is_id = version >= TOPIC_ID_FROM
        told += topic if is_id else encode_text(topic.decode(), flexible=flexible)
        told += encode_count(counts[topic], flexible=flexible)
        told += rows
        told += tags_of.get(topic, b"\0" * flexible)
        if work.is_step_done():
            yield None
    return told


def _encoded(refused: RefusedPartition, version: int) -> bytes:
    flexible = is_flexible(PRODUCE, version)
    parts = [_PARTITION_HEAD.pack(refused.place[1], refused.error_code, _NONE)]
    if version >= _APPEND_TIME_FROM:
        parts.append(_INT64(_NONE))
    if version >= _START_OFFSET_FROM:
        parts.append(_INT64(_NONE))
    if version >= _MESSAGE_FROM:
        parts.append(encode_count(0, flexible=flexible))
        parts.append(encode_text(refused.message, flexible=flexible))
    parts.append(b"\0" * flexible)
    return b"".join(parts)
