"""What a client does in the matrix, with aiokafka: see ``tests/integration/matrix/programs.py``."""

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, for_code
from asked import CAFILE, DENIED, NAME, PATIENCE_S, RECORDS, SECRET, SERVERS, USER, say

logging.disable(logging.CRITICAL)


def config(secret: str = SECRET) -> dict[str, object]:
    """How every client gets in."""
    return {
        "bootstrap_servers": SERVERS,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": USER,
        "sasl_plain_password": secret,
        "ssl_context": ssl.create_default_context(cafile=CAFILE),
        "client_id": "aiokafka",
    }


async def error_of(act: Awaitable[object]) -> str:
    """The name of the error with which this fails."""
    try:
        await asyncio.wait_for(act, PATIENCE_S)
    except KafkaError as error:
        return type(error).__name__
    return "none"


async def consume(topic: str, group: str, count: int, **more: object) -> str:
    """What a group gets, which commits then."""
    settings = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = AIOKafkaConsumer(topic, **config(), **settings, **more)
    values: list[int] = []
    end = time.monotonic() + PATIENCE_S
    try:
        await consumer.start()
        while len(values) < count and time.monotonic() < end:
            for batch in (await consumer.getmany(timeout_ms=500)).values():
                values += [int(one.value) for one in batch]
        await consumer.commit()
    finally:
        await consumer.stop()
    return f"{len(values)} records, sum {sum(values)}"


async def produce(topic: str, values: range, partitions: int) -> int:
    """Each is waited for; returns how many were acknowledged."""
    async with AIOKafkaProducer(**config(), enable_idempotence=True) as producer:
        sent = [
            await producer.send(topic, str(one).encode(), partition=one % partitions)
            for one in values
        ]
        return len(await asyncio.gather(*sent))


async def transactions(topic: str) -> None:
    """One is committed, one aborted."""
    async with AIOKafkaProducer(**config(), transactional_id=f"{NAME}-t") as producer:
        for numbers, end in (
            (range(10), producer.commit_transaction),
            (range(100, 110), producer.abort_transaction),
        ):
            await producer.begin_transaction()
            for number in numbers:
                await producer.send_and_wait(topic, str(number).encode(), partition=0)
            await end()
    say("transactions", await consume(topic, f"{NAME}-rc", 10, isolation_level="read_committed"))


async def described(admin: AIOKafkaAdminClient, partitions: int) -> list[tuple[int, list[int]]]:
    """The replicas of each partition; a broker learns of topics a moment after they are made."""
    end = time.monotonic() + PATIENCE_S
    while True:
        [found] = await admin.describe_topics([NAME])
        if len(found["partitions"]) == partitions or time.monotonic() > end:
            return sorted(
                (one["partition"], sorted(one["replicas"])) for one in found["partitions"]
            )
        await asyncio.sleep(0.05)


async def ends(topic: str, partitions: int) -> list[int]:
    """The end of each partition."""
    async with AIOKafkaConsumer(**config()) as consumer:
        found = await consumer.end_offsets([TopicPartition(topic, n) for n in range(partitions)])
    return [found[one] for one in sorted(found)]


async def main() -> None:
    """All steps."""
    admin = AIOKafkaAdminClient(**config())
    await admin.start()
    cluster = await admin.describe_cluster()
    nodes = sorted(one["node_id"] for one in cluster["brokers"])
    say("cluster", f"{cluster['cluster_id']}, nodes {nodes}")
    topics = [NewTopic(NAME, 3, 3), NewTopic(f"{NAME}-t", 1, 3)]
    await admin.create_topics(topics)
    again = (await admin.create_topics(topics[:1])).topic_errors[0][1]
    say("created", f"again: {for_code(again).__name__}")
    say("described", await described(admin, 3))
    say("produced", f"{await produce(NAME, range(RECORDS), 3)} acknowledged")
    say("ends", await ends(NAME, 3))
    say("classic", await consume(NAME, f"{NAME}-classic", RECORDS))
    committed = await admin.list_consumer_group_offsets(f"{NAME}-classic")
    say("committed", sorted((at.partition, one.offset) for at, one in committed.items()))
    await transactions(f"{NAME}-t")
    say("transactions' end", await ends(f"{NAME}-t", 1))
    say("denied", await error_of(produce(DENIED, range(1), 1)))
    say("denied group", await error_of(consume(NAME, "of-others", 1)))
    await admin.delete_topics([NAME, f"{NAME}-t"])
    gone = (await admin.delete_topics([NAME])).topic_error_codes[0][1]
    say("deleted", f"again: {for_code(gone).__name__}")
    await admin.close()
    wrong = AIOKafkaProducer(**config("wrong"))
    say("wrong password", await error_of(wrong.start()))
    await wrong.stop()


if __name__ == "__main__":
    asyncio.run(main())
