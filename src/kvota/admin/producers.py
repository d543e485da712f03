"""Which producers a partition knows, asked of its leader (KIP-664): each takes memory of every replica."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from kvota.admin.asking import Asker, Deadline
from kvota.admin.leaders import ask_leaders
from kvota.admin.operation import Operation, Outcome
from kvota.admin.results import Results
from kvota.admin.topics import TopicPartition
from kvota.client import Answer, Fields
from kvota.wire.apis import DESCRIBE_PRODUCERS


class ProducerState(NamedTuple):
    """What a broker knows of a producer that has written to a partition.

    Attributes:
        producer_id: as the cluster has given it.
        producer_epoch: of its last batch.
        last_sequence: of the last record of that batch; -1: it has written nothing but the end of a transaction.
        last_timestamp_ms: of that batch, Unix ms; -1: not known.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int


Found = Results[TopicPartition, tuple[ProducerState, ...]]


async def describe_producers(
    wanted: Collection[TopicPartition], asker: Asker, deadline: Deadline
) -> Found:
    """Ask the leaders, and those who follow them, until each partition has its result or time is up."""
    return await ask_leaders(wanted, _operation, asker, deadline)


def _operation(leader: int) -> Operation[TopicPartition, tuple[ProducerState, ...]]:
    return Operation(
        api_key=DESCRIBE_PRODUCERS,
        what=lambda key: f"the producers of {key.topic}-{key.partition} cannot be described",
        content=_content,
        outcomes=_outcomes,
        to=leader,
        is_asked_there_again=False,
    )


def _content(_version: int, keys: Sequence[TopicPartition], _left_ms: int) -> Fields:
    topics: dict[str, list[int]] = defaultdict(list)
    for key in keys:
        topics[key.topic].append(key.partition)
    return {
        "topics": [{"name": name, "partition_indexes": parts} for name, parts in topics.items()]
    }


def _outcomes(answer: Answer) -> Iterable[Outcome[TopicPartition, tuple[ProducerState, ...]]]:
    for topic in answer.topics:
        for partition in topic.partitions:
            key = TopicPartition(str(topic.name), int(partition.partition_index))
            states = tuple(_state(each) for each in partition.active_producers)
            message = partition.error_message
            yield Outcome(key, int(partition.error_code), message, states)


def _state(told: Answer) -> ProducerState:
    return ProducerState(
        producer_id=int(told.producer_id),
        producer_epoch=int(told.producer_epoch),
        last_sequence=int(told.last_sequence),
        last_timestamp_ms=int(told.last_timestamp),
    )
