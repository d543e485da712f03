"""The admin client speaks to brokers as old as 2.1: a real one is asked in no newer version than that offered."""

import asyncio

import pytest

from kvota.admin import (
    AdminClient,
    AlterConfigOp,
    ClientQuotaAlteration,
    ConfigResource,
    ConfigResourceType,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    QuotaEntity,
    TopicPartition,
)
from kvota.client import BrokerConnection, UnsupportedVersionError, UsageError
from kvota.localkafka import LocalKafka
from kvota.wire import apis

# The highest versions of Kafka 2.1's, of what the admin client asks; it has none of the others.
OF_2_1 = {
    apis.LIST_OFFSETS: 4,
    apis.METADATA: 7,
    apis.FIND_COORDINATOR: 2,
    apis.SASL_HANDSHAKE: 1,
    apis.API_VERSIONS: 2,
    apis.CREATE_TOPICS: 3,
    apis.DELETE_TOPICS: 3,
    apis.DESCRIBE_CONFIGS: 2,
    apis.ALTER_CONFIGS: 1,
    35: 1,  # DescribeLogDirs
    apis.SASL_AUTHENTICATE: 0,
    apis.CREATE_PARTITIONS: 1,
}


@pytest.fixture
def old_kafka(kafka_3_9: LocalKafka, monkeypatch: pytest.MonkeyPatch) -> LocalKafka:
    """A broker that still answers in these versions, and seems to know no newer ones."""
    agree = BrokerConnection._agree_on_versions

    async def agree_as_2_1(connection: BrokerConnection) -> None:
        await agree(connection)
        connection._versions = {
            key: (connection._versions[key][0], highest) for key, highest in OF_2_1.items()
        }

    monkeypatch.setattr(BrokerConnection, "_agree_on_versions", agree_as_2_1)
    return kafka_3_9


async def test_what_a_broker_of_2_1_can_do_is_done(old_kafka: LocalKafka) -> None:
    topic = ConfigResource(ConfigResourceType.TOPIC, "as-in-2-1")
    async with AdminClient(old_kafka.bootstrap_servers) as admin:
        cluster = await admin.describe_cluster()
        assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [
            old_kafka.bootstrap_servers
        ]
        assert cluster.cluster_id
        assert cluster.controller_id == 1

        wanted = NewTopic(topic.name, 2, 1, configs={"retention.ms": "1000"})
        made = (await admin.create_topics([wanted])).all()[topic.name]
        assert (made.topic_id, made.num_partitions) == (None, None)
        async with asyncio.timeout(30):
            while topic.name not in await admin.list_topics():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        (await admin.create_partitions({topic.name: NewPartitions(3)})).all()
        async with asyncio.timeout(30):
            while await partitions(admin, topic.name) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        configs = (await admin.describe_configs([topic])).all()[topic]
        assert configs["retention.ms"].value == "1000"
        last = TopicPartition(topic.name, 2)
        assert (await admin.list_offsets({last: OffsetSpec.LATEST})).all()[last].offset == 0
        assert (await admin.describe_log_dirs([1])).all()[1]
        (await admin.delete_topics([topic.name])).all()


async def partitions(admin: AdminClient, name: str) -> int:
    return len((await admin.describe_topics([name])).all()[name].partitions)


async def test_what_it_cannot_do_is_said_and_nothing_is_changed(old_kafka: LocalKafka) -> None:
    topic = ConfigResource(ConfigResourceType.TOPIC, "none")
    quota = ClientQuotaAlteration(QuotaEntity(user="a"), {"producer_byte_rate": 1.0})
    async with AdminClient(old_kafka.bootstrap_servers) as admin:
        with pytest.raises(UnsupportedVersionError, match="does not offer it: alter_client_quotas"):
            await admin.alter_client_quotas([quota])
        refused = await admin.incremental_alter_configs({topic: [AlterConfigOp("a", "1")]})
        assert "does not offer it: incremental_alter_configs" in str(refused.exception(topic))
        with pytest.raises(UsageError):
            await admin.describe_user_scram_credentials()
