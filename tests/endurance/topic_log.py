"""All records of a topic, asked of the brokers themselves."""

import time
from collections.abc import Sequence

from confluent_kafka import Consumer, TopicPartition

# So long nothing may come before the end of a partition.
_PATIENCE_S = 60.0


def read_log(
    bootstrap_servers: str, topic: str, partitions: int, *, is_committed: bool = False
) -> list[list[str]]:
    """The values of each partition in their order; ``is_committed``: only of committed transactions."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"log-of-{topic}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if is_committed else "read_uncommitted",
            # A log that has been cut must not look shorter than it is.
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    values: list[list[str]] = [[] for _ in range(partitions)]
    at_end: set[int] = set()
    patience_s = time.monotonic() + _PATIENCE_S
    while len(at_end) < partitions:
        for message in consumer.consume(10_000, 0.5):
            patience_s = time.monotonic() + _PATIENCE_S
            if message.error() is None:
                values[message.partition()].append(message.value().decode())
            elif message.error().name() == "_PARTITION_EOF":
                at_end.add(message.partition())
            else:
                raise AssertionError(message.error())
        assert time.monotonic() < patience_s, f"partitions {at_end} of {topic} have ended so far"
    consumer.close()
    return values


def all_of(values: Sequence[Sequence[str]]) -> list[str]:
    """The values of all partitions, one after the other."""
    return [value for partition in values for value in partition]
