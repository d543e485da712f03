"""Requests of transactions that name a producer id, of any version, and what their answers say."""

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from kvota.testing import frames
from kvota.testing.kafka_messages import RandomMessages, part_type, payload_type, versions

ADD_PARTITIONS, ADD_OFFSETS, COMMIT_OFFSETS = 24, 25, 28
# Of AddPartitionsToTxn: from here on a request has several transactions.
BATCHED_FROM = 4
APIS = [
    (key, version)
    for key in (ADD_PARTITIONS, ADD_OFFSETS, COMMIT_OFFSETS)
    for version in versions(key)
]
ONE_TRANSACTION = [
    (key, version) for key, version in APIS if key != ADD_PARTITIONS or version < BATCHED_FROM
]

Topics = Mapping[str, Sequence[int]]
TOPICS: Topics = {"orders": (0, 1, 7), "päid": (3,), "": ()}


class Transaction(NamedTuple):
    """One of those that a broker adds partitions to."""

    producer_id: int
    verify_only: bool = False
    topics: Topics = TOPICS


def of_transaction(
    key: int,
    version: int,
    producer_id: int,
    *,
    topics: Topics = TOPICS,
    correlation: int = 1,
    client: str | None = "app",
    tags: bytes = b"\0",
) -> bytes:
    """A request on behalf of one producer."""
    if key == ADD_PARTITIONS and version >= BATCHED_FROM:
        return of_transactions(
            [Transaction(producer_id, topics=topics)], version=version, correlation=correlation
        )
    prefix = "v3_and_below_" if key == ADD_PARTITIONS else ""
    fields: dict[str, object] = {
        f"{prefix}transactional_id": "txn",
        f"{prefix}producer_id": producer_id,
        f"{prefix}producer_epoch": 3,
    }
    if key != ADD_OFFSETS:
        fields[f"{prefix}topics"] = _topics(key, version, topics)
    return frames.request(key, version, correlation=correlation, client=client, tags=tags, **fields)


def of_transactions(
    transactions: Iterable[Transaction], *, version: int = 5, correlation: int = 1
) -> bytes:
    """An AddPartitionsToTxn as brokers send it."""
    rows = [
        {
            "transactional_id": f"txn-{one.producer_id}",
            "producer_id": one.producer_id,
            "producer_epoch": 3,
            "verify_only": one.verify_only,
            "topics": _topics(ADD_PARTITIONS, version, one.topics),
        }
        for one in transactions
    ]
    name = "AddPartitionsToTxnTransaction"
    encoded = frames.parts(ADD_PARTITIONS, version, "request", name, *rows)
    return frames.request(ADD_PARTITIONS, version, correlation=correlation, transactions=encoded)


def _topics(key: int, version: int, topics: Topics) -> tuple[object, ...]:
    name = "TxnOffsetCommitRequestTopic" if key == COMMIT_OFFSETS else "AddPartitionsToTxnTopic"
    of_topic = part_type(payload_type(key, version, "request"), name)
    messages = RandomMessages(Random(1))
    made = []
    for topic, numbers in topics.items():
        partitions: tuple[object, ...] = tuple(numbers)
        if key == COMMIT_OFFSETS:
            kind = part_type(
                payload_type(key, version, "request"), "TxnOffsetCommitRequestPartition"
            )
            partitions = tuple(messages.entity(kind, partition_index=number) for number in numbers)
        made.append(of_topic(name=topic, partitions=partitions))
    return tuple(made)


def errors_of(answer: bytes, key: int, version: int) -> dict[tuple[str, int], int]:
    """The error code of each partition, by topic; of ("", -1) the one of the whole request."""
    decoded = frames.decoded(answer, key, version)
    if key == ADD_OFFSETS:
        return {("", -1): int(decoded.error_code)}
    if key == COMMIT_OFFSETS:
        return {
            (str(topic.name), row.partition_index): int(row.error_code)
            for topic in decoded.topics
            for row in topic.partitions
        }
    if version >= BATCHED_FROM:
        assert decoded.results_by_transaction == ()
        return {("", -1): int(decoded.error_code)}
    return {
        (str(topic.name), row.partition_index): int(row.partition_error_code)
        for topic in decoded.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    }
