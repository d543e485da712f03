"""Fills a topic as a gateway does that records into it, and takes away from it as retention does."""

from datetime import timedelta

from tests.integration.test_record_topic import append, memo, recorder

from kvota.client import Cluster
from kvota.localkafka import LocalKafka

DELETE_RECORDS = 21
TO_THE_END = -1


def recorded(
    kafka: LocalKafka, topic: str, *, rows: int, gateway: str = "gw", lost: int = 0
) -> None:
    """One block for each 1,000 rows; their user is called as the gateway is. ``lost``: so many before them do not come."""
    one = recorder(kafka.bootstrap_servers, topic, gateway=gateway, buffer_rows=20_000)
    one.start()
    for _ in range(lost):
        one.next_seq()
    append(one, rows, of=memo(gateway))
    one.close()
    assert one.status().rows_written == rows


async def forget(kafka: LocalKafka, topic: str, offset: int = TO_THE_END) -> int:
    """Delete what stands before an offset of partition 0; returns the first one that is left."""
    async with Cluster([kafka.bootstrap_servers]) as cluster:
        leader = (await cluster.metadata([topic])).topics[topic].partitions[0].leader
        assert leader is not None
        part = [{"partition_index": 0, "offset": offset}]
        content = {
            "topics": [{"name": topic, "partitions": part}],
            "timeout": timedelta(seconds=60),
        }
        answer = await cluster.ask(DELETE_RECORDS, content, to=leader)
    ((deleted,),) = (of_topic.partitions for of_topic in answer.topics)
    assert int(deleted.error_code) == 0
    return int(deleted.low_watermark)
