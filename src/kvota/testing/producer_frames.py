"""Produce requests of idempotent producers, and what their answers say."""

from collections.abc import Mapping
from struct import Struct
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from kvota.testing import frames
from kvota.testing.kafka_messages import part_type, payload_type

_HEAD = Struct(">qiibIhiqqqhii")


class Of(NamedTuple):
    """Who makes a batch.

    Attributes:
        producer_id: -1: nobody in particular.
        base_sequence: number of its first record.
        epoch: of the producer.
        records_bytes: how long the batch is behind its head.
    """

    producer_id: int
    base_sequence: int = 0
    epoch: int = 0
    records_bytes: int = 20


def batch(of: Of) -> bytes:
    """One batch of magic 2; what stands for its records nobody but a broker reads."""
    length = _HEAD.size - 12 + of.records_bytes
    head = _HEAD.pack(0, length, 0, 2, 0, 0, 0, 0, 0, of.producer_id, of.epoch, of.base_sequence, 1)
    return head + b"r" * of.records_bytes


def produce_of(
    *partitions: tuple[str, int, bytes | None],
    version: int = 9,
    correlation: int = 1,
    acks: int = -1,
    transactional_id: str | None = None,
    tags: bytes = b"\0",
) -> bytes:
    """A request with these topics, partitions and their records, in this order."""
    topics: dict[str, list[dict[str, object]]] = {}
    for topic, index, records in partitions:
        topics.setdefault(topic, []).append({"index": index, "records": records})
    encoded = [
        {
            **({"topic_id": frames.topic_id(name)} if version >= 13 else {"name": name}),
            "partition_data": frames.parts(
                frames.PRODUCE, version, "request", "PartitionProduceData", *of_topic
            ),
        }
        for name, of_topic in topics.items()
    ]
    return frames.request(
        frames.PRODUCE,
        version,
        correlation=correlation,
        tags=tags,
        acks=acks,
        transactional_id=transactional_id,
        topic_data=frames.parts(frames.PRODUCE, version, "request", "TopicProduceData", *encoded),
    )


def of_producer(of: Of, *, partition: int = 0, version: int = 9, correlation: int = 1) -> bytes:
    """A request with one batch."""
    return produce_of(("orders", partition, batch(of)), version=version, correlation=correlation)


def answer_to(
    request: bytes,
    *,
    error: int = 0,
    errors: Mapping[int, int] | None = None,
    throttle_ms: int = 0,
) -> bytes:
    """The broker's answer to a whole request: each partition with the same error, or with that of its number."""
    version = int.from_bytes(request[6:8], "big")
    correlation = int.from_bytes(request[8:12], "big")
    asked = frames.decoded(request, frames.PRODUCE, version, is_answer=False)
    topics = []
    for topic in asked.topic_data:
        rows = [
            _answered(version, row.index, (errors or {}).get(row.index, error))
            for row in topic.partition_data
        ]
        name = {"topic_id": topic.topic_id} if version >= 13 else {"name": topic.name}
        of_topic = frames.parts(
            frames.PRODUCE, version, "response", "PartitionProduceResponse", *rows
        )
        topics.append({**name, "partition_responses": of_topic})
    responses = frames.parts(frames.PRODUCE, version, "response", "TopicProduceResponse", *topics)
    fields: dict[str, Any] = {"responses": responses}
    if version >= 10:
        fields["node_endpoints"] = ()
    return frames.answer(
        frames.PRODUCE,
        version,
        correlation=correlation,
        throttle_ms=throttle_ms,
        **fields,
    )


def _answered(version: int, index: int, error: int) -> dict[str, object]:
    row: dict[str, object] = {
        "index": index,
        "error_code": ErrorCode(error),
        "base_offset": 3 if not error else -1,
        "log_append_time": None,
        "log_start_offset": 0,
        "record_errors": (),
        "error_message": None,
    }
    answer = payload_type(frames.PRODUCE, version, "response")
    if version >= 10:
        row["current_leader"] = part_type(answer, "LeaderIdAndEpoch")()
    known = part_type(answer, "PartitionProduceResponse").__dataclass_fields__
    return {name: value for name, value in row.items() if name in known}


def errors_of(answer: bytes, version: int = 9) -> Mapping[tuple[str, int], int]:
    """The error code of each partition, by topic (from v13 on the text of its id)."""
    decoded = frames.decoded(answer, frames.PRODUCE, version)
    return {
        (str(topic.topic_id if version >= 13 else topic.name), row.index): int(row.error_code)
        for topic in decoded.responses
        for row in topic.partition_responses
    }
