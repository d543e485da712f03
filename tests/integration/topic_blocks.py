"""What a topic has, block by block."""

import asyncio

import pyarrow as pa

from kvota.client import Cluster
from kvota.client.topic_log import TopicLog
from kvota.localkafka import LocalKafka
from kvota.record.event_block import read_block


def blocks_in(kafka: LocalKafka, topic: str) -> list[pa.Table]:
    """Every block of the topic, partition by partition, in its order."""
    return [read_block(value) for value in asyncio.run(_values(kafka, topic))]


async def _values(kafka: LocalKafka, topic: str) -> list[bytes | None]:
    values: list[bytes | None] = []
    async with Cluster([kafka.bootstrap_servers]) as cluster:
        log = TopicLog(topic, cluster)
        assert await log.find()
        for partition in log.partitions:
            offset, end = await log.bounds(partition)
            while offset < end:
                rows, offset = await log.read(partition, offset)
                values += [row.value for row in rows]
    return values


def seqs_in(kafka: LocalKafka, topic: str) -> list[int]:
    """The seq of every row, in the order in which they were appended."""
    return [seq for block in blocks_in(kafka, topic) for seq in block["seq"].to_pylist()]
