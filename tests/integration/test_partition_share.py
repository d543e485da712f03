"""KIP-257's second use on three brokers: a group's quota is split by the partitions that brokers lead.

The steps are those of Kafka's own ``CustomQuotaCallbackTest``; its brokers 0 and 1 are nodes 1 and 2 here.
Quotas, and the callback's own properties, are set by kafka-configs.sh.
"""

import asyncio
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from kafka.record import MemoryRecordsBuilder
from tests.integration.kafka_configs.running import ConfigCommands

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.client import CONTROLLER, BrokerConnection, Cluster, ClusterLooks, Security
from kvota.localkafka import LocalKafka
from kvota.localkafka.jars.class_path import KAFKA_VERSION
from kvota.localkafka.processes.command_line import SHORT_LIVED
from kvota.model.errors import KvotaError
from kvota.wire.apis import CREATE_TOPICS, DELETE_TOPICS, FETCH, PRODUCE
from kvota.wire.error_code import ErrorCode

USERS = [f"group{group}_user{number}" for group in (0, 1, 2) for number in (1, 2, 3)]
# The gateway's own, and the tool's.
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
    f"username='{USERS[0]}' password='{USERS[0]}-secret';",
}
ADMIN = "client.quota.callback.kafka.admin."
CLASS = "client.quota.callback.class"
SHARE = "client.quota.callback.share."
# Each step moves so many bytes: above ten seconds of the small limits, far below those of the large ones.
REQUESTS, VALUE_BYTES = 8, 15_000
DEFAULT = "*"
REQUEST_PERCENTAGE = 1_000.0
ELECT_LEADERS, ELECTION_NOT_NEEDED = 43, 84
# A record is read while it is written: what is thin may come twelve times as late.
FLUSH_MS = 50
Row = dict[str, Any]


@pytest.fixture(scope="module")
def cluster3() -> Iterator[LocalKafka]:
    """Three nodes with the users of the scenario."""
    users = {user: f"{user}-secret" for user in USERS}
    with LocalKafka(nodes=3, host="127.0.0.2", users=users, java_options=SHORT_LIVED) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def tool() -> Iterator[ConfigCommands]:
    with ConfigCommands(KAFKA_VERSION) as tool:
        yield tool


@dataclass
class Scenario:
    """A gateway whose quotas are set as the steps say."""

    kafka: LocalKafka
    tool: ConfigCommands
    folder: Path
    gateway: GatewayProcess = field(init=False)
    first_port: int = field(default_factory=lambda: free_port_range(5))

    def __post_init__(self) -> None:
        self.gateway = GatewayProcess(self.folder, config=self.config, quotas="")
        text = "".join(f"{name}={value}\n" for name, value in LOGIN.items())
        self.login_file.write_text(text)

    @property
    def login_file(self) -> Path:
        return self.folder / "login.properties"

    @property
    def config(self) -> str:
        chosen: Mapping[str, int | str] = {
            CLASS: "kvota.callbacks.PartitionShareQuotaCallback",
            f"{SHARE}separator": "_",
            **{f"{ADMIN}{name}": value for name, value in LOGIN.items()},
        }
        config = gateway_toml(
            upstream=self.kafka.sasl_bootstrap_servers,
            first_port=self.first_port,
            node_ids="0-3",
            enforce={"PRODUCE": True, "FETCH": True, "REQUEST": True},
            record="record",
            source="file",
            kafka=chosen,
        )
        return re.sub("flush_interval = .*", f'flush_interval = "{FLUSH_MS}ms"', config)

    def set(self, group: str, limits: tuple[float, float] | None) -> None:
        """Set the quota of a group for the whole cluster, or take it away."""
        names = ("producer_byte_rate", "consumer_byte_rate")
        values = None if limits is None else dict(zip(names, limits, strict=True))
        self.alter(("--entity-type", "users", "--entity-name", f"group:{group}"), names, values)

    def set_defaults(self, produce: float, fetch: float) -> None:
        """Reconfigure the callback."""
        values = {f"{SHARE}default.produce": produce, f"{SHARE}default.fetch": fetch}
        self.alter(("--entity-type", "brokers", "--entity-default"), tuple(values), values)

    def alter(
        self, entity: Sequence[str], names: Sequence[str], values: Mapping[str, float] | None
    ) -> None:
        """Run kafka-configs.sh."""
        asked = ["--delete-config", ",".join(names)]
        if values is not None:
            pairs = ",".join(f"{name}={value:.0f}" for name, value in values.items())
            asked = ["--add-config", pairs]
        ended = self.tool.run(
            [
                *("--bootstrap-server", "{address}", "--command-config", str(self.login_file)),
                *("--alter", *entity, *asked),
            ],
            self.gateway.bootstrap_servers,
        )
        assert (ended.exit_code, ended.stderr) == (0, ""), ended

    async def connection(self, user: str, node_id: int) -> BrokerConnection:
        address = "127.0.0.1", self.first_port + 1 + node_id
        return await BrokerConnection.open(
            address, security=Security.plain(user, f"{user}-secret"), client_id=user
        )

    async def uses(self, user: str, topic: str, node_id: int) -> None:
        """Produce to partition 0 and fetch it, until a quota says no or all has been moved."""
        for key, version, content in (
            (PRODUCE, 9, produce_request(topic)),
            (FETCH, 11, fetch_request(topic)),
        ):
            connection = await self.connection(user, node_id)
            with suppress(TimeoutError):  # a Fetch waits for room in its quota
                async with asyncio.timeout(2 if key == FETCH else 15):
                    for _ in range(REQUESTS):
                        answer = await connection.ask(key, content, version=version)
                        if answer.throttle_time:
                            break
            await connection.close()

    def rows(self, group: str) -> list[Row]:
        """What has been recorded of a group so far, in the order of the decisions."""
        columns = ["seq", "tags", "quota_type", "node_id", "limit", "throttle_ms"]
        files = (self.folder / "record").glob("*.parquet")
        rows = [row for file in files for row in pq.read_table(file, columns=columns).to_pylist()]
        of_group = [row for row in rows if row["tags"] == f"group={group}"]
        return sorted(of_group, key=lambda row: row["seq"])

    async def until_limit(self, group: str, node_id: int, limit: float, topic: str) -> None:
        """Little is produced until the record says that this is the limit."""
        user = f"{group}_user1"
        end_s = time.monotonic() + 90
        while True:
            with suppress(KvotaError):  # the broker may not lead it any more
                connection = await self.connection(user, node_id)
                await connection.ask(PRODUCE, produce_request(topic, 10), version=9)
                await connection.close()
            await asyncio.sleep(0.3)
            rows = await asyncio.to_thread(self.rows, group)
            found = [
                row["limit"]
                for row in rows
                if row["node_id"] == node_id and row["quota_type"] != "REQUEST"
            ]
            if found and found[-1] == pytest.approx(limit):
                return
            assert time.monotonic() < end_s, f"{group} at {node_id}: {found[-5:]}, not {limit}"


def produce_request(topic: str, value_bytes: int = VALUE_BYTES) -> dict[str, object]:
    builder = MemoryRecordsBuilder(2, 0, value_bytes + 1_000)
    builder.append(timestamp=int(time.time() * 1000), key=None, value=bytes(value_bytes))
    builder.close()
    partition = {"index": 0, "records": bytes(builder.buffer())}
    return {
        "transactional_id": None,
        "acks": 1,
        "timeout": timedelta(seconds=20),
        "topic_data": [{"name": topic, "partition_data": [partition]}],
    }


def fetch_request(topic: str) -> dict[str, object]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 2 * VALUE_BYTES}
    return {
        "max_wait": timedelta(milliseconds=100),
        "min_bytes": 1,
        "max_bytes": 2 * VALUE_BYTES,
        "topics": [{"topic": topic, "partitions": [partition]}],
        "forgotten_topics_data": [],
    }


async def create(kafka: LocalKafka, topic: str, replicas: Sequence[Sequence[int]]) -> None:
    """A topic whose partitions are on these brokers; the first of each leads it."""
    assignments = [
        {"partition_index": index, "broker_ids": list(brokers)}
        for index, brokers in enumerate(replicas)
    ]
    row = {
        "name": topic,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": assignments,
        "configs": [],
    }
    async with Cluster(kafka.bootstrap_servers.split(",")) as cluster:
        content = {"topics": [row], "timeout": timedelta(seconds=20)}
        answer = await cluster.ask(CREATE_TOPICS, content, to=CONTROLLER)
        assert [int(each.error_code) for each in answer.topics] == [0]
        await until_led(cluster, topic, len(replicas))


async def until_led(cluster: Cluster, topic: str, partitions: int) -> list[int]:
    """Wait until every partition has a leader; returns them."""
    async with asyncio.timeout(60):
        while True:
            found = (await cluster.metadata([topic])).topics[topic]
            leaders = [each.leader for each in found.partitions if each.leader is not None]
            if len(leaders) == partitions:
                return leaders
            await asyncio.sleep(0.1)


async def delete(kafka: LocalKafka, topic: str) -> None:
    async with Cluster(kafka.bootstrap_servers.split(",")) as cluster:
        content = {"topic_names": [topic], "timeout": timedelta(seconds=20)}
        connection = await cluster.connection_to(CONTROLLER)
        answer = await connection.ask(DELETE_TOPICS, content, version=5)
        assert [int(each.error_code) for each in answer.responses] == [0]


@pytest.mark.timeout(600)
async def test_the_eleven_steps_of_kafkas_own_test(  # noqa: PLR0915  (they are eleven)
    cluster3: LocalKafka, tool: ConfigCommands, tmp_path: Path
) -> None:
    await create(cluster3, "group0_topic", [[1]])
    scenario = Scenario(cluster3, tool, tmp_path)

    async def recorded(group: str, before: int, *, throttled: bool) -> tuple[list[Row], bool]:
        """What is behind these, and whether it is all that is asked for: thin traffic is recorded some seconds later."""
        end_s = time.monotonic() + 8
        while True:
            rows = (await asyncio.to_thread(scenario.rows, group))[before:]
            seen = {row["quota_type"] for row in rows if row["throttle_ms"] > 0 or not throttled}
            is_all = {"PRODUCE", "FETCH"} <= seen
            if is_all or time.monotonic() > end_s:
                return rows, is_all
            await asyncio.sleep(0.2)

    async def step(user: str, limits: tuple[float, float], *, throttled: bool) -> None:
        """Produce and consume: the limits of the broker are these, and this becomes of it."""
        group = user.partition("_")[0]
        topic, node_id = f"{group}_topic", 1 if group == "group0" else 2
        await scenario.until_limit(group, node_id, limits[0], topic)
        before = len(scenario.rows(group))

        end_s = time.monotonic() + 90
        is_all = False
        while not is_all and time.monotonic() < end_s:
            # Again where the machine was too slow for it to use enough.
            await scenario.uses(user, topic, node_id)
            rows, is_all = await recorded(group, before, throttled=throttled)
        for quota_type, limit in zip(("PRODUCE", "FETCH"), limits, strict=True):
            of_type = [row for row in rows if row["quota_type"] == quota_type]
            assert of_type
            assert all(row["limit"] == pytest.approx(limit) for row in of_type), quota_type
            assert any(row["throttle_ms"] > 0 for row in of_type) == throttled, quota_type
        # It is not split, and throughout far above what they take.
        of_time = {row["limit"] for row in rows if row["quota_type"] == "REQUEST"}
        assert of_time == {REQUEST_PERCENTAGE}

    with scenario.gateway:
        scenario.alter(
            ("--entity-type", "users", "--entity-name", f"group:{DEFAULT}"),
            ("request_percentage",),
            {"request_percentage": REQUEST_PERCENTAGE},
        )
        scenario.set(DEFAULT, (2e9, 1e9))
        scenario.set("group0", (1e6, 2e6))
        await step("group0_user1", (1e6, 2e6), throttled=False)  # 1

        scenario.set("group0", (9_000, 3_000))
        await step("group0_user1", (9_000, 3_000), throttled=True)  # 2

        scenario.set("group0", None)
        await step("group0_user2", (2e9, 1e9), throttled=False)  # 3

        scenario.set(DEFAULT, (8_000, 2_500))
        await step("group0_user2", (8_000, 2_500), throttled=True)  # 4

        scenario.set("group0", (2e6, 2e6))
        await step("group0_user3", (2e6, 2e6), throttled=False)  # 5

        await create(cluster3, "group1_topic", [[2]])
        scenario.set(DEFAULT, (2e9, 1e9))
        scenario.set("group1", (800_000, 250_000))
        await step("group1_user1", (800_000, 250_000), throttled=False)  # 6

        await create(cluster3, "group1_largeTopic", [[1]] * 99)
        await step("group1_user1", (8_000, 2_500), throttled=True)  # 7

        scenario.set("group1", None)
        await step("group1_user2", (2e7, 1e7), throttled=False)  # 8

        scenario.set(DEFAULT, (800_000, 250_000))
        await step("group1_user2", (8_000, 2_500), throttled=True)  # 9

        await delete(cluster3, "group1_largeTopic")
        await step("group1_user3", (800_000, 250_000), throttled=False)  # 10

        scenario.set(DEFAULT, None)
        scenario.set_defaults(8_000, 2_500)
        await step("group1_user3", (8_000, 2_500), throttled=True)  # 11


async def elect_preferred(cluster: Cluster, topic: str, partitions: int) -> None:
    """Each partition goes back to the first of its replicas, as soon as that one is in sync."""
    asked = {"topic": topic, "partitions": list(range(partitions))}
    content = {"election_type": 0, "topic_partitions": [asked], "timeout": timedelta(seconds=20)}
    async with asyncio.timeout(60):
        while True:
            answer = await cluster.ask(ELECT_LEADERS, content, to=CONTROLLER)
            (of_topic,) = answer.replica_election_results
            codes = {int(each.error_code) for each in of_topic.partition_result}
            if codes <= {ErrorCode.NONE, ELECTION_NOT_NEEDED}:
                return
            await asyncio.sleep(0.2)  # it still catches up


@pytest.mark.timeout(600)
async def test_shares_follow_the_leaders_when_a_broker_dies_and_comes_back(
    cluster3: LocalKafka, tool: ConfigCommands, tmp_path: Path
) -> None:
    """It comes back in a rack, of which the gateway's look at the cluster tells."""
    topic = "group2_led"
    # Partition 0, to which the probes go, never leaves node 1.
    replicas = [[1, 2, 3], [2, 1, 3], [2, 1, 3], [3, 2, 1]]
    await create(cluster3, topic, replicas)
    scenario = Scenario(cluster3, tool, tmp_path)
    # Node 2 is not asked: it is away for a while.
    async with Cluster([cluster3.nodes[0].address, cluster3.nodes[2].address]) as cluster:

        async def until_leading(*counts: int) -> None:
            """Until nodes 1, 2 and 3 lead so many, and 1 and 2 have their part of the limit."""
            async with asyncio.timeout(90):
                while True:
                    leaders = await until_led(cluster, topic, len(replicas))
                    if [leaders.count(node) for node in (1, 2, 3)] == list(counts):
                        break
                    await asyncio.sleep(0.2)
            for node_id, led in ((1, counts[0]), (2, counts[1])):
                limit = 4e6 * max(led, 1) / len(replicas)
                if node_id != 2 or led:
                    await scenario.until_limit("group2", node_id, limit, topic)

        with scenario.gateway:
            scenario.set("group2", (4e6, 4e6))
            await until_leading(1, 2, 1)
            looks = ClusterLooks(cluster)
            assert {broker.rack for broker in (await looks.look()).brokers.values()} == {None}

            await asyncio.to_thread(cluster3.kill, 2)
            await until_leading(3, 0, 1)

            put_in_rack(cluster3, 2, "zone-b")
            await asyncio.to_thread(cluster3.start_node, 2)
            await elect_preferred(cluster, topic, len(replicas))
            await until_leading(1, 2, 1)
            # Each broker hears of it in its own time.
            racks: dict[int, str | None] = {}
            async with asyncio.timeout(60):
                while racks != {1: None, 2: "zone-b", 3: None}:
                    brokers = (await looks.look()).brokers
                    racks = {node: broker.rack for node, broker in brokers.items()}


def put_in_rack(kafka: LocalKafka, node_id: int, rack: str) -> None:
    """From its next start on."""
    with (kafka.node(node_id).folder / "server.properties").open("a") as properties:
        properties.write(f"\nbroker.rack={rack}\n")
