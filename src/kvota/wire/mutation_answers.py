"""Reads and merges the answers to CreateTopics, DeleteTopics and CreatePartitions.

Refused topics are added to the broker's answer, whose own bytes stay as they are but for the count,
the throttle time and the size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kvota.wire.apis import APIS, CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, NEVER
from kvota.wire.encode import encode_count, encode_int16, encode_int32, encode_text
from kvota.wire.headers import answer_scanner, encode_answer, is_flexible, with_size
from kvota.wire.mutation_requests import NO_TOPIC_ID
from kvota.wire.scanner import TOPIC_ID_BYTES, Scanner
from kvota.wire.steps import STEP_PARTS, Steps, at_once
from kvota.wire.varint import Frame

_ID_FROM = {CREATE_TOPICS: 7, DELETE_TOPICS: 6}
_MESSAGE_FROM = {CREATE_TOPICS: 1, DELETE_TOPICS: 5, CREATE_PARTITIONS: 0}
_DETAILS_FROM = {CREATE_TOPICS: 5}  # partitions, replication factor, configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResult:
    """The broker's answer for one topic."""

    name: str | None  # None where DeleteTopics v6 was asked by id and does not name the topic
    topic_id: bytes | None  # None: not in the answer
    error_code: int
    error_message: str | None
    partitions: int  # -1: not in the answer
    at: int  # its bytes in the frame
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationAnswer:
    """One answer, with the places of its topics in it."""

    throttle_ms: int  # 0 where the version has no such field
    throttle_at: int  # offset, -1 where there is none
    topics: tuple[TopicResult, ...]
    topics_at: int  # of the array's count
    topics_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One topic that the gateway refuses."""

    name: str | None
    topic_id: bytes | None = None
    error_code: int
    message: str | None = None


def scan_answer(frame: Frame, key: int, version: int) -> MutationAnswer:
    """Reads a whole answer frame, size field included.

    Raises:
        ProtocolError: it is no such answer.
    """
    return at_once(scan_answer_in_steps(frame, key, version))


def scan_answer_in_steps(frame: Frame, key: int, version: int) -> Steps[MutationAnswer]:
    """Reads a whole answer frame, a little at a time.

    Raises:
        ProtocolError: it is no such answer.
    """
    scanner = answer_scanner(frame, key, version)
    has_throttle = version >= APIS[key].throttle_from
    throttle_at = scanner.at if has_throttle else -1
    throttle_ms = scanner.int32() if has_throttle else 0
    topics_at = scanner.at
    topics = []
    for _ in range(scanner.count(3)):
        topics.append((yield from _scan_topic(scanner, key, version)))
        if scanner.is_step_done():
            yield
    topics_end = scanner.at
    scanner.skip_tags()
    scanner.finish()
    return MutationAnswer(
        throttle_ms=throttle_ms,
        throttle_at=throttle_at,
        topics=tuple(topics),
        topics_at=topics_at,
        topics_end=topics_end,
    )


def merge(
    frame: Frame, key: int, version: int, refusals: Sequence[Refusal], throttle_ms: int
) -> bytes:
    """Adds refused topics to the broker's answer frame, behind its own.

    The throttle time becomes the larger of the broker's and ours.

    Raises:
        ProtocolError: the frame is no such answer.
    """
    scanned = scan_answer(frame, key, version)
    return at_once(merge_in_steps(frame, scanned, key, version, refusals, throttle_ms))


def merge_in_steps(
    frame: Frame,
    scanned: MutationAnswer,
    key: int,
    version: int,
    refusals: Sequence[Refusal],
    throttle_ms: int,
) -> Steps[bytes]:
    """Adds refused topics to an answer that has been scanned, a little at a time."""
    refused = yield from _encode_refusals(refusals, key, version)
    head = bytearray(frame[: scanned.topics_at])
    if throttle_ms > scanned.throttle_ms and scanned.throttle_at >= 0:
        head[scanned.throttle_at : scanned.throttle_at + 4] = encode_int32(throttle_ms)
    flexible = is_flexible(key, version)
    first_at = scanned.topics[0].at if scanned.topics else scanned.topics_end
    return with_size(
        [
            head,
            encode_count(len(scanned.topics) + len(refusals), flexible=flexible),
            frame[first_at : scanned.topics_end],
            refused,
            frame[scanned.topics_end :],
        ]
    )


def answer(
    correlation_id: int, key: int, version: int, refusals: Sequence[Refusal], throttle_ms: int
) -> bytes:
    """Makes a whole answer frame of our own, for a request of which nothing goes upstream."""
    return at_once(answer_in_steps(correlation_id, key, version, refusals, throttle_ms))


def answer_in_steps(
    correlation_id: int, key: int, version: int, refusals: Sequence[Refusal], throttle_ms: int
) -> Steps[bytes]:
    """Makes such an answer, a little at a time."""
    refused = yield from _encode_refusals(refusals, key, version)
    flexible = is_flexible(key, version)
    body = b"".join(
        (
            encode_int32(throttle_ms) if version >= APIS[key].throttle_from else b"",
            encode_count(len(refusals), flexible=flexible),
            refused,
            b"\0" * flexible,
        )
    )
    return encode_answer(key, version, correlation_id, body)


def _scan_topic(scanner: Scanner, key: int, version: int) -> Steps[TopicResult]:
    at = scanner.at
    name = scanner.text()
    topic_id = scanner.take(TOPIC_ID_BYTES) if version >= _ID_FROM.get(key, NEVER) else None
    error_code = scanner.int16()
    message = scanner.text() if version >= _MESSAGE_FROM[key] else None
    partitions = -1
    if version >= _DETAILS_FROM.get(key, NEVER):
        partitions = scanner.int32()
        scanner.skip(2)  # replication factor
        for _ in range(scanner.count(6)):
            _skip_config(scanner)
            if scanner.is_step_done():
                yield
    scanner.skip_tags()
    return TopicResult(
        name=name,
        topic_id=None if topic_id == NO_TOPIC_ID else topic_id,
        error_code=error_code,
        error_message=message,
        partitions=partitions,
        at=at,
        end=scanner.at,
    )


def _skip_config(scanner: Scanner) -> None:
    scanner.skip_text()
    scanner.skip_text()
    scanner.skip(1 + 1 + 1)  # read only, source, sensitive
    scanner.skip_tags()


def _encode_refusals(refusals: Sequence[Refusal], key: int, version: int) -> Steps[bytes]:
    encoded = bytearray()
    for number, refusal in enumerate(refusals):
        encoded += _encode_refusal(refusal, key, version)
        if number % STEP_PARTS == STEP_PARTS - 1:
            yield
    return bytes(encoded)


def _encode_refusal(refusal: Refusal, key: int, version: int) -> bytes:
    flexible = is_flexible(key, version)
    parts = [encode_text(refusal.name, flexible=flexible)]
    if version >= _ID_FROM.get(key, NEVER):
        parts.append(refusal.topic_id or NO_TOPIC_ID)
    parts.append(encode_int16(refusal.error_code))
    if version >= _MESSAGE_FROM[key]:
        parts.append(encode_text(refusal.message, flexible=flexible))
    if version >= _DETAILS_FROM.get(key, NEVER):
        # As a broker answers for a topic that failed: no numbers, no configuration.
        parts += encode_int32(-1), encode_int16(-1), encode_count(0, flexible=flexible)
    parts.append(b"\0" * flexible)
    return b"".join(parts)
