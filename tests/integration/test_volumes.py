"""Three brokers on small disks: producers are slowed down and stopped before one is full, and go on afterwards."""

import asyncio
import contextlib
import math
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.endurance.client_process import ClientProcess, java_client
from tests.integration.full_speed import AiokafkaAtFullSpeed, LibrdkafkaAtFullSpeed
from tests.integration.small_disks import small_disks, taken_by_others

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.localkafka import LocalKafka
from kvota.localkafka.cluster import admin
from kvota.localkafka.processes.command_line import SHORT_LIVED

MIB = 2**20
DISK_BYTES = 256 * MIB
SOFT_BYTES, HARD_BYTES = 160 * MIB, 64 * MIB
# Of one broker; each of the three disks gets what all brokers take.
PRODUCE_BYTES_PER_S = 10 * 10**6
PATIENCE_S = 90
# So long a broker has to acknowledge a record that it takes, and so long it is waited for one that it must not take.
TAKEN_S, NOT_TAKEN_S = 60.0, 5.0
# Of each kind of client; each has a connection to each broker, and most one to begin with.
PRODUCERS, CONNECTIONS = 5, 50
P = "client.quota.callback.static"
NODES = 3
PARTITIONS = 3
QUICK = {"segment.bytes": str(4 * MIB), "file.delete.delay.ms": "100", "min.insync.replicas": "2"}


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    with small_disks(tmp_path_factory.mktemp("disks"), NODES, DISK_BYTES) as found:
        yield found


@pytest.fixture(scope="module")
def cluster(disks: list[Path]) -> Iterator[LocalKafka]:
    folder = disks[0].parent.parent
    properties = {"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "500"}
    with LocalKafka(
        nodes=NODES, folder=folder, properties=properties, java_options=SHORT_LIVED
    ) as kafka:
        yield kafka


@contextlib.contextmanager
def gateway_of(
    cluster: LocalKafka, folder: Path, **further: int | float | str
) -> Iterator[GatewayProcess]:
    settings: dict[str, Any] = {
        "client.quota.callback.class": "kvota.callbacks.StaticQuotaCallback",
        f"{P}.produce": PRODUCE_BYTES_PER_S,
        f"{P}.storage.check-interval": 1,
        f"{P}.storage.perVolumeLimit.availableBytesBelow.soft": SOFT_BYTES,
        f"{P}.storage.perVolumeLimit.availableBytesBelow.hard": HARD_BYTES,
        f"{P}.kafka.admin.bootstrap.servers": cluster.bootstrap_servers,
    }
    settings |= {f"{P}.{key}": value for key, value in further.items()}
    config = gateway_toml(
        upstream=cluster.bootstrap_servers,
        node_ids="1-3",
        enforce={"PRODUCE": True},
        kafka=settings,
        record="record",
        http_port=0,
    )
    with GatewayProcess(folder, config=config, quotas="") as gateway:
        yield gateway


def looks(gateway: GatewayProcess) -> list[dict[str, Any]]:
    """What the gateway has recorded of the volumes."""
    files = sorted((gateway.folder / "record" / "_volumes").glob("*.parquet"))
    # Opened once: the file of the running hour is replaced.
    return [row for file in files for row in pq.read_table(BytesIO(file.read_bytes())).to_pylist()]


def factor_of(gateway: GatewayProcess) -> float:
    """As the last look that is recorded has it; before the first one there is none."""
    found = looks(gateway)
    return found[-1]["factor"] if found else math.nan


def ends(cluster: LocalKafka, topic: str) -> int:
    """How many records a topic has ever taken."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "ends"})
    marks = [
        consumer.get_watermark_offsets(TopicPartition(topic, partition), 60)
        for partition in range(PARTITIONS)
    ]
    consumer.close()
    return sum(high for _, high in marks)


async def until(is_so: Callable[[], bool], said: Callable[[], str]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, f"it never became so:\n{said()[-4000:]}"
        await asyncio.sleep(0.1)


async def at_rest(cluster: LocalKafka, topics: Sequence[str]) -> dict[str, int]:
    """The ends of topics, once they have been the same for two seconds."""
    found: dict[str, int] = {}
    since = deadline = time.monotonic()
    while time.monotonic() < since + 2:
        now = {topic: ends(cluster, topic) for topic in topics}
        if now != found:
            found, since = now, time.monotonic()
        assert time.monotonic() < deadline + PATIENCE_S, f"it never came to rest: {found}"
        await asyncio.sleep(0.2)
    return found


def empty(cluster: LocalKafka, topic: str) -> None:
    """Delete all records of a topic."""
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    upto = [TopicPartition(topic, partition, OFFSET_END) for partition in range(PARTITIONS)]
    for deleted in client.delete_records(upto).values():
        deleted.result(60)


@pytest.mark.timeout(600)
async def test_producers_at_full_speed_never_fill_a_disk_and_go_on_when_there_is_room(
    cluster: LocalKafka, disks: list[Path], tmp_path: Path
) -> None:
    topics = ("librdkafka", "aiokafka", "java")
    for topic in topics:
        cluster.create_topic(topic, PARTITIONS, NODES, configs=QUICK)
    with contextlib.ExitStack() as stack:
        gateway = stack.enter_context(gateway_of(cluster, tmp_path / "gw"))
        java = stack.enter_context(
            ClientProcess(
                tmp_path,
                "java",
                java_client(
                    *("Producing", gateway.bootstrap_servers, "java", PARTITIONS, "java"),
                    *(PRODUCERS, 2000),
                ),
                end_s=120,
            )
        )
        java.wait_until_it_began()
        servers = gateway.bootstrap_servers
        of_python = {
            "librdkafka": [
                LibrdkafkaAtFullSpeed(servers, "librdkafka", buffered_kbytes=1_024)
                for _ in range(PRODUCERS)
            ],
            "aiokafka": [AiokafkaAtFullSpeed(servers, "aiokafka") for _ in range(PRODUCERS)],
        }
        each = [client for clients in of_python.values() for client in clients]
        for client in each:
            stack.enter_context(client)

        await until(lambda: 0 < factor_of(gateway) < 0.4, lambda: gateway.log)
        await until(
            lambda: metric(gateway, "kvota_connections") >= CONNECTIONS, lambda: gateway.log
        )
        with taken_by_others(disks[1], leaving_bytes=HARD_BYTES // 2):
            await until(lambda: "-> 0.00: broker 2" in gateway.log, lambda: gateway.log)
            stopped = await at_rest(cluster, topics)  # what had been let through goes on a little
            delivered = [client.delivered for client in each]
            await asyncio.sleep(2)
            assert {topic: ends(cluster, topic) for topic in topics} == stopped
            for topic in topics:
                empty(cluster, topic)
        await until(
            lambda: all(ends(cluster, topic) > stopped[topic] for topic in topics),
            lambda: gateway.log,
        )
        for client, before in zip(each, delivered, strict=True):  # and each of them, not only one
            await until(lambda of=client, was=before: of.delivered > was, lambda: gateway.log)  # type: ignore[misc]
        for client in each:
            client.ask_to_stop()
        java.ask_to_end()
        for topic in topics:
            empty(cluster, topic)  # so that what they have in hand goes quickly
        for client in each:
            client.stop()
            assert client.failed == []
        told = java.result()
        for topic in topics:
            empty(cluster, topic)  # for the next test
        await until(lambda: factor_of(gateway) == 1.0, lambda: gateway.log)

    assert not [line for line in told if line.startswith("failed")]
    sent = sum(int(line.split()[2]) for line in told if line.startswith("sent"))
    assert {topic: ends(cluster, topic) for topic in topics} == {
        **{topic: sum(one.delivered for one in clients) for topic, clients in of_python.items()},
        "java": sent,
    }
    assert all(node.running for node in cluster.nodes)
    judge(looks(gateway))


def judge(rows: list[dict[str, Any]]) -> None:
    """The factor is the line between the limits, at every look; no disk was ever full."""
    # Beside all these clients a look may take longer than it may.
    late = sum(row["status"] == "SAFETY_TIMEOUT" for row in rows)
    assert late < len(rows) / 10
    rows = [row for row in rows if row["status"] != "SAFETY_TIMEOUT"]
    assert {row["status"] for row in rows} == {"SUCCESS"}
    of_look: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        of_look.setdefault(row["ts_us"], []).append(row)
    factors = []
    for of_one in of_look.values():
        least = min(row["usable_bytes"] for row in of_one)
        line = (least - HARD_BYTES) / (SOFT_BYTES - HARD_BYTES)
        assert [row["factor"] for row in of_one] == pytest.approx(
            [min(max(line, 0.0), 1.0)] * NODES
        )
        assert least > 0
        factors.append(of_one[0]["factor"])
    assert factors[0] == 1.0
    assert min(factors) == 0.0 < factors[-1]
    assert any(0 < factor < 1 for factor in factors)


async def test_a_full_disk_stops_all_producers_or_those_of_its_broker(
    cluster: LocalKafka, disks: list[Path], tmp_path: Path
) -> None:
    cluster.create_topic("uneven", NODES, 1)
    with (
        gateway_of(cluster, tmp_path / "all") as all_brokers,
        gateway_of(
            cluster, tmp_path / "each", **{"throttle.factor.scope": "broker"}
        ) as each_broker,
    ):
        for gateway in (all_brokers, each_broker):
            taken(gateway, "uneven", by={1, 2, 3})
        with taken_by_others(disks[1], leaving_bytes=HARD_BYTES // 2):
            for gateway in (all_brokers, each_broker):
                await until(lambda of=gateway: "-> 0.00: broker 2" in of.log, lambda: "")  # type: ignore[misc]

            taken(all_brokers, "uneven", by=set())
            taken(each_broker, "uneven", by={1, 3})
        for gateway in (all_brokers, each_broker):
            await until(lambda of=gateway: "0.00 -> 1.00" in of.log, lambda: "")  # type: ignore[misc]
            taken(gateway, "uneven", by={1, 2, 3})


def taken(gateway: GatewayProcess, topic: str, *, by: set[int]) -> None:
    """A record is sent to the partition of each broker; it is acknowledged by these, and by no others."""
    producer = Producer({"bootstrap.servers": gateway.bootstrap_servers, "log_level": 0})
    partitions = producer.list_topics(topic, 60).topics[topic].partitions
    brokers: set[int] = set()
    for partition, found in partitions.items():

        def ended(error: object, _message: object, leader: int = found.leader) -> None:
            if error is None:
                brokers.add(leader)

        producer.produce(topic, b"v", partition=partition, on_delivery=ended)
    end, least = time.monotonic() + TAKEN_S, time.monotonic() + NOT_TAKEN_S * (len(by) < NODES)
    while time.monotonic() < least or (brokers != by and time.monotonic() < end):
        producer.flush(0.1)
    producer.purge()
    producer.flush(2)
    assert brokers == by


FALLBACKS = "io_strimzi_kafka_quotas_localthrottlefactor_fallbackthrottlefactorapplied_total"
IS_FALLBACK = "kvota_produce_factor_is_fallback"


def metric(gateway: GatewayProcess, name: str) -> float:
    """The sum over a metric's series."""
    with urllib.request.urlopen(f"{gateway.http_url}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    lines = [line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


async def test_brokers_that_die_or_hang_leave_the_factor_until_its_validity_ends(
    cluster: LocalKafka, tmp_path: Path
) -> None:
    further = {
        "throttle.factor.fallback": 0.25,
        "throttle.factor.validity.duration": "PT3S",
    }
    with gateway_of(cluster, tmp_path / "gw", **further) as gateway:
        await until(lambda: bool(looks(gateway)), lambda: gateway.log)
        # The cluster goes on to name it for as long as its session lasts.
        cluster.kill(3)
        await until(
            lambda: "DESCRIBE_LOG_DIR_ERROR: broker 3: " in gateway.log, lambda: gateway.log
        )
        await until(lambda: "they can be looked at again" in gateway.log, lambda: gateway.log)
        assert "stays until its validity ends" in gateway.log
        await until(lambda: metric(gateway, "kvota_produce_factor") == 1.0, lambda: gateway.log)

        before = metric(gateway, FALLBACKS)
        with contextlib.ExitStack() as stack:
            for node in cluster.nodes[:2]:
                node.signal(signal.SIGSTOP)
                stack.callback(node.signal, signal.SIGCONT)
            await until(lambda: "SAFETY_TIMEOUT: " in gateway.log, lambda: gateway.log)
            await until(lambda: metric(gateway, FALLBACKS) > before, lambda: gateway.log)
            # A look that had begun before may still succeed.
            await until(lambda: metric(gateway, IS_FALLBACK) == 1, lambda: gateway.log)
            assert metric(gateway, "kvota_produce_factor") == 0.25
            assert "-> 0.25: the fallback" in gateway.log
        cluster.start_node(3)
        await until(lambda: metric(gateway, "kvota_produce_factor") == 1.0, lambda: gateway.log)
        assert metric(gateway, IS_FALLBACK) == 0
        statuses = {"SUCCESS", "DESCRIBE_LOG_DIR_ERROR", "SAFETY_TIMEOUT"}
        await until(
            lambda: statuses <= {row["status"] for row in looks(gateway)}, lambda: gateway.log
        )


async def test_a_login_that_is_refused_is_said_counted_and_over_once_it_is_taken(
    sasl_kafka: LocalKafka, tmp_path: Path
) -> None:
    secret = "watcher-secret"
    login = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="watcher" password="{secret}";'
    further = {
        "kafka.admin.bootstrap.servers": sasl_kafka.sasl_bootstrap_servers,
        "kafka.admin.security.protocol": "SASL_PLAINTEXT",
        "kafka.admin.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.admin.sasl.jaas.config": login.replace('"', '\\"'),
        "throttle.factor.fallback": 0.25,
        "throttle.factor.validity.duration": "PT8S",
        # Of the machine's own disk, whatever there is of it.
        "storage.perVolumeLimit.availableBytesBelow.soft": 1,
        "storage.perVolumeLimit.availableBytesBelow.hard": 0,
    }
    with gateway_of(sasl_kafka, tmp_path / "gw", **further) as gateway:
        await until(lambda: metric(gateway, FALLBACKS) == 1, lambda: gateway.log)
        await until(lambda: "DESCRIBE_CLUSTER_ERROR: " in gateway.log, lambda: gateway.log)
        assert secret not in gateway.log
        assert "volumes: produce factor 1.00 -> 0.25: the fallback" in gateway.log

        admin.add_scram_users(sasl_kafka.nodes[0].address, {"watcher": secret})
        await until(lambda: "0.25 -> 1.00" in gateway.log, lambda: gateway.log)
        assert metric(gateway, FALLBACKS) == 1
