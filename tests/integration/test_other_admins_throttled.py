"""What the admin clients of others see of ``controller_mutation_rate``: at a broker, and at a gateway before it.

Java's has retries for it, kafka-python names the error, and aiokafka and librdkafka speak versions that cannot be refused.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka.admin import AdminClient as RdKafkaAdmin
from confluent_kafka.admin import NewTopic as RdNewTopic
from kafka import KafkaAdminClient
from kafka.errors import NodeNotReadyError, ThrottlingQuotaExceededError
from tests.integration.brokers_in_step import await_quotas_in_force
from tests.integration.java_admin import JavaAdmin
from tests.integration.tapped_gateway import tapped_gateway
from tests.integration.test_admin_throttled import KEY, listed

from kvota.admin import AdminClient, ClientQuotaAlteration, QuotaEntity
from kvota.localkafka import LocalKafka

# Eleven windows are kept: 22 partitions at once, and a topic of 24 leaves 2 missing, for a second.
RATE, AT_ONCE, SIZE = 2.0, 23, 24
# Where the next request has to come while some are missing: for twenty seconds, and for fifteen that are slept away.
BIG, BIG_OWED_MS = 62, 20_000
MIDDLE, MIDDLE_OWED_S = 52, 15
# What cannot be refused adds these, and then 6 are missing.
MORE, OWED_S = 4, 3.0
CLIENTS = ("java", "java-once", "kafka-python", "aiokafka", "librdkafka")
PLACES = ("broker", "gateway")
REFUSED = 89
Tried = Callable[[str, str], None]


@pytest.fixture(scope="module")
def servers(
    kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Where to ask, with the same quotas in force."""
    ids = {place: [f"{place}-{client}" for client in CLIENTS] for place in PLACES}
    quotas = "".join(
        f'[[quota]]\nclient_id = "{name}"\n{KEY} = {RATE}\n' for name in ids["gateway"]
    )
    with tapped_gateway(tmp_path_factory.mktemp("admins"), kafka, quotas=quotas) as tapped:
        asyncio.run(limit(kafka.bootstrap_servers, ids["broker"], RATE))
        await_quotas_in_force(kafka.nodes[0].address)
        yield {"broker": kafka.bootstrap_servers, "gateway": tapped.process.bootstrap_servers}
        asyncio.run(limit(kafka.bootstrap_servers, ids["broker"], None))


async def limit(bootstrap_servers: str, client_ids: list[str], rate: float | None) -> None:
    entities = {QuotaEntity(client_id=client_id) for client_id in client_ids}
    async with AdminClient(bootstrap_servers) as admin:
        alterations = [ClientQuotaAlteration(entity, {KEY: rate}) for entity in entities]
        (await admin.alter_client_quotas(alterations)).all()
        if rate is not None:
            async with asyncio.timeout(60):
                while not entities <= set(await admin.describe_client_quotas()):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)


async def topics(bootstrap_servers: str, known: set[str]) -> set[str]:
    """Those that there are, when the broker has heard of ``known``."""
    async with AdminClient(bootstrap_servers) as admin:
        return await listed(admin, *known)


def at_both(servers: dict[str, str], tried: Tried) -> None:
    """At the same time: each has a counter of its own."""
    with ThreadPoolExecutor(len(PLACES)) as threads:
        list(threads.map(lambda place: tried(place, servers[place]), PLACES))


def new_names(count: int) -> list[str]:
    return [f"other-{uuid4().hex[:8]}" for _ in range(count)]


def test_java_waits_as_its_bucket_allows_and_without_retry_is_told_how_long(
    servers: dict[str, str],
) -> None:
    def tried(place: str, address: str) -> None:
        with JavaAdmin(address, f"{place}-java") as java:
            took_s, said = java.carry_out(f"create other-{place} {AT_ONCE + 4}")
            assert int(said) == AT_ONCE + 4
            assert took_s >= 4 / RATE - 0.05
            java.carry_out(f"as {place}-java-once 0")
            _, said = java.carry_out(f"create-once other-once-{place} {BIG}")
        made, wait_ms = map(int, said.split())
        assert made == 1
        assert 0 < wait_ms <= BIG_OWED_MS

    at_both(servers, tried)


def once_it_asks(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """It may find that its pause is over only when it looks again."""
    end_s = time.monotonic() + 10
    while True:
        try:
            return ask()
        except NodeNotReadyError:
            assert time.monotonic() < end_s
            time.sleep(0.1)


def test_kafka_python_raises_the_error_and_does_not_tell_the_wait(servers: dict[str, str]) -> None:
    def tried(place: str, address: str) -> None:
        first, second, third = new_names(3)
        admin = KafkaAdminClient(bootstrap_servers=address, client_id=f"{place}-kafka-python")
        try:
            wanted = {
                name: {"num_partitions": MIDDLE, "replication_factor": 1}
                for name in (first, second)
            }
            with pytest.raises(ThrottlingQuotaExceededError):
                admin.create_topics(wanted)
            # It heeds what it was told, and does not wait by itself.
            again = {third: {"num_partitions": MIDDLE, "replication_factor": 1}}
            with pytest.raises(NodeNotReadyError, match="throttle"):
                admin.create_topics(again)
            time.sleep(MIDDLE_OWED_S)
            told = once_it_asks(lambda: admin.create_topics(again))
            assert [topic["error_code"] for topic in told["topics"]] == [0]
            told = admin.delete_topics([first], raise_errors=False)
            assert [topic["error_code"] for topic in told["topics"]] == [REFUSED]
            there = asyncio.run(topics(servers["broker"], {first, third}))
            assert second not in there
        finally:
            admin.close()

    at_both(servers, tried)


def test_aiokafka_is_never_refused_and_its_next_request_waits(servers: dict[str, str]) -> None:
    async def create(place: str, address: str) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=address, client_id=f"{place}-aiokafka")
        await admin.start()
        try:
            first, second = new_names(2)
            begin_s = time.monotonic()
            wanted = [AioNewTopic(first, SIZE, 1), AioNewTopic(second, MORE, 1)]
            answer = await admin.create_topics(wanted)
            assert {error[1] for error in answer.topic_errors} == {0}
            assert answer.throttle_time_ms <= OWED_S * 1000
            await admin.delete_topics([second])
            assert time.monotonic() - begin_s >= OWED_S - 0.05
        finally:
            await admin.close()

    at_both(servers, lambda place, address: asyncio.run(create(place, address)))


def test_librdkafka_is_never_refused_and_its_next_request_waits(servers: dict[str, str]) -> None:
    def tried(place: str, address: str) -> None:
        admin = RdKafkaAdmin({"bootstrap.servers": address, "client.id": f"{place}-librdkafka"})
        first, second = new_names(2)
        begin_s = time.monotonic()
        wanted = [RdNewTopic(first, SIZE, 1), RdNewTopic(second, MORE, 1)]
        for future in admin.create_topics(wanted, request_timeout=60).values():
            future.result()
        admin.delete_topics([second], request_timeout=60)[second].result()
        assert time.monotonic() - begin_s >= OWED_S - 0.05

    at_both(servers, tried)
