"""Kafka requests for the benchmarks, made once by an independent client's codec (kafka-python)."""

import struct
import time

from kafka.record import MemoryRecordsBuilder


def produce_frame(
    topic: str, value_bytes: int, *, acks: int = 1, client_id: str = "bench"
) -> bytes:
    """Produce v8 with one record."""
    builder = MemoryRecordsBuilder(2, 0, value_bytes + 1_000)
    builder.append(timestamp=int(time.time() * 1000), key=None, value=bytes(value_bytes))
    builder.close()
    records = builder.buffer()
    name = topic.encode()
    body = (
        struct.pack(">hhii", -1, acks, 30_000, 1)
        + struct.pack(">h", len(name))
        + name
        + struct.pack(">iii", 1, 0, len(records))
        + bytes(records)
    )
    return _framed(0, 8, body, client_id)


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
