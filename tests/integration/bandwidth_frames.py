"""Produce and Fetch requests that a broker takes, made once by an independent client's codec."""

import struct
import time

from kafka.record import MemoryRecordsBuilder


def produce_frame(
    topic: str, *, partition: int = 0, value_bytes: int = 100, records: int = 1, client_id: str
) -> bytes:
    """Produce v8 to one partition, with acks=1."""
    builder = MemoryRecordsBuilder(2, 0, records * (value_bytes + 100) + 1_000)
    for _ in range(records):
        builder.append(timestamp=int(time.time() * 1000), key=None, value=bytes(value_bytes))
    builder.close()
    batch = bytes(builder.buffer())
    name = topic.encode()
    body = (
        struct.pack(">hhii", -1, 1, 30_000, 1)
        + struct.pack(">h", len(name))
        + name
        + struct.pack(">iii", 1, partition, len(batch))
        + batch
    )
    return _framed(0, 8, body, client_id)


def produce_result(answer: bytes, topic: str) -> tuple[int, int]:
    """Error code and throttle time (ms) of a Produce v8 answer to one partition, without its size."""
    # correlation, number of topics, name, number of partitions, index
    at = 4 + 4 + 2 + len(topic.encode()) + 4 + 4
    return struct.unpack_from(">h", answer, at)[0], int.from_bytes(answer[-4:], "big")


def fetch_frame(topic: str, *, partition: int = 0, max_bytes: int, client_id: str) -> bytes:
    """Fetch v11 of one partition from its beginning, without a session."""
    name = topic.encode()
    body = (
        struct.pack(">iiii", -1, 500, 1, max_bytes)
        + b"\0"
        + struct.pack(">iii", 0, -1, 1)
        + struct.pack(">h", len(name))
        + name
        + struct.pack(">iiiqqi", 1, partition, -1, 0, -1, max_bytes)
        + struct.pack(">ih", 0, 0)
    )
    return _framed(1, 11, body, client_id)


def fetch_result(answer: bytes) -> tuple[int, int]:
    """Error code and throttle time (ms) of a Fetch v11 answer, without its size."""
    throttle_ms, error = struct.unpack_from(">ih", answer, 4)
    return error, throttle_ms


def _framed(key: int, version: int, body: bytes, client_id: str) -> bytes:
    name = client_id.encode()
    head = struct.pack(">hhih", key, version, 1, len(name)) + name
    return struct.pack(">i", len(head) + len(body)) + head + body
