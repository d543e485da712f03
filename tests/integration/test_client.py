"""The client of our own on real clusters: versions, logins, the way to the right broker."""

import asyncio
from datetime import timedelta

import pytest

from kvota.client import (
    ANY,
    CONTROLLER,
    BrokerConnection,
    BrokerError,
    ClientLimits,
    Cluster,
    Security,
)
from kvota.client.bearer_tokens import unsecured
from kvota.localkafka import LocalKafka
from kvota.localkafka.processes.command_line import SHORT_LIVED
from kvota.model.errors import UnreachableError, UsageError
from kvota.wire.apis import CREATE_TOPICS, DESCRIBE_CLUSTER, DESCRIBE_CONFIGS


def servers(kafka: LocalKafka) -> list[str]:
    return kafka.bootstrap_servers.split(",")


def servers_of(kafka: LocalKafka, listener: str) -> list[str]:
    return kafka.servers_of(listener).split(",")


def creation(*names: str) -> dict[str, object]:
    return {
        "topics": [
            {
                "name": name,
                "num_partitions": 3,
                "replication_factor": 1,
                "assignments": [],
                "configs": [],
            }
            for name in names
        ],
        "timeout": timedelta(seconds=20),
    }


async def test_a_topic_is_made_at_the_controller_and_seen_with_its_leaders(
    kafka3: LocalKafka,
) -> None:
    async with Cluster(servers(kafka3)) as cluster:
        made = await cluster.ask(CREATE_TOPICS, creation("made-by-our-client"), to=CONTROLLER)

        assert [int(topic.error_code) for topic in made.topics] == [0]
        topic = (await cluster.metadata(["made-by-our-client"])).topics["made-by-our-client"]
        async with asyncio.timeout(30):
            while any(partition.leader is None for partition in topic.partitions) or (
                topic.error_code
            ):
                topic = (await cluster.metadata(["made-by-our-client"])).topics[topic.name]
        assert [partition.index for partition in topic.partitions] == [0, 1, 2]
        assert {partition.leader for partition in topic.partitions} <= {1, 2, 3}
        assert topic.topic_id is not None


async def test_each_broker_answers_for_itself(kafka3: LocalKafka) -> None:
    async with Cluster(servers(kafka3)) as cluster:
        assert cluster.broker_ids == [1, 2, 3]

        for node_id in cluster.broker_ids:
            answer = await cluster.ask(
                DESCRIBE_CONFIGS,
                {
                    "resources": [
                        {
                            "resource_type": 4,
                            "resource_name": str(node_id),
                            "configuration_keys": ["node.id"],
                        }
                    ],
                    "include_synonyms": False,
                    "include_documentation": False,
                },
                to=node_id,
            )
            assert [result.configs[0].value for result in answer.results] == [str(node_id)]

        with pytest.raises(UsageError, match="no broker 9; it has 1, 2, 3"):
            await cluster.ask(DESCRIBE_CLUSTER, {}, to=9)


async def test_naming_a_topic_does_not_create_it(kafka: LocalKafka) -> None:
    async with Cluster(servers(kafka)) as cluster:
        found = await cluster.metadata(["nobody-made-this"])

        assert found.topics["nobody-made-this"].error_code == 3
        assert "nobody-made-this" not in (await cluster.metadata()).topics


async def test_a_broker_before_4_0_is_spoken_to_in_its_versions(kafka_3_9: LocalKafka) -> None:
    async with Cluster(servers(kafka_3_9)) as cluster:
        await cluster.ask(CREATE_TOPICS, creation("on-3-9"), to=CONTROLLER)

        async with asyncio.timeout(60):  # a broker follows its controller
            while "on-3-9" not in (await cluster.metadata()).topics:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "security",
    [
        Security.plain("alice", "alice-secret"),
        Security.scram("alice", "alice-secret"),
        Security.scram("bob", "bob-secret", mechanism="SCRAM-SHA-256"),
        Security.bearer(unsecured({"sub": "carol"})),
    ],
    ids=["plain", "scram-512", "scram-256", "bearer"],
)
async def test_who_logs_in_may_ask(sasl_kafka: LocalKafka, security: Security) -> None:
    async with Cluster(sasl_kafka.sasl_bootstrap_servers.split(","), security=security) as cluster:
        assert (await cluster.metadata([])).brokers


@pytest.mark.parametrize(
    "security",
    [
        Security.plain("alice", "wrong"),
        Security.scram("alice", "wrong"),
        Security.scram("nobody", "x", mechanism="SCRAM-SHA-256"),
    ],
    ids=["plain", "scram-512", "scram-256"],
)
async def test_a_wrong_password_is_said_in_kafkas_words_without_the_password(
    sasl_kafka: LocalKafka, security: Security
) -> None:
    with pytest.raises(BrokerError) as refused:
        async with Cluster(sasl_kafka.sasl_bootstrap_servers.split(","), security=security):
            pass

    assert refused.value.name == "sasl_authentication_failed"
    assert f'login of "{security.username}"' in str(refused.value)
    assert security.password not in str(refused.value).replace("exception", "")


async def test_a_refused_token_is_said_in_kafkas_words_without_the_token(
    sasl_kafka: LocalKafka,
) -> None:
    expired = unsecured({"sub": "carol", "exp": 1})()
    with pytest.raises(BrokerError) as refused:
        async with Cluster(servers_of(sasl_kafka, "SASL"), security=Security.bearer(expired)):
            pass

    assert refused.value.name == "sasl_authentication_failed"
    assert "login by OAUTHBEARER" in str(refused.value)
    assert "invalid_token" in str(refused.value)
    assert expired[30:60] not in str(refused.value)


async def test_a_login_is_made_anew_before_its_time_is_over(sasl_kafka: LocalKafka) -> None:
    """The brokers let a login last for 10 s; by each mechanism ten ask all the time, and nobody is refused or cut off."""
    loop = asyncio.get_running_loop()

    async def asked_all_the_time(security: Security) -> None:
        async with Cluster(servers_of(sasl_kafka, "UNHURRIED"), security=security) as cluster:
            connection = await cluster.connection_to(1)
            until_s = loop.time() + 21

            async def ask() -> int:
                asked = 0
                while loop.time() < until_s:
                    await connection.ask(DESCRIBE_CLUSTER, DESCRIBE)
                    asked += 1
                    await asyncio.sleep(0.05)
                return asked

            assert all(await asyncio.gather(*(ask() for _ in range(10))))
            assert not connection.is_closed

    await asyncio.gather(
        asked_all_the_time(Security.plain("alice", "alice-secret")),
        asked_all_the_time(Security.scram("bob", "bob-secret", mechanism="SCRAM-SHA-256")),
        asked_all_the_time(Security.bearer(unsecured({"sub": "carol"}))),
    )


async def test_a_login_that_is_refused_when_it_is_due_again_ends_the_connection(
    sasl_kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is due after 3 s, long before the broker would close without it.
    monkeypatch.setattr("kvota.client.connection._LOGIN_AGAIN_AT", 0.3)
    tokens = iter([unsecured({"sub": "carol"})(), unsecured({"sub": "mallory"})()])
    security = Security.bearer(lambda: next(tokens))
    address = servers_of(sasl_kafka, "UNHURRIED")[0].rsplit(":", 1)
    connection = await BrokerConnection.open((address[0], int(address[1])), security=security)
    await connection.ask(DESCRIBE_CLUSTER, DESCRIBE)
    await asyncio.sleep(3.3)

    asks = [connection.ask(DESCRIBE_CLUSTER, DESCRIBE) for _ in range(3)]
    refusals = await asyncio.gather(*asks, return_exceptions=True)

    assert [type(refusal) for refusal in refusals] == [BrokerError] * 3
    assert connection.is_closed
    await connection.close()


async def test_a_login_where_there_is_none_is_refused_with_what_there_is(
    kafka: LocalKafka,
) -> None:
    with pytest.raises(BrokerError, match="login by PLAIN"):
        async with Cluster(servers(kafka), security=Security.plain("alice", "alice-secret")):
            pass


@pytest.mark.timeout(300)
async def test_a_broker_that_dies_is_left_for_another_and_used_again() -> None:
    limits = ClientLimits(connect_s=5, request_s=20)
    with LocalKafka(nodes=3, host="127.0.0.2", java_options=SHORT_LIVED) as kafka:
        async with Cluster(servers(kafka), limits=limits) as cluster:
            await asyncio.gather(
                *(cluster.ask(DESCRIBE_CLUSTER, DESCRIBE, to=n) for n in (1, 2, 3))
            )
            await asyncio.to_thread(kafka.kill, 2)

            lost = 0
            while not lost:  # the first may still be written to a socket that nobody has closed
                lost = await refused(cluster)
            assert (await cluster.ask(DESCRIBE_CLUSTER, DESCRIBE, to=ANY)).brokers

            await asyncio.to_thread(kafka.start_node, 2)
            assert (await cluster.ask(DESCRIBE_CLUSTER, DESCRIBE, to=2)).brokers


async def refused(cluster: Cluster) -> int:
    try:
        await cluster.ask(DESCRIBE_CLUSTER, DESCRIBE, to=2)
    except UnreachableError:
        return 1
    return 0


DESCRIBE = {
    "include_cluster_authorized_operations": False,
    "endpoint_type": 1,
    "include_fenced_brokers": False,
}
