"""Kafka frames for screenplays, encoded by kio; what a test does not name is fixed, not random."""

import datetime
import uuid
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode

from kvota.testing.kafka_messages import (
    Kind,
    RandomMessages,
    from_frame,
    part_type,
    payload_type,
    throttle,
    to_frame,
)
from kvota.wire.headers import skip_header_tags

PRODUCE, FETCH, METADATA, FIND_COORDINATOR = 0, 1, 3, 10
SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE, DESCRIBE_CLUSTER = 17, 18, 36, 60
CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS, DESCRIBE_CONFIGS = 19, 20, 37, 32
HEARTBEAT = 12

TOPIC_ID = uuid.UUID(int=7)
# One header tag nobody knows: number 5, two bytes.
HEADER_TAGS = b"\x01\x05\x02ab"


def request(
    key: int,
    version: int,
    *,
    correlation: int = 1,
    client: str | None = "app",
    tags: bytes = b"\0",
    **fields: object,
) -> bytes:
    """A request frame; ``tags`` are those of a flexible header."""
    payload = RandomMessages(Random(1)).payload(key, version, "request", **fields)
    frame = to_frame(payload, correlation_id=correlation, client_id=client)
    if not payload.__flexible__ or tags == b"\0":
        return frame
    at = 14 + len((client or "").encode())
    return resized(frame[:at] + tags + frame[at + 1 :])


def answer(
    key: int,
    version: int,
    *,
    correlation: int = 1,
    throttle_ms: int | None = 0,
    tags: bytes = b"\0",
    **fields: object,
) -> bytes:
    """An answer frame; ``tags`` are those of a flexible header; no throttle time for None."""
    if throttle_ms is not None:
        fields["throttle_time"] = throttle(throttle_ms)
    payload = RandomMessages(Random(1)).payload(key, version, "response", **fields)
    frame = to_frame(payload, correlation_id=correlation)
    if not payload.__flexible__ or key == API_VERSIONS or tags == b"\0":
        return frame
    return resized(frame[:8] + tags + frame[9:])


def with_correlation(frame: bytes, correlation: int) -> bytes:
    """The same answer to another request."""
    return frame[:4] + correlation.to_bytes(4, "big", signed=True) + frame[8:]


def resized(frame: bytes) -> bytes:
    """The frame with its size field mended."""
    return (len(frame) - 4).to_bytes(4, "big") + frame[4:]


def parts(
    key: int, version: int, kind: Kind, name: str, *rows: Mapping[str, object]
) -> tuple[Any, ...]:
    """Parts of a message, e.g. its topics."""
    part = part_type(payload_type(key, version, kind), name)
    messages = RandomMessages(Random(1))
    return tuple(messages.entity(part, **row) for row in rows)


# ------------------------------------------------------------------ produce


def produce(
    version: int = 9,
    *,
    acks: int = -1,
    correlation: int = 1,
    records: bytes = b"r" * 100,
    transactional_id: str | None = None,
    client: str | None = "app",
    tags: bytes = b"\0",
) -> bytes:
    """A Produce request to one partition; below v3 made by hand, as kio has none."""
    if version < 3:
        return _old_produce(version, acks, correlation, records, client)
    partition = parts(
        PRODUCE,
        version,
        "request",
        "PartitionProduceData",
        {"index": 0, "records": records},
    )
    topic = {"topic_id": TOPIC_ID} if version >= 13 else {"name": "orders"}
    return request(
        PRODUCE,
        version,
        correlation=correlation,
        client=client,
        tags=tags,
        acks=acks,
        transactional_id=transactional_id,
        topic_data=parts(
            PRODUCE, version, "request", "TopicProduceData", {**topic, "partition_data": partition}
        ),
    )


def _old_produce(
    version: int, acks: int, correlation: int, records: bytes, client: str | None
) -> bytes:
    name = client.encode() if client is not None else b""
    length = len(name) if client is not None else -1
    frame = (
        bytes(4)
        + PRODUCE.to_bytes(2, "big")
        + version.to_bytes(2, "big")
        + correlation.to_bytes(4, "big")
        + length.to_bytes(2, "big", signed=True)
        + name
        + acks.to_bytes(2, "big", signed=True)
        + (30_000).to_bytes(4, "big")
        + (1).to_bytes(4, "big")
        + b"\0\6orders"
        + (1).to_bytes(4, "big")
        + bytes(4)
        + len(records).to_bytes(4, "big")
        + records
    )
    return resized(frame)


def produce_answer(
    version: int = 9,
    *,
    correlation: int = 1,
    throttle_ms: int = 0,
    error: int = 0,
    endpoints: Sequence[tuple[int, str, int]] = (),
) -> bytes:
    """The answer to one partition; node endpoints from v10 on."""
    if version < 3:
        body = (1).to_bytes(4, "big") + b"\0\6orders" + (1).to_bytes(4, "big")
        body += bytes(4) + error.to_bytes(2, "big") + bytes(8 + 8 * (version >= 2))
        body += throttle_ms.to_bytes(4, "big") * (version >= 1)
        return resized(bytes(4) + correlation.to_bytes(4, "big") + body)
    partition: dict[str, object] = {
        "index": 0,
        "error_code": ErrorCode(error),
        "base_offset": 3,
        "log_append_time": None,
        "log_start_offset": 0,
        "record_errors": (),
        "error_message": None,
    }
    if version >= 10:
        leader = part_type(payload_type(PRODUCE, version, "response"), "LeaderIdAndEpoch")
        partition["current_leader"] = leader()
    names = set(_names(PRODUCE, version, "PartitionProduceResponse"))
    partition = {name: value for name, value in partition.items() if name in names}
    topic: dict[str, object] = {"topic_id": TOPIC_ID} if version >= 13 else {"name": "orders"}
    topic["partition_responses"] = parts(
        PRODUCE, version, "response", "PartitionProduceResponse", partition
    )
    fields: dict[str, Any] = {
        "responses": parts(PRODUCE, version, "response", "TopicProduceResponse", topic)
    }
    if version >= 10:
        fields["node_endpoints"] = node_endpoints(PRODUCE, version, endpoints)
    return answer(PRODUCE, version, correlation=correlation, throttle_ms=throttle_ms, **fields)


def node_endpoints(
    key: int, version: int, endpoints: Sequence[tuple[int, str, int]]
) -> tuple[Any, ...]:
    """Node endpoints of a Produce or Fetch answer."""
    return parts(
        key,
        version,
        "response",
        "NodeEndpoint",
        *(
            {"node_id": node_id, "host": host, "port": port, "rack": None}
            for node_id, host, port in endpoints
        ),
    )


def _names(key: int, version: int, name: str) -> list[str]:
    part = part_type(payload_type(key, version, "response"), name)
    return list(part.__dataclass_fields__)


# ------------------------------------------------------------------ fetch


def fetch(
    version: int = 12,
    *,
    correlation: int = 1,
    max_bytes: int = 1_000_000,
    min_bytes: int = 1,
    session: tuple[int, int] = (0, -1),
    client: str | None = "app",
    tags: bytes = b"\0",
) -> bytes:
    """A Fetch request without topics; ``session``: its id and epoch."""
    fields: dict[str, object] = {"topics": (), "min_bytes": min_bytes, "max_bytes": max_bytes}
    if version >= 7:
        fields |= {"session_id": session[0], "session_epoch": session[1]}
        fields["forgotten_topics_data"] = ()
    if version >= 11:
        fields["rack_id"] = ""
    return request(
        FETCH, version, correlation=correlation, client=client, tags=tags, max_wait=throttle(500),
        **fields,
    )  # fmt: skip


def fetch_answer(
    version: int = 12,
    *,
    correlation: int = 1,
    throttle_ms: int = 0,
    records: bytes = b"f" * 100,
    partitions: int = 1,
    endpoints: Sequence[tuple[int, str, int]] = (),
    session_id: int = 0,
    error_code: int = 0,
    tags: bytes = b"\0",
) -> bytes:
    """An answer with ``records`` in each partition."""
    row: dict[str, object] = {
        "error_code": ErrorCode(0),
        "aborted_transactions": None,
        "records": records,
    }
    rows = [{**row, "partition_index": index} for index in range(partitions)]
    part = part_type(payload_type(FETCH, version, "response"), "PartitionData")
    for name in ("diverging_epoch", "current_leader", "snapshot_id"):
        if name in part.__dataclass_fields__:
            rows = [{**row, name: part.__dataclass_fields__[name].default} for row in rows]
    topic: dict[str, object] = {"topic_id": TOPIC_ID} if version >= 13 else {"topic": "orders"}
    topic["partitions"] = parts(FETCH, version, "response", "PartitionData", *rows)
    fields: dict[str, object] = {
        "responses": parts(FETCH, version, "response", "FetchableTopicResponse", topic)
    }
    if version >= 7:
        fields |= {"error_code": ErrorCode(error_code), "session_id": session_id}
    if version >= 16:
        fields["node_endpoints"] = node_endpoints(FETCH, version, endpoints)
    return answer(
        FETCH, version, correlation=correlation, throttle_ms=throttle_ms, tags=tags, **fields
    )


# ------------------------------------------------------------------ the rest


def metadata_answer(
    version: int,
    *,
    correlation: int,
    brokers: Sequence[tuple[int, str, int]] = (),
    topics: Sequence[tuple[str | uuid.UUID, int, int]] = (),
) -> bytes:
    """Brokers, and topics as (name, error code, partitions); an id in place of a name is not known."""
    partition: dict[str, object] = {
        "error_code": ErrorCode(0),
        "leader_id": 1,
        "replica_nodes": (1,),
        "isr_nodes": (1,),
        "offline_replicas": (),
    }
    rows = []
    for name, error, partitions in topics:
        indexes = ({**partition, "partition_index": index} for index in range(partitions))
        parted = parts(METADATA, version, "response", "MetadataResponsePartition", *indexes)
        row: dict[str, object] = {
            "error_code": ErrorCode(error),
            "name": name,
            "is_internal": False,
            "partitions": parted,
        }
        if isinstance(name, uuid.UUID):
            row |= {"name": None if version >= 12 else "", "topic_id": name}
        elif version >= 10:
            row["topic_id"] = topic_id(name)
        rows.append(row)
    nodes = (
        {"node_id": node_id, "host": host, "port": port, "rack": None}
        for node_id, host, port in brokers
    )
    return answer(
        METADATA,
        version,
        correlation=correlation,
        brokers=parts(METADATA, version, "response", "MetadataResponseBroker", *nodes),
        topics=parts(METADATA, version, "response", "MetadataResponseTopic", *rows),
    )


def topic_id(name: str) -> uuid.UUID:
    """The id of a topic in these screenplays."""
    return uuid.uuid5(uuid.NAMESPACE_OID, name)


def decoded(frame: bytes, key: int, version: int, *, is_answer: bool = True) -> Any:
    """The kio message in a frame; refuses bytes behind it, and looks past a request's header tags."""
    if not is_answer and payload_type(key, version, "request").__flexible__:
        at = 14 + max(0, int.from_bytes(frame[12:14], "big", signed=True))
        behind = skip_header_tags(frame, at, len(frame))
        assert behind is not None, "a header without an end"
        frame = resized(frame[:at] + b"\0" + frame[behind:])
    return from_frame(frame, key, version, "response" if is_answer else "request")


def throttle_of(frame: bytes, key: int, version: int) -> int:
    """throttle_time_ms of an answer, read by kio."""
    throttle_time: datetime.timedelta = decoded(frame, key, version).throttle_time
    return round(throttle_time.total_seconds() * 1000)


def split(frames: bytes) -> list[bytes]:
    """Whole frames, one after the other."""
    found = []
    at = 0
    while at < len(frames):
        end = at + 4 + int.from_bytes(frames[at : at + 4], "big", signed=True)
        assert end <= len(frames), "half a frame at the end"
        found.append(frames[at:end])
        at = end
    return found
