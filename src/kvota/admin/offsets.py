"""Offsets of partitions, asked of their leaders (KIP-396)."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from enum import IntEnum
from typing import NamedTuple

from kvota.admin import topic_looks
from kvota.admin.asking import AnswerLostError, Asker, Deadline, NotSentError
from kvota.admin.errors import ApiTimeoutError
from kvota.admin.operation import Operation, Outcome, carry_out
from kvota.admin.results import Results
from kvota.admin.topics import TopicKey, TopicPartition
from kvota.client import Answer, BrokerError, Fields, UsageError
from kvota.model.errors import KvotaError
from kvota.wire.apis import LIST_OFFSETS
from kvota.wire.error_code import ErrorCode

_ISOLATED_FROM, _TIMED_FROM = 2, 10
# The leader has just changed, or is about to: whoever is asked next may know.
_ELSEWHERE = frozenset({int(ErrorCode.LEADER_NOT_AVAILABLE), 6, 9, 74, 75, 76, 78})


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
    values: dict[TopicPartition, OffsetInfo] = {}
    errors: dict[TopicPartition, KvotaError] = {}
    waiting = dict(wanted)
    failures = 0
    while waiting:
        by_leader, errors_now = await _leaders(waiting, asker, deadline)
        operations = ((_operation(leader, waiting), keys) for leader, keys in by_leader.items())
        parts = await asyncio.gather(
            *(carry_out(operation, keys, asker, deadline) for operation, keys in operations),
            return_exceptions=True,  # none is left behind
        )
        for part in parts:
            if isinstance(part, BaseException):
                raise part
            values |= part.values
            errors_now |= part.errors
        failures += 1
        again = {key: error for key, error in errors_now.items() if _is_elsewhere(error)}
        if any(_is_lost(error) for error in again.values()):
            await asker.look_again(deadline)
        if again and not await deadline.sleep(asker.patience.backoff_s(failures, asker.chance)):
            again = {}
        errors |= {
            key: _last_error(key, error, deadline)
            for key, error in errors_now.items()
            if key not in again
        }
        waiting = {key: waiting[key] for key in again}
    return Results(
        {key: values[key] for key in wanted if key in values},
        {key: errors[key] for key in wanted if key in errors},
    )


async def _leaders(
    wanted: Iterable[TopicPartition], asker: Asker, deadline: Deadline
) -> tuple[Mapping[int, Sequence[TopicPartition]], dict[TopicPartition, KvotaError]]:
    """Which partitions each broker leads, and what is wrong with the others."""
    names: dict[TopicKey, None] = dict.fromkeys(partition.topic for partition in wanted)
    topics = await carry_out(topic_looks.description_by_name(), names, asker, deadline)
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    errors: dict[TopicPartition, KvotaError] = {}
    for key in wanted:
        if key.topic in topics.errors:
            errors[key] = topics.errors[key.topic]
            continue
        found = [each for each in topics.values[key.topic].partitions if each.index == key[1]]
        if not found:
            errors[key] = BrokerError(_what(key), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif found[0].leader is None:
            errors[key] = BrokerError(_what(key), ErrorCode.LEADER_NOT_AVAILABLE)
        else:
            by_leader[found[0].leader].append(key)
    return by_leader, errors


def _is_elsewhere(error: KvotaError) -> bool:
    return _is_lost(error) or (isinstance(error, BrokerError) and error.code in _ELSEWHERE)


def _is_lost(error: KvotaError) -> bool:
    """Its leader could not be asked, or has not answered; another one may lead it by now."""
    return isinstance(error, NotSentError | AnswerLostError)


def _last_error(key: TopicPartition, error: KvotaError, deadline: Deadline) -> KvotaError:
    if not _is_lost(error):
        return error
    return ApiTimeoutError(f"{_what(key)} within {deadline.timeout_ms / 1000:g} s: {error}")


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
