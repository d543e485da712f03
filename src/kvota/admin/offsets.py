"""Offsets of partitions, asked of their leaders (KIP-396)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from enum import IntEnum
from typing import NamedTuple

from kvota.admin.asking import Asker, Deadline
from kvota.admin.leaders import ask_leaders
from kvota.admin.operation import Operation, Outcome
from kvota.admin.results import Results
from kvota.admin.topics import TopicPartition
from kvota.client import Answer, Fields, UsageError
from kvota.wire.apis import LIST_OFFSETS

_ISOLATED_FROM, _TIMED_FROM = 2, 10


class OffsetSpec(IntEnum):
    """Which offset of a partition; a time in Unix milliseconds asks for the first record from then on.

    MAX_TIMESTAMP is the record with the newest time (Kafka 3.0).
    """

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3


_FIRST_VERSION = {int(OffsetSpec.MAX_TIMESTAMP): 7}


class OffsetInfo(NamedTuple):
    """An offset.

    Attributes:
        offset: -1: no record is that new.
        timestamp_ms: of the record that was asked for by time; else -1.
        leader_epoch: of the record; -1: not known.
    """

    offset: int
    timestamp_ms: int
    leader_epoch: int


Wanted = Mapping[TopicPartition, int]
Found = Results[TopicPartition, OffsetInfo]


async def list_offsets(wanted: Wanted, asker: Asker, deadline: Deadline) -> Found:
    """Ask the leaders, and those who follow them, until each partition has its result or time is up.

    Raises:
        UsageError: the brokers are too old for what is asked.
    """
    return await ask_leaders(wanted, lambda leader: _operation(leader, wanted), asker, deadline)


def _what(key: TopicPartition) -> str:
    return f"the offset of {key.topic}-{key.partition} cannot be listed"


def _operation(leader: int, wanted: Wanted) -> Operation[TopicPartition, OffsetInfo]:
    def content(version: int, keys: Sequence[TopicPartition], left_ms: int) -> Fields:
        topics: dict[str, list[Fields]] = defaultdict(list)
        for key in keys:
            timestamp = int(wanted[key])
            if version < _FIRST_VERSION.get(timestamp, 0):
                msg = f"the brokers are too old for {OffsetSpec(timestamp).name} (Kafka 3.0)"
                raise UsageError(msg)
            topics[key.topic].append({"partition_index": key.partition, "timestamp": timestamp})
        fields: dict[str, object] = {
            "replica_id": -1,
            "topics": [{"name": name, "partitions": parts} for name, parts in topics.items()],
        }
        if version >= _ISOLATED_FROM:
            fields["isolation_level"] = 0
        if version >= _TIMED_FROM:
            fields["timeout"] = timedelta(milliseconds=left_ms)
        return fields

    return Operation(
        api_key=LIST_OFFSETS,
        what=_what,
        content=content,
        outcomes=_outcomes,
        to=leader,
        is_asked_there_again=False,
    )


def _outcomes(answer: Answer) -> Iterable[Outcome[TopicPartition, OffsetInfo]]:
    for topic in answer.topics:
        for partition in topic.partitions:
            key = TopicPartition(str(topic.name), int(partition.partition_index))
            epoch = int(getattr(partition, "leader_epoch", -1))
            found = OffsetInfo(int(partition.offset), int(partition.timestamp), epoch)
            yield Outcome(key, int(partition.error_code), None, found)
