"""Kafka requests for the benchmarks, made once by independent codecs (kafka-python, kio)."""

import datetime
import struct
import time
import uuid

from kafka.record import MemoryRecordsBuilder

from kvota.testing.frames import (
    FETCH,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    parts,
    request,
)

# The newest versions that Kafka 4.3 and its clients speak; topics have ids in them, no names.
PRODUCE_VERSION, FETCH_VERSION = 13, 18


def produce_frame(
    topic: str, value_bytes: int, *, acks: int = 1, client_id: str = "bench"
) -> bytes:
    """Produce v8 with one record."""
    records = _one_record(value_bytes)
    name = topic.encode()
    body = (
        struct.pack(">hhii", -1, acks, 30_000, 1)
        + struct.pack(">h", len(name))
        + name
        + struct.pack(">iii", 1, 0, len(records))
        + records
    )
    return _framed(0, 8, body, client_id)


def current_produce_frame(
    topic_id: uuid.UUID,
    value_bytes: int,
    *,
    client_id: str = "bench",
    producer_id: int | None = None,
) -> bytes:
    """The newest Produce with one record for partition 0; ``producer_id``: the first of an idempotent producer."""
    of = (PRODUCE, PRODUCE_VERSION, "request")
    partition = {"index": 0, "records": _one_record(value_bytes, producer_id)}
    topic = {
        "topic_id": topic_id,
        "partition_data": parts(*of, "PartitionProduceData", partition),
    }
    return request(
        *of[:2],
        client=client_id,
        transactional_id=None,
        acks=1 if producer_id is None else -1,
        timeout=datetime.timedelta(seconds=30),
        topic_data=parts(*of, "TopicProduceData", topic),
    )


def current_fetch_frame(topic_id: uuid.UUID, max_bytes: int) -> bytes:
    """The newest Fetch of partition 0 from its beginning, without a session."""
    of = (FETCH, FETCH_VERSION, "request")
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": max_bytes,
        "replica_directory_id": None,
        "high_watermark": 2**63 - 1,
    }
    topic = {"topic_id": topic_id, "partitions": parts(*of, "FetchPartition", partition)}
    return request(
        *of[:2],
        client="bench",
        cluster_id=None,
        replica_state=parts(*of, "ReplicaState", {"replica_id": -1, "replica_epoch": -1})[0],
        max_wait=datetime.timedelta(milliseconds=500),
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=parts(*of, "FetchTopic", topic),
        forgotten_topics_data=(),
        rack_id="",
    )


def login_frames(user: str, password: str) -> list[bytes]:
    """What a client sends to log in with PLAIN."""
    token = f"\0{user}\0{password}".encode()
    return [
        request(SASL_HANDSHAKE, 1, client="bench", mechanism="PLAIN"),
        request(SASL_AUTHENTICATE, 2, client="bench", auth_bytes=token),
    ]


def _one_record(value_bytes: int, producer_id: int | None = None) -> bytes:
    builder = MemoryRecordsBuilder(2, 0, value_bytes + 1_000)
    if producer_id is not None:
        builder.set_producer_state(producer_id, 0, 0, is_transactional=False)
    builder.append(timestamp=int(time.time() * 1000), key=None, value=bytes(value_bytes))
    builder.close()
    return bytes(builder.buffer())


def fetch_frame(topic: str, max_bytes: int) -> bytes:
    """Fetch v11 of partition 0 from its beginning."""
    name = topic.encode()
    body = (
        struct.pack(">iiii", -1, 500, 1, max_bytes)
        + b"\0"
        + struct.pack(">iii", 0, -1, 1)
        + struct.pack(">h", len(name))
        + name
        + struct.pack(">iiiqqi", 1, 0, -1, 0, -1, max_bytes)
        + struct.pack(">ih", 0, 0)
    )
    return _framed(1, 11, body)


def _framed(key: int, version: int, body: bytes, client_id: str = "bench") -> bytes:
    name = client_id.encode()
    head = struct.pack(">hhih", key, version, 1, len(name)) + name
    return struct.pack(">i", len(head) + len(body)) + head + body
