"""What only the leader of a partition can tell: who leads is looked up, and whoever follows is asked next."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from kvota.admin import topic_looks
from kvota.admin.asking import AnswerLostError, Asker, Deadline, NotSentError
from kvota.admin.errors import ApiTimeoutError
from kvota.admin.operation import Operation, carry_out
from kvota.admin.results import Results, V
from kvota.admin.topics import TopicKey, TopicPartition
from kvota.client import BrokerError
from kvota.model.errors import KvotaError
from kvota.wire.error_code import ErrorCode

# The leader has just changed, or is about to: whoever is asked next may know.
_ELSEWHERE = frozenset({int(ErrorCode.LEADER_NOT_AVAILABLE), 6, 9, 74, 75, 76, 78})

# Said by a leader, not by who names it: it is behind, has not read of its new partition yet.
_NOT_YET = _ELSEWHERE | {int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}

What = Callable[[TopicPartition], str]


async def ask_leaders(
    wanted: Collection[TopicPartition],
    operation_of: Callable[[int], Operation[TopicPartition, V]],
    asker: Asker,
    deadline: Deadline,
) -> Results[TopicPartition, V]:
    """Ask the leaders, and those who follow them, until each partition has its result or time is up.

    Args:
        wanted: the partitions.
        operation_of: what is asked of a leader; not asked there again where it cannot be reached.
        asker: that asks.
        deadline: for all of it.

    Raises:
        UsageError: the brokers are too old for what is asked.
    """
    what = operation_of(-1).what
    values: dict[TopicPartition, V] = {}
    errors: dict[TopicPartition, KvotaError] = {}
    waiting = list(wanted)
    failures = 0
    while waiting:
        by_leader, errors_now = await _leaders(waiting, what, asker, deadline)
        again = {
            key: error for key, error in errors_now.items() if _is_elsewhere(error, _ELSEWHERE)
        }
        parts = await asyncio.gather(
            *(
                carry_out(operation_of(leader), keys, asker, deadline)
                for leader, keys in by_leader.items()
            ),
            return_exceptions=True,  # none is left behind
        )
        for part in parts:
            if isinstance(part, BaseException):
                raise part
            values |= part.values
            errors_now |= part.errors
            again |= {
                key: error for key, error in part.errors.items() if _is_elsewhere(error, _NOT_YET)
            }
        failures += 1
        if any(_is_lost(error) for error in again.values()):
            await asker.look_again(deadline)
        if again and not await deadline.sleep(asker.patience.backoff_s(failures, asker.chance)):
            again = {}
        errors |= {
            key: _last_error(what(key), error, deadline)
            for key, error in errors_now.items()
            if key not in again
        }
        waiting = list(again)
    return Results(
        {key: values[key] for key in wanted if key in values},
        {key: errors[key] for key in wanted if key in errors},
    )


async def _leaders(
    wanted: Collection[TopicPartition], what: What, asker: Asker, deadline: Deadline
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
            errors[key] = BrokerError(what(key), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif found[0].leader is None:
            errors[key] = BrokerError(what(key), ErrorCode.LEADER_NOT_AVAILABLE)
        else:
            by_leader[found[0].leader].append(key)
    return by_leader, errors


def _is_elsewhere(error: KvotaError, codes: Collection[int]) -> bool:
    return _is_lost(error) or (isinstance(error, BrokerError) and error.code in codes)


def _is_lost(error: KvotaError) -> bool:
    """Its leader could not be asked, or has not answered; another one may lead it by now."""
    return isinstance(error, NotSentError | AnswerLostError)


def _last_error(what: str, error: KvotaError, deadline: Deadline) -> KvotaError:
    if not _is_lost(error):
        return error
    return ApiTimeoutError(f"{what} within {deadline.timeout_ms / 1000:g} s: {error}")
