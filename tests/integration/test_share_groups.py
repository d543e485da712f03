"""Share groups (KIP-932) of Java's KafkaShareConsumer: through a gateway each delivery is as without one."""

import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from tests.integration.law_of_record import law_of
from tests.integration.tapped_gateway import tapped_gateway

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.java.find import java_command
from kvota.localkafka import LocalKafka
from kvota.localkafka.jars.class_path import kafka_classpath
from kvota.localkafka.jars.compile_java import compile_java
from kvota.localkafka.processes.command_line import SHORT_LIVED

# JVMs start in each test, on a machine that may have other work.
pytestmark = pytest.mark.timeout(500)

_SOURCE = Path(__file__).parent / "java/ShareReaders.java"
_SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
_FASTER = {
    # A member is told what it reads with a heartbeat.
    "group.share.min.heartbeat.interval.ms": "300",
    "group.share.heartbeat.interval.ms": "300",
}
VALUES, VALUE_BYTES, PARTITIONS = 2_400, 1_000, 6
CLIENT = "share"
LIMIT = 80_000
SHARE_FETCH = 78
QUOTAS = f"""
[[quota]]
client_id = "{CLIENT}"
consumer_byte_rate = {LIMIT}
"""
# A window of 2 s instead of 10: its fill would be all there is to read.
WINDOW = {"quota.window.num": 3}


@pytest.fixture(scope="module")
def share_kafka() -> Iterator[LocalKafka]:
    """Three nodes, not where a gateway listens."""
    kafka = LocalKafka(nodes=3, host="127.0.0.2", properties=_FASTER, java_options=SHORT_LIVED)
    with kafka:
        yield kafka


@pytest.fixture(scope="module")
def topic(share_kafka: LocalKafka) -> str:
    name = "shared"
    share_kafka.create_topic(name, partitions=PARTITIONS, replication_factor=1)
    producer = Producer({"bootstrap.servers": share_kafka.bootstrap_servers, "linger.ms": 5})
    for number in range(VALUES):
        value = (b"%d" % number).ljust(VALUE_BYTES)
        producer.produce(name, value, partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0
    return name


@contextmanager
def reading(servers: str, topic: str, way: str, readers: int) -> Iterator[subprocess.Popen[str]]:
    """Readers of a new group, in a JVM of their own."""
    classes = compile_java([_SOURCE], classpath=kafka_classpath())
    command = [
        *(str(java_command()), "-Xmx300m", "-cp", f"{classes}:{kafka_classpath()}"),
        *("ShareReaders", servers, CLIENT, f"group-{uuid.uuid4().hex[:8]}", topic),
        *(str(VALUES), str(readers), way),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as jvm:
        try:
            yield jvm
        finally:
            jvm.kill()


def read(servers: str, topic: str, way: str, readers: int) -> list[str]:
    """What these readers say of each delivery."""
    with reading(servers, topic, way, readers) as jvm:
        said, _ = jvm.communicate(timeout=180)
    *lines, end = said.splitlines()
    assert end == f"end {VALUES}", lines[-5:]
    return lines


def meant(way: str) -> Counter[str]:
    """Each value once; where some are given back, these twice."""
    lines = []
    for value in range(VALUES):
        if way == "mixed" and value % 11 == 0:
            lines.append(f"{value} 1 REJECT")
        elif way == "mixed" and value % 7 == 0:
            lines += [f"{value} 1 RELEASE", f"{value} 2 ACCEPT"]
        else:
            lines.append(f"{value} 1 ACCEPT")
    return Counter(lines)


def excess_bytes(rows: Sequence[dict[str, object]]) -> float:
    """By how much what was delivered in any time is more than the limit alone lets through."""
    most = level = 0.0
    before_us: int | None = None
    for row in rows:
        now_us = int(str(row["ts_us"]))
        if before_us is not None:
            level = max(0.0, level - (now_us - before_us) * LIMIT / 1e6)
        before_us = now_us
        level += float(str(row["value"]))
        most = max(most, level)
    return most


@pytest.mark.parametrize(("way", "readers"), [("implicit", 1), ("mixed", 2)])
def test_over_its_quota_each_delivery_is_as_without_a_gateway(
    share_kafka: LocalKafka, topic: str, spark: SparkSession, tmp_path: Path, way: str, readers: int
) -> None:
    direct = read(share_kafka.bootstrap_servers, topic, way, readers)
    with tapped_gateway(tmp_path, share_kafka, quotas=QUOTAS, kafka_properties=WINDOW) as gateway:
        through = read(gateway.bootstrap_servers, topic, way, readers)
        gateway.assert_no_address_leaked()
        rows = [row for row in gateway.recorded() if row["api_key"] == SHARE_FETCH]

    assert Counter(direct) == Counter(through) == meant(way)
    charged = [row for row in rows if row["outcome"] != "rejected"]
    assert {row["quota_type"] for row in rows} == {"FETCH"}
    assert sum(float(str(row["value"])) for row in charged) > VALUES * VALUE_BYTES
    assert len(charged) < len(rows), "nobody was held back"
    for node_id in {row["node_id"] for row in charged}:
        of_node = [row for row in charged if row["node_id"] == node_id]
        largest = max(float(str(row["value"])) for row in of_node)
        # What an empty window takes, 2 to 3 s, and the answers that were on their way with the last one.
        assert excess_bytes(of_node) <= 3 * LIMIT + readers * largest
    result = law_of(spark, tmp_path / "record")
    assert result.holds, result


def test_the_tools_of_share_groups_see_the_same(
    share_kafka: LocalKafka, topic: str, tmp_path: Path
) -> None:
    with tapped_gateway(tmp_path, share_kafka, quotas=QUOTAS) as gateway:
        read(share_kafka.bootstrap_servers, topic, "sync", 1)

        def said(servers: str, *arguments: str) -> list[str]:
            done = share_kafka.run_tool(_SHARE_GROUPS, "--bootstrap-server", servers, *arguments)
            assert done.returncode == 0, done.stdout + done.stderr
            return sorted(done.stdout.split("\n"))

        groups = [line for line in said(gateway.bootstrap_servers, "--list") if line]
        group = groups[-1]
        for arguments in (
            ["--list"],
            ["--describe", "--group", group],
            ["--describe", "--group", group, "--state"],
        ):
            end = time.monotonic() + 120
            direct, through = [], [[""]]
            while through != direct:  # brokers write what a group has read a little later
                assert time.monotonic() < end, (arguments, direct, through)
                direct, through = (
                    _without_addresses(said(servers, *arguments))
                    for servers in (share_kafka.bootstrap_servers, gateway.bootstrap_servers)
                )
        said(gateway.bootstrap_servers, *("--delete-offsets", "--group", group, "--topic", topic))
        said(gateway.bootstrap_servers, "--delete", "--group", group)
        assert group not in said(share_kafka.bootstrap_servers, "--list")
        gateway.assert_no_address_leaked()


def _without_addresses(lines: list[str]) -> list[list[str]]:
    return [[word for word in line.split() if "127.0.0." not in word] for line in lines]


def test_a_gateway_that_drains_and_comes_again_loses_nothing(
    share_kafka: LocalKafka, topic: str, tmp_path: Path
) -> None:
    config = gateway_toml(
        upstream=share_kafka.bootstrap_servers,
        node_ids="0-8",
        enforce={"FETCH": True},
        kafka=WINDOW,
    )
    gateway = GatewayProcess(tmp_path, config=config, quotas=QUOTAS)
    with gateway, reading(gateway.bootstrap_servers, topic, "sync", 2) as jvm:
        assert jvm.stdout is not None
        lines = [jvm.stdout.readline() for _ in range(VALUES // 3)]
        assert gateway.stop() == 0
        gateway.start()
        # The readers end by themselves. What has been read ahead of these lines ``communicate`` would not find.
        *rest, end = jvm.stdout.read().splitlines()
        assert " ERROR " not in gateway.log
    assert end == f"end {VALUES}"
    settled = {line.split()[0] for line in (*lines, *rest) if line[0].isdigit()}
    assert len(settled) == VALUES
