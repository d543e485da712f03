"""One port for all nodes: Kafka's own clients find each of three brokers by its name (SNI), and hear of nothing else."""

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.integration.address_scan import addresses_in

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka import Authority, LocalKafka
from kvota.localkafka.jars.class_path import KAFKA_VERSION
from kvota.localkafka.processes.command_line import SHORT_LIVED, kafka_command

RECORDS = 300
TLS = """
[listeners.outside]
bootstrap_port = {port}
node_host = "broker-{{node}}.kafka.example"
advertised_host = "bootstrap.kafka.example"
[listeners.outside.tls]
certfile = "server-keystore.pem"
"""


@pytest.fixture
def outside(kafka3: LocalKafka, tmp_path: Path) -> Iterator[tuple[GatewayProcess, str]]:
    """The gateway, and its bootstrap server for clients that come by TLS."""
    Authority(tmp_path).issue("server", hosts=["*.kafka.example"])
    port = free_port_range(1)
    config = gateway_toml(upstream=kafka3.bootstrap_servers, node_ids="0-3", record="record")
    with GatewayProcess(tmp_path, config=config + TLS.format(port=port), quotas="") as gateway:
        yield gateway, f"bootstrap.kafka.example:{port}"


def java(folder: Path, main_class: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A tool of Kafka's, to which all these names lead here; its debug log on stderr tells whom it calls."""
    names = ["bootstrap", *(f"broker-{node}" for node in range(1, 4))]
    hosts = folder / "hosts"
    hosts.write_text("127.0.0.1 " + " ".join(f"{name}.kafka.example" for name in names) + "\n")
    command = kafka_command(
        KAFKA_VERSION,
        main_class,
        arguments,
        log_level="DEBUG",
        log_stream="SYSTEM_ERR",
        java_options=(*SHORT_LIVED, f"-Djdk.net.hosts.file={hosts}"),
    )
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)


def test_java_finds_each_node_by_its_name(
    kafka3: LocalKafka, outside: tuple[GatewayProcess, str], tmp_path: Path
) -> None:
    gateway, bootstrap = outside
    topic = f"one-port-{uuid.uuid4().hex[:8]}"
    kafka3.create_topic(topic, partitions=3)
    properties = tmp_path / "client.properties"
    properties.write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={tmp_path / 'ca.pem'}\n"
        # Each batch goes to another partition.
        "partitioner.adaptive.partitioning.enable=false\nbatch.size=1\n"
    )
    produced = java(
        tmp_path,
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(RECORDS), "--record-size", "10"),
        *("--throughput", "-1", "--bootstrap-server", bootstrap),
        *("--command-config", str(properties)),
    )
    assert f"{RECORDS} records sent" in produced.stdout, produced.stdout + produced.stderr[-3_000:]
    read = java(
        tmp_path,
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"),
        *("--max-messages", str(RECORDS), "--timeout-ms", "60000"),
        *("--command-config", str(properties)),
    )

    assert len(read.stdout.splitlines()) == RECORDS, read.stderr[-3_000:]
    assert min(ends_of(kafka3, topic)) > 0  # all three leaders were produced to
    said = produced.stderr + read.stderr
    for node in range(1, 4):
        assert f"broker-{node}.kafka.example" in said
    assert addresses_in(said.encode(), kafka3) == []
    assert "closed connection" not in gateway.log


def ends_of(kafka: LocalKafka, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": topic})
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, n), 60)[1] for n in range(3)]
    consumer.close()
    return ends
