"""The admin client on real clusters: what it says of each topic, broker and user is what there is."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from tests.integration.tapped_gateway import tapped_gateway

from kvota.admin import (
    AdminClient,
    AlterConfigOp,
    BrokerError,
    ClusterDescription,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    OpType,
    ScramMechanism,
    Security,
    Topic,
    TopicPartition,
    UsageError,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kvota.localkafka import LocalKafka

# A broker follows its controller after a moment; on a busy machine that may be long.
_KNOWN_S = 60


@contextmanager
def gateway_before(kafka: LocalKafka, folder: Path, *, sasl: bool = False) -> Iterator[str]:
    """It has quotas to keep, none of them for this client; no answer may name a broker's address."""
    quotas = '[[quota]]\nuser = "somebody"\nproducer_byte_rate = 1000\nproducer_ids_rate = 10\n'
    with tapped_gateway(folder, kafka, quotas=quotas, sasl=sasl) as tapped:
        yield tapped.bootstrap_servers
        tapped.assert_no_address_leaked()


@pytest.fixture(scope="module", params=["kafka", "kafka_3_9", "gateway"])
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Where to ask: two brokers, and a gateway before the first."""
    if request.param == "gateway":
        kafka: LocalKafka = request.getfixturevalue("kafka")
        with gateway_before(kafka, tmp_path_factory.mktemp("gateway")) as found:
            yield found
    else:
        yield request.getfixturevalue(request.param).bootstrap_servers


@pytest.fixture(scope="module", params=["cluster", "gateway"])
def servers3(
    request: pytest.FixtureRequest, kafka3: LocalKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Where to ask a cluster of three: itself, and a gateway before it."""
    if request.param == "gateway":
        with gateway_before(kafka3, tmp_path_factory.mktemp("gateway3")) as found:
            yield found
    else:
        yield kafka3.bootstrap_servers


@pytest.fixture(scope="module", params=["cluster", "gateway"])
def sasl_servers(
    request: pytest.FixtureRequest, sasl_kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Where to log in: at a broker, and at a gateway before it."""
    if request.param == "gateway":
        folder = tmp_path_factory.mktemp("sasl-gateway")
        with gateway_before(sasl_kafka, folder, sasl=True) as found:
            yield found
    else:
        yield sasl_kafka.sasl_bootstrap_servers


@pytest.fixture
async def admin(servers: str) -> AsyncIterator[AdminClient]:
    async with AdminClient(servers) as client:
        yield client


async def known(admin: AdminClient, name: str, partitions: int) -> Topic:
    """A broker follows its controller after a moment."""
    async with asyncio.timeout(_KNOWN_S):
        while True:
            topic = (await admin.describe_topics([name])).values.get(name)
            if topic is not None and len(topic.partitions) == partitions:
                return topic
            await asyncio.sleep(0.05)


async def test_a_topic_is_created_grown_described_and_deleted(admin: AdminClient) -> None:
    name = f"admin-{uuid4().hex[:8]}"
    made = await admin.create_topics([NewTopic(name, 2, 1, configs={"retention.ms": "3600000"})])

    created = made.result(name)
    assert (created.num_partitions, created.replication_factor) == (2, 1)
    assert created.configs is not None
    assert created.configs["retention.ms"] == "3600000"
    assert created.topic_id is not None

    (await admin.create_partitions({name: NewPartitions(5)})).all()
    topic = await known(admin, name, 5)
    assert (topic.topic_id, topic.is_internal) == (created.topic_id, False)
    assert [partition.index for partition in topic.partitions] == [0, 1, 2, 3, 4]
    assert {partition.leader for partition in topic.partitions} == {
        partition.replicas[0] for partition in topic.partitions
    }
    by_id = (await admin.describe_topics([created.topic_id])).result(created.topic_id)
    assert by_id == topic
    listed = await admin.list_topics()
    assert listed[name].topic_id == created.topic_id

    (await admin.delete_topics([created.topic_id])).all()
    async with asyncio.timeout(_KNOWN_S):
        while name in await admin.list_topics():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_each_topic_has_its_own_result(admin: AdminClient) -> None:
    good, bad, other = (f"admin-{uuid4().hex[:8]}" for _ in range(3))
    nobody = uuid4()
    made = await admin.create_topics(
        [NewTopic(good, 1, 1), NewTopic(bad, 1, 99), NewTopic("no/name", 1, 1), NewTopic(other)]
    )

    assert list(made.values) == [good, other]
    assert {name: getattr(error, "name", "") for name, error in made.errors.items()} == {
        bad: "invalid_replication_factor",
        "no/name": "invalid_topic_exception",
    }
    assert f'topic "{bad}" cannot be created' in str(made.exception(bad))
    await known(admin, good, 1)
    again = await admin.create_topics([NewTopic(good, 1, 1)])
    assert named(again.exception(good)) == "topic_already_exists"

    grown = await admin.create_partitions({good: NewPartitions(1), other: NewPartitions(3)})
    assert named(grown.exception(good)) == "invalid_partitions"
    assert grown.exception(other) is None

    described = await admin.describe_topics([good, bad, nobody])
    assert described.result(good).name == good
    assert named(described.exception(bad)) == "unknown_topic_or_partition"
    assert named(described.exception(nobody)) == "unknown_topic_id"

    deleted = await admin.delete_topics([good, other, bad, nobody])
    assert set(deleted.values) == {good, other}
    assert named(deleted.exception(bad)) == "unknown_topic_or_partition"
    assert named(deleted.exception(nobody)) == "unknown_topic_id"
    with pytest.raises(BrokerError, match=bad):
        deleted.all()


def named(error: Exception | None) -> str:
    return getattr(error, "name", "none")


async def test_what_is_only_validated_is_not_there(admin: AdminClient) -> None:
    name = f"admin-{uuid4().hex[:8]}"
    (await admin.create_topics([NewTopic(name, 3, 1)], validate_only=True)).all()
    (await admin.create_topics([NewTopic(name, 1, 1)])).all()
    await known(admin, name, 1)
    (await admin.create_partitions({name: NewPartitions(4)}, validate_only=True)).all()

    assert len((await admin.describe_topics([name])).result(name).partitions) == 1
    (await admin.delete_topics([name])).all()


async def test_what_is_asked_for_nothing_asks_nobody() -> None:
    admin = AdminClient("127.0.0.1:1")

    assert not (await admin.create_topics([])).all()
    assert not (await admin.delete_topics([])).all()
    assert not (await admin.alter_client_quotas([])).all()
    with pytest.raises(UsageError, match='"a" is to be created twice'):
        await admin.create_topics([NewTopic("a"), NewTopic("a")])


async def test_the_cluster_is_described_with_its_brokers(servers3: str, kafka3: LocalKafka) -> None:
    async with AdminClient(servers3) as admin:
        cluster = await admin.describe_cluster()

    assert [node.node_id for node in cluster.nodes] == [1, 2, 3]
    assert cluster.controller_id in {1, 2, 3}
    assert cluster.cluster_id
    found = {f"{node.host}:{node.port}" for node in cluster.nodes}
    brokers = set(kafka3.bootstrap_servers.split(","))
    if servers3 == kafka3.bootstrap_servers:
        assert found == brokers
    else:
        assert len(found) == len(brokers)
        assert not found & brokers


async def test_replicas_can_be_assigned(servers3: str) -> None:
    name = f"admin-{uuid4().hex[:8]}"
    async with AdminClient(servers3) as admin:
        assigned = NewTopic(name, replica_assignments={0: [2, 3], 1: [3, 1]})
        (await admin.create_topics([assigned])).all()
        (await admin.create_partitions({name: NewPartitions(3, [[1, 2]])})).all()
        topic = await known(admin, name, 3)
        (await admin.delete_topics([name])).all()

    assert [partition.replicas for partition in topic.partitions] == [(2, 3), (3, 1), (1, 2)]


async def test_settings_are_altered_one_by_one(servers3: str) -> None:
    name = f"admin-{uuid4().hex[:8]}"
    topic = ConfigResource(ConfigResourceType.TOPIC, name)
    second = ConfigResource(ConfigResourceType.BROKER, "2")
    everybody = ConfigResource(ConfigResourceType.BROKER, "")
    missing = ConfigResource(ConfigResourceType.TOPIC, "admin-nobody")
    async with AdminClient(servers3) as admin:
        (await admin.create_topics([NewTopic(name, 1, 3)])).all()
        await known(admin, name, 1)
        altered = await admin.incremental_alter_configs(
            {
                topic: [
                    AlterConfigOp("retention.ms", "1000"),
                    AlterConfigOp("cleanup.policy", "compact", OpType.APPEND),
                ],
                second: [AlterConfigOp("log.cleaner.threads", "2")],
                everybody: [AlterConfigOp("message.max.bytes", "1000012")],
                missing: [AlterConfigOp("retention.ms", "1")],
            }
        )
        assert list(altered.errors) == [missing]

        async with asyncio.timeout(_KNOWN_S):
            while True:
                found = await admin.describe_configs([topic, second, everybody, missing])
                if (
                    found.result(second)["log.cleaner.threads"].value == "2"
                    and found.result(topic)["retention.ms"].value == "1000"
                    and found.result(everybody)["message.max.bytes"].value == "1000012"
                ):
                    break
        retention = found.result(topic)["retention.ms"]
        assert (retention.value, retention.source) == ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
        assert found.result(topic)["cleanup.policy"].value == "delete,compact"
        assert found.result(second)["node.id"].value == "2"
        assert found.result(second)["node.id"].is_read_only
        assert found.result(everybody)["message.max.bytes"].value == "1000012"
        assert list(found.errors) == [missing]

        told = await admin.describe_configs(
            [topic], include_synonyms=True, include_documentation=True
        )
        entry = told.result(topic)["retention.ms"]
        assert [each.name for each in entry.synonyms] == ["retention.ms", "log.retention.ms"][:1]
        assert "retention" in str(entry.documentation)

        back = {
            topic: [AlterConfigOp("retention.ms", op_type=OpType.DELETE)],
            second: [AlterConfigOp("log.cleaner.threads", op_type=OpType.DELETE)],
            everybody: [AlterConfigOp("message.max.bytes", op_type=OpType.DELETE)],
        }
        (await admin.incremental_alter_configs(back)).all()
        (await admin.delete_topics([name])).all()


async def test_log_directories_tell_their_volumes_and_replicas(servers3: str) -> None:
    name = f"admin-{uuid4().hex[:8]}"
    async with AdminClient(servers3) as admin:
        (await admin.create_topics([NewTopic(name, 1, 3)])).all()
        await known(admin, name, 1)
        async with asyncio.timeout(_KNOWN_S):
            while True:
                found = await admin.describe_log_dirs([1, 2, 3, 9])
                if all(
                    TopicPartition(name, 0) in log_dir.replica_infos
                    for log_dirs in found.values.values()
                    for log_dir in log_dirs.values()
                ):
                    break
        (await admin.delete_topics([name])).all()

    assert set(found.values) == {1, 2, 3}
    for log_dirs in found.values.values():
        for log_dir in log_dirs.values():
            assert log_dir.error is None
            assert log_dir.total_bytes is not None
            assert log_dir.usable_bytes is not None
            assert 0 < log_dir.usable_bytes <= log_dir.total_bytes
    assert "no broker 9; it has 1, 2, 3" in str(found.exception(9))


async def test_offsets_are_asked_of_each_leader(servers3: str) -> None:
    name = f"admin-{uuid4().hex[:8]}"
    first, last = TopicPartition(name, 0), TopicPartition(name, 2)
    beyond, nobody = TopicPartition(name, 7), TopicPartition("admin-nobody", 0)
    async with AdminClient(servers3) as admin:
        (await admin.create_topics([NewTopic(name, 3, 1)])).all()
        await known(admin, name, 3)
        found = await admin.list_offsets(
            {first: OffsetSpec.EARLIEST, last: OffsetSpec.LATEST, beyond: 0, nobody: 0}
        )
        by_time = await admin.list_offsets({first: 1_700_000_000_000})
        (await admin.delete_topics([name])).all()

    assert (found.result(first).offset, found.result(last).offset) == (0, 0)
    assert by_time.result(first).offset == -1
    assert named(found.exception(beyond)) == "unknown_topic_or_partition"
    assert named(found.exception(nobody)) == "unknown_topic_or_partition"


async def test_producers_are_asked_of_each_leader(servers3: str) -> None:
    name = f"admin-{uuid4().hex[:8]}"
    written, unwritten, beyond = (TopicPartition(name, number) for number in (1, 0, 7))
    async with AdminClient(servers3) as admin:
        (await admin.create_topics([NewTopic(name, 2, 1)])).all()
        await known(admin, name, 2)
        for _ in range(3):
            producer = Producer({"bootstrap.servers": servers3, "enable.idempotence": True})
            producer.produce(name, b"one", partition=1)
            producer.produce(name, b"two", partition=1)
            assert producer.flush(60) == 0
        plain = Producer({"bootstrap.servers": servers3})
        plain.produce(name, b"of nobody", partition=1)
        assert plain.flush(60) == 0
        found = await admin.describe_producers([written, unwritten, beyond])
        (await admin.delete_topics([name])).all()

    states = found.result(written)
    assert len({state.producer_id for state in states}) == len(states) == 3
    assert {(state.producer_epoch, state.last_sequence) for state in states} == {(0, 1)}
    assert all(state.last_timestamp_ms > 1_700_000_000_000 for state in states)
    assert found.result(unwritten) == ()
    assert named(found.exception(beyond)) == "unknown_topic_or_partition"


async def test_a_user_logs_in_with_the_password_that_was_set(sasl_servers: str) -> None:
    alice = Security.scram("alice", "alice-secret")
    carol = UserScramCredentialUpsertion("carol", ScramMechanism.SCRAM_SHA_256, "carol-secret")
    assert "carol-secret" not in repr(carol)
    async with AdminClient(sasl_servers, security=alice) as admin:
        gone = UserScramCredentialDeletion("nobody", ScramMechanism.SCRAM_SHA_512)
        altered = await admin.alter_user_scram_credentials([carol, gone])
        assert list(altered.values) == ["carol"]
        assert named(altered.exception("nobody")) == "resource_not_found"

        async with asyncio.timeout(_KNOWN_S):
            while "carol" not in (await admin.describe_user_scram_credentials()).values:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        described = await admin.describe_user_scram_credentials(["carol", "nobody"])
        (info,) = described.result("carol")
        assert (info.mechanism, info.iterations) == (ScramMechanism.SCRAM_SHA_256, 4096)
        assert named(described.exception("nobody")) == "resource_not_found"

        as_carol = Security.scram("carol", "carol-secret", mechanism="SCRAM-SHA-256")
        assert (await described_by(sasl_servers, as_carol)).nodes

        removal = UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_256)
        (await admin.alter_user_scram_credentials([removal])).all()
        with pytest.raises(UsageError, match="altered twice"):
            await admin.alter_user_scram_credentials([removal, carol])
        # Who comes next has her made anew.
        async with asyncio.timeout(_KNOWN_S):
            while "carol" in (await admin.describe_user_scram_credentials()).values:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def described_by(servers: str, security: Security) -> ClusterDescription:
    """The cluster, as soon as a new user is let in: a broker tells of a password before it goes by it."""
    async with asyncio.timeout(_KNOWN_S):
        while True:
            try:
                async with AdminClient(servers, security=security) as admin:
                    return await admin.describe_cluster()
            except BrokerError as error:
                if error.name != "sasl_authentication_failed":
                    raise
            await asyncio.sleep(0.05)
