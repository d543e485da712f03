"""The law on traffic of real clients through the gateway to three real brokers."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka import LocalKafka

MESSAGES = 3_000
TOPICS_AT_ONCE = 1_200
PARTITIONS = 6
QUOTA_TYPES = ("PRODUCE", "FETCH", "CONTROLLER_MUTATION")

QUOTAS = """
[[quota]]
client_id = "law"
producer_byte_rate = {bytes_per_s}
consumer_byte_rate = {bytes_per_s}
controller_mutation_rate = {partitions_per_s}
"""


@pytest.fixture(scope="module")
def record(kafka3: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a gateway recorded: every quota type, with the quotas changed in the middle."""
    folder = tmp_path_factory.mktemp("law")
    kafka3.create_topic("law", partitions=PARTITIONS, replication_factor=1)
    first_port = free_port_range(12)
    gateway = GatewayProcess(
        folder,
        config=gateway_toml(
            upstream=kafka3.bootstrap_servers,
            first_port=first_port,
            # Bandwidth in shadow mode, where throttles are computed and nobody waits for them.
            enforce={"PRODUCE": False, "FETCH": False, "CONTROLLER_MUTATION": True},
            record="record",
        ),
        quotas=QUOTAS.format(bytes_per_s=20_000, partitions_per_s=0.5),
        first_port=first_port,
    )
    with gateway:
        _produce(gateway.bootstrap_servers)
        _fetch(gateway.bootstrap_servers, MESSAGES // 2)
        _create_topics(gateway.bootstrap_servers, "first")
        gateway.reload(QUOTAS.format(bytes_per_s=35_000, partitions_per_s=0.75))
        _produce(gateway.bootstrap_servers)
        _fetch(gateway.bootstrap_servers, MESSAGES // 2)
        _create_topics(gateway.bootstrap_servers, "second")
    return folder / "record"


def _produce(bootstrap_servers: str) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "client.id": "law", "batch.num.messages": 1}
    )
    for number in range(MESSAGES):
        producer.produce("law", bytes(900), partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0


def _fetch(bootstrap_servers: str, count: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "client.id": "law",
            "group.id": "law",
            "enable.auto.commit": False,
            "message.max.bytes": 1_500,
            "fetch.max.bytes": 1_500,
            "max.partition.fetch.bytes": 1_000,
        }
    )
    consumer.assign([TopicPartition("law", number, 0) for number in range(PARTITIONS)])
    received = 0
    while received < count:
        received += len(consumer.consume(500, 20))
    consumer.close()


def _create_topics(bootstrap_servers: str, prefix: str) -> None:
    """One request spends the burst, the next is refused topic by topic."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers, client_id="law")
    refused = [f"law-{prefix}-{number}" for number in range(TOPICS_AT_ONCE)]
    for names in ([f"law-{prefix}-spent"], refused):
        with contextlib.suppress(Exception):  # refused, as it should be: the rows tell
            admin.create_topics([NewTopic(name, 4, 1) for name in names], raise_errors=False)
    admin.close()


def _law(record: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kvota.app.cli.main", "replay", "--law", "--events", str(record)],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def test_every_row_of_a_real_run_is_replayed_to_the_millisecond(record: Path) -> None:
    rows = pq.read_table(record)
    throttled = rows.filter(pc.greater(rows["throttle_ms"], 0))
    of_type = {
        kind: pc.sum(pc.equal(throttled["quota_type"], kind)).as_py() for kind in QUOTA_TYPES
    }

    done = _law(record)

    assert min(of_type.values()) >= 1_000, of_type
    for kind in QUOTA_TYPES:  # each type before and after the reload
        limits = set(rows.filter(pc.equal(rows["quota_type"], kind))["limit"].to_pylist())
        assert len(limits - {None}) == 2, (kind, limits)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{rows.num_rows:,} rows, {throttled.num_rows:,} throttled" in done.stdout
    assert "all equal" in done.stdout


def test_the_law_fails_when_one_limit_is_a_thousandth_off(record: Path, tmp_path: Path) -> None:
    other = tmp_path / "record"
    other.mkdir()
    for file in record.glob("*.parquet"):
        rows = pq.read_table(file)
        one_limit = pc.and_(pc.equal(rows["quota_type"], "FETCH"), pc.equal(rows["limit"], 20_000))
        wrong = pc.if_else(one_limit, pc.multiply(rows["limit"], 1.001), rows["limit"])
        column = rows.schema.get_field_index("limit")
        rows = rows.set_column(column, rows.schema.field("limit"), wrong)
        pq.write_table(rows, other / file.name)

    done = _law(other)

    assert done.returncode == 1, done.stdout + done.stderr
    assert "differ" in done.stdout
