"""Real clusters, looked at again and again: topics, leaders, ids, and what a topic gets that says no number."""

import asyncio

import pytest
from tests.integration.test_client import creation, servers

from kvota.client import CONTROLLER, BrokerError, Cluster, ClusterLooks, Security
from kvota.client.cluster_looks import ClusterView
from kvota.localkafka import LocalKafka
from kvota.wire.apis import CREATE_TOPICS


async def until_there(looks: ClusterLooks, topic: str) -> None:
    async with asyncio.timeout(60):
        while True:
            found = (await looks.look()).topics.get(topic)
            if found is not None and all(leader >= 0 for leader in found.leaders):
                return
            await asyncio.sleep(0.05)


async def until_same(looks: ClusterLooks) -> ClusterView:
    """What the last two looks have both seen; what a test before this one has left may still be going on."""
    async with asyncio.timeout(60):
        while (view := await looks.look()) is not await looks.look():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return view


async def test_three_brokers_and_their_topics(kafka3: LocalKafka) -> None:
    async with Cluster(servers(kafka3)) as cluster:
        looks = ClusterLooks(cluster)
        await cluster.ask(CREATE_TOPICS, creation("looked-at"), to=CONTROLLER)
        await until_there(looks, "looked-at")

        view = await until_same(looks)
        assert view.cluster_id
        assert {node_id: broker.address for node_id, broker in view.brokers.items()} == {
            node.node_id: node.address for node in kafka3.nodes
        }
        told = (await cluster.metadata(["looked-at"])).topics["looked-at"]
        topic = view.topics["looked-at"]
        assert list(topic.leaders) == [partition.leader for partition in told.partitions]
        assert topic.topic_id == told.topic_id
        assert looks.size_bytes > 100
        assert await looks.default_partitions(view) == 1


async def test_a_broker_before_4_0(kafka_3_9: LocalKafka) -> None:
    async with Cluster(servers(kafka_3_9)) as cluster:
        looks = ClusterLooks(cluster)
        await cluster.ask(CREATE_TOPICS, creation("looked-at-3-9"), to=CONTROLLER)
        await until_there(looks, "looked-at-3-9")

        assert await looks.default_partitions(await looks.look()) == 1


@pytest.mark.parametrize(("user", "sees"), [("operator", True), ("bob", False)])
async def test_a_user_sees_what_it_may_describe(
    acl_kafka: LocalKafka, user: str, sees: bool
) -> None:
    acl_kafka.create_topic(f"for-{user}")
    security = Security.scram(user, f"{user}-secret")
    async with Cluster(acl_kafka.sasl_bootstrap_servers.split(","), security=security) as cluster:
        looks = ClusterLooks(cluster)

        view = await looks.look()

        assert (f"for-{user}" in view.topics) == sees
        assert list(view.brokers) == [1]
        if sees:
            assert await looks.default_partitions(view) == 1
        else:
            with pytest.raises(BrokerError, match="cluster_authorization_failed"):
                await looks.default_partitions(view)
