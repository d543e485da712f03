"""Reads CreateTopics, DeleteTopics and CreatePartitions requests topic by topic.

A request is scanned into slices, never decoded and encoded again: a request for fewer topics is made
of the original's bytes, so that everything we do not know survives.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kvota.model.errors import ProtocolError
from kvota.wire.apis import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, name_of
from kvota.wire.encode import encode_count
from kvota.wire.headers import (
    REQUEST_HEAD,
    is_flexible,
    read_request_head,
    request_body_offset,
    request_header_version,
    request_scanner,
    with_size,
)
from kvota.wire.scanner import TOPIC_ID_BYTES, Scanner
from kvota.wire.steps import Steps, at_once
from kvota.wire.varint import Bytes

# Twice as many as KRaft takes new partitions in one request. A frame of 4 MiB has room for 400,000
# topics, which would take 400 MB while they are decided on.
TOPICS_MAX = 20_000
# Enough for 10,000 partitions with three replicas each, named one by one.
_ITEMS_MAX = 50_000

_VALIDATE_ONLY_FROM = {CREATE_TOPICS: 1, CREATE_PARTITIONS: 0}
_DELETE_BY_ID_FROM = 6
NO_TOPIC_ID = bytes(TOPIC_ID_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAsk:
    """The part of a request that is about one topic."""

    name: str | None  # None: by id
    topic_id: bytes | None  # None: by name
    # CreateTopics: how many (-1: the cluster's default, or as many as assignments);
    # CreatePartitions: how many there shall be in all; DeleteTopics: 0.
    partitions: int
    assignments: int  # how many partitions come with their replicas' places
    replication_factor: int  # CreateTopics; else 0
    at: int  # its bytes in the frame
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationRequest:
    """One request, with the places of its topics in it."""

    key: int
    version: int
    correlation_id: int
    client_id: str  # "" for null, as for quotas
    timeout_ms: int
    validate_only: bool
    topics: tuple[TopicAsk, ...]
    frame: bytes
    topics_at: int  # of the array's count
    topics_end: int


def scan_request(frame: bytes, key: int, version: int) -> MutationRequest:
    """Reads a whole request frame, size field included.

    Raises:
        ProtocolError: it is no such request, or asks for more than ``TOPICS_MAX`` topics.
    """
    return at_once(scan_request_in_steps(frame, key, version))


def scan_request_in_steps(frame: bytes, key: int, version: int) -> Steps[MutationRequest]:
    """Reads a whole request frame, a little at a time.

    Raises:
        ProtocolError: as ``scan_request``.
    """
    head = read_request_head(frame, key)
    scanner = request_scanner(frame, key, items_max=_ITEMS_MAX)
    topics = yield from _scan_topics(scanner, key, version)
    topics_end = scanner.at
    timeout_ms = scanner.int32()
    has_validate_only = version >= _VALIDATE_ONLY_FROM.get(key, version + 1)
    validate_only = scanner.boolean() if has_validate_only else False
    scanner.skip_tags()
    scanner.finish()
    return MutationRequest(
        key=key,
        version=version,
        correlation_id=head.correlation_id,
        client_id=head.client_id.decode(errors="replace"),
        timeout_ms=timeout_ms,
        validate_only=validate_only,
        topics=topics,
        frame=frame,
        topics_at=head.body_at,
        topics_end=topics_end,
    )


def announced_topics(head: Bytes, key: int) -> int:
    """Returns how many topics the request announces of which at least the head is here.

    Raises:
        ProtocolError: it does not fit the bytes, or is more than ``TOPICS_MAX``.
    """
    _size, _key, version, _, client_id_bytes = REQUEST_HEAD.unpack_from(head, 0)
    header_version = request_header_version(key, version)
    body_at = request_body_offset(head, 0, len(head), client_id_bytes, header_version)
    what = f"{name_of(key)} v{version} request"
    if body_at is None:
        msg = f"{what}: no topics within its first {len(head)} bytes"
        raise ProtocolError(msg)
    flexible = is_flexible(key, version)
    scanner = Scanner(head, body_at, len(head), flexible=flexible, what=what)
    return _topic_count(scanner, item_bytes_min=0)


def subset(request: MutationRequest, indexes: Iterable[int]) -> bytes:
    """Makes the request's frame with only these of its topics, in this order."""
    topics = [request.topics[index] for index in indexes]
    count = encode_count(len(topics), flexible=is_flexible(request.key, request.version))
    frame = request.frame
    slices = [frame[topic.at : topic.end] for topic in topics]
    return with_size([frame[: request.topics_at], count, *slices, frame[request.topics_end :]])


def _topic_count(scanner: Scanner, *, item_bytes_min: int) -> int:
    count = scanner.count(item_bytes_min)
    if not 0 <= count <= TOPICS_MAX:
        problem = f"{count} topics in one request; it takes 0 to {TOPICS_MAX}, send several"
        raise scanner.fault(problem)
    return count


def _scan_topics(scanner: Scanner, key: int, version: int) -> Steps[tuple[TopicAsk, ...]]:
    count = _topic_count(scanner, item_bytes_min=1)
    scan = _delete_by_id if key == DELETE_TOPICS and version >= _DELETE_BY_ID_FROM else _SCANS[key]
    topics = []
    for _ in range(count):
        topics.append((yield from scan(scanner)))
        if scanner.is_step_done():
            yield
    return tuple(topics)


def _create_topic(scanner: Scanner) -> Steps[TopicAsk]:
    at = scanner.at
    name = scanner.name()
    partitions = scanner.int32()
    replication_factor = scanner.int16()
    assignments = yield from _skip_assignments(scanner, index_bytes=4)
    for _ in range(scanner.count(2)):
        scanner.skip_text()  # configuration: key, value
        scanner.skip_text()
        scanner.skip_tags()
        if scanner.is_step_done():
            yield
    scanner.skip_tags()
    return TopicAsk(
        name=name,
        topic_id=None,
        partitions=partitions,
        assignments=assignments,
        replication_factor=replication_factor,
        at=at,
        end=scanner.at,
    )


def _create_partitions(scanner: Scanner) -> Steps[TopicAsk]:
    at = scanner.at
    name = scanner.name()
    partitions = scanner.int32()
    assignments = yield from _skip_assignments(scanner, index_bytes=0)
    scanner.skip_tags()
    return TopicAsk(
        name=name,
        topic_id=None,
        partitions=partitions,
        assignments=assignments,
        replication_factor=0,
        at=at,
        end=scanner.at,
    )


def _skip_assignments(scanner: Scanner, *, index_bytes: int) -> Steps[int]:
    """Steps over the list of replicas of each partition; returns how many there are."""
    assignments = scanner.count(index_bytes + 1)
    for _ in range(assignments):
        scanner.skip(index_bytes)  # the partition
        scanner.skip(4 * max(0, scanner.count(4)))  # brokers
        scanner.skip_tags()
        if scanner.is_step_done():
            yield
    return max(0, assignments)


def _delete_by_name(scanner: Scanner) -> Steps[TopicAsk]:
    yield from ()
    at = scanner.at
    return _deletion(scanner.name(), None, at, scanner.at)


def _delete_by_id(scanner: Scanner) -> Steps[TopicAsk]:
    yield from ()
    at = scanner.at
    name = scanner.text()
    topic_id = scanner.take(TOPIC_ID_BYTES)
    scanner.skip_tags()
    if name is not None:
        return _deletion(name, None if topic_id == NO_TOPIC_ID else topic_id, at, scanner.at)
    return _deletion(None, topic_id, at, scanner.at)


def _deletion(name: str | None, topic_id: bytes | None, at: int, end: int) -> TopicAsk:
    return TopicAsk(
        name=name,
        topic_id=topic_id,
        partitions=0,
        assignments=0,
        replication_factor=0,
        at=at,
        end=end,
    )


_SCANS: dict[int, Callable[[Scanner], Steps[TopicAsk]]] = {
    CREATE_TOPICS: _create_topic,
    DELETE_TOPICS: _delete_by_name,
    CREATE_PARTITIONS: _create_partitions,
}
