"""Coordinators of consumer groups: each group's is found, and found again when it is another broker."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from kafka import KafkaConsumer
from kafka.structs import OffsetAndMetadata as Committed
from kafka.structs import TopicPartition as Part
from tests.integration.test_client_quotas import gateway

from kvota.admin import AdminClient, BrokerError, OffsetAndMetadata, TopicPartition
from kvota.client import Cluster, Coordinator, CoordinatorKind, Security, UnreachableError
from kvota.localkafka import LocalKafka
from kvota.wire.apis import INIT_PRODUCER_ID

TOPIC = "read-by-groups"
GROUPS = [f"group-{number}" for number in range(6)]
TRANSACTION = {
    "transactional_id": "a-transaction",
    "transaction_timeout": timedelta(seconds=60),
}


def commit(servers: str, group: str, offset: int) -> None:
    """Commit an offset of each of two partitions; nobody joins."""
    consumer = KafkaConsumer(bootstrap_servers=servers, group_id=group, enable_auto_commit=False)
    parts = [Part(TOPIC, index) for index in (0, 1)]
    consumer.assign(parts)
    consumer.commit({part: Committed(offset + part.partition, group, -1) for part in parts})
    consumer.close()


@pytest.fixture(scope="module")
def kafka3_with_topic(kafka3: LocalKafka) -> LocalKafka:
    """All three brokers know the topic: a coordinator takes no offset of one that it has not heard of."""
    kafka3.create_topic(TOPIC, partitions=2)
    return kafka3


def expected(group: str, offset: int) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        TopicPartition(TOPIC, index): OffsetAndMetadata(offset + index, -1, group)
        for index in (0, 1)
    }


def coordinators(admin: AdminClient) -> dict[Coordinator, int]:
    return admin._asker.cluster._coordinators


async def test_each_group_is_asked_for_at_its_own_coordinator(
    kafka3_with_topic: LocalKafka,
) -> None:
    servers = kafka3_with_topic.bootstrap_servers
    async with AdminClient(servers) as admin:
        for number, group in enumerate(GROUPS):
            await asyncio.to_thread(commit, servers, group, 10 * number)

        for number, group in enumerate(GROUPS):
            found = await admin.list_consumer_group_offsets(group)
            assert found == expected(group, 10 * number)
        assert len(set(coordinators(admin).values())) > 1, "they are not all at one broker"

        assert await admin.list_consumer_group_offsets("nobody-has-committed") == {}


async def test_who_is_the_coordinator_no_more_names_another(kafka3_with_topic: LocalKafka) -> None:
    servers = kafka3_with_topic.bootstrap_servers
    async with AdminClient(servers) as admin:
        await asyncio.to_thread(commit, servers, "moved", 7)
        assert await admin.list_consumer_group_offsets("moved") == expected("moved", 7)
        known = coordinators(admin)
        ((wanted, right),) = known.items()

        known[wanted] = right % 3 + 1

        assert await admin.list_consumer_group_offsets("moved") == expected("moved", 7)
        assert coordinators(admin) == {wanted: right}


async def test_through_a_gateway_and_on_older_brokers(
    kafka_3_9: LocalKafka, tmp_path: Path
) -> None:
    kafka_3_9.create_topic(TOPIC, partitions=2)
    with gateway(tmp_path, kafka_3_9.bootstrap_servers) as process:
        async with AdminClient(process.bootstrap_servers) as admin:
            await asyncio.to_thread(commit, kafka_3_9.bootstrap_servers, "through", 3)

            assert await admin.list_consumer_group_offsets("through") == expected("through", 3)


async def test_the_coordinator_of_a_transaction_is_asked(kafka3: LocalKafka) -> None:
    async with Cluster(kafka3.bootstrap_servers.split(",")) as cluster:
        wanted = Coordinator(CoordinatorKind.TRANSACTION, "a-transaction")
        async with asyncio.timeout(60):  # the brokers make their topic for it first
            code = -1
            while code:
                with suppress(UnreachableError):
                    answer = await cluster.ask(
                        INIT_PRODUCER_ID, TRANSACTION, to=wanted, timeout_s=30
                    )
                    code = int(answer.error_code)
                    assert code in {0, 14, 16}

        assert answer.producer_id >= 0


async def test_who_may_not_know_of_a_group_is_told_at_once(acl_kafka: LocalKafka) -> None:
    security = Security.plain("bob", "bob-secret")
    async with AdminClient(acl_kafka.sasl_bootstrap_servers, security=security) as admin:
        with pytest.raises(BrokerError) as refused:
            await admin.list_consumer_group_offsets("secret-group")

    assert refused.value.name == "group_authorization_failed"
