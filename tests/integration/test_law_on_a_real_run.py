"""The law on traffic of real clients through the gateway to three real brokers, while its metrics are asked for all the time."""

import contextlib
import threading
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession
from tests.integration.law_of_record import law_by_command, law_of, with_limits_off

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.localkafka import LocalKafka

# A run, and Spark, where the machine has other work.
pytestmark = pytest.mark.timeout(600)

MESSAGES = 3_000
TOPICS_AT_ONCE = 1_200
PARTITIONS = 6
QUOTA_TYPES = ("PRODUCE", "FETCH", "REQUEST", "CONTROLLER_MUTATION")
# Ten at a time, each of which is answered ten times a second.
SCRAPERS = 10
SCRAPES_MIN, SETTLED_S = 100, 90.0

QUOTAS = """
[[quota]]
client_id = "law"
producer_byte_rate = {bytes_per_s}
consumer_byte_rate = {bytes_per_s}
controller_mutation_rate = {partitions_per_s}
request_percentage = {percent}
"""


@dataclass
class Run:
    """What a gateway has recorded, and what its metrics said of it in the end."""

    record: Path
    counted: Counter[str]
    scrapes: int
    failures: list[str]


class Scraping:
    """Asks for metrics on some threads, again and again."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(SCRAPERS)]
        self.scrapes = 0
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(60)

    def _ask(self) -> None:
        while not self._ended.is_set():
            try:
                with urllib.request.urlopen(self._url, timeout=60) as answer:
                    is_whole = answer.read().endswith(b"\n")
                self.scrapes += is_whole
            except OSError as error:
                self.failures.append(str(error))
                return


def decisions(url: str) -> tuple[Counter[str], int]:
    """How many rows of each quota type the metrics tell of, and how many connections there are."""
    with urllib.request.urlopen(url, timeout=60) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    counted: Counter[str] = Counter()
    connections = 0
    for family in families:
        if family.name == "kvota_connections":
            connections = int(family.samples[0].value)
        if family.name in {"kvota_decisions", "kvota_given_back_rows"}:
            for sample in family.samples:
                counted[sample.labels["quota_type"]] += int(sample.value)
    return counted, connections


@pytest.fixture(scope="module")
def watched(kafka3: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """What a gateway recorded: every quota type, with the quotas changed in the middle."""
    folder = tmp_path_factory.mktemp("law")
    kafka3.create_topic("law", partitions=PARTITIONS, replication_factor=1)
    gateway = GatewayProcess(
        folder,
        config=gateway_toml(
            upstream=kafka3.bootstrap_servers,
            # Bandwidth in shadow mode, where throttles are computed and nobody waits for them.
            enforce={
                "PRODUCE": False,
                "FETCH": False,
                "REQUEST": False,
                "CONTROLLER_MUTATION": True,
            },
            record="record",
            http_port=0,
        ),
        quotas=QUOTAS.format(bytes_per_s=20_000, partitions_per_s=0.5, percent=1e-4),
    )
    with gateway, Scraping(f"{gateway.http_url}/metrics") as scraping:
        _produce(gateway.bootstrap_servers)
        _fetch(gateway.bootstrap_servers, MESSAGES // 2)
        _create_topics(gateway.bootstrap_servers, "first")
        gateway.reload(QUOTAS.format(bytes_per_s=35_000, partitions_per_s=0.75, percent=2e-4))
        _produce(gateway.bootstrap_servers)
        _fetch(gateway.bootstrap_servers, MESSAGES // 2)
        _create_topics(gateway.bootstrap_servers, "second")
        counted = _settled(f"{gateway.http_url}/metrics")
        end = time.monotonic() + SETTLED_S
        while scraping.scrapes < SCRAPES_MIN and not scraping.failures and time.monotonic() < end:
            time.sleep(0.1)
    return Run(folder / "record", counted, scraping.scrapes, scraping.failures)


@pytest.fixture(scope="module")
def record(watched: Run) -> Path:
    return watched.record


def _settled(url: str) -> Counter[str]:
    """What the metrics say once all clients have left: what a connection has spent last is charged at its end."""
    end = time.monotonic() + SETTLED_S
    while (seen := decisions(url))[1] and time.monotonic() < end:
        time.sleep(0.1)
    return seen[0]


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


def test_every_row_of_a_real_run_is_replayed_to_the_millisecond(record: Path) -> None:
    rows = pq.read_table(record)
    throttled = rows.filter(pc.greater(rows["throttle_ms"], 0))
    of_type = {
        kind: pc.sum(pc.equal(throttled["quota_type"], kind)).as_py() for kind in QUOTA_TYPES
    }

    done = law_by_command(record)

    assert min(of_type.values()) >= 1_000, of_type
    for kind in QUOTA_TYPES:  # each type before and after the reload
        limits = set(rows.filter(pc.equal(rows["quota_type"], kind))["limit"].to_pylist())
        assert len(limits - {None}) == 2, (kind, limits)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{rows.num_rows:,} rows, {throttled.num_rows:,} throttled" in done.stdout
    assert "all equal" in done.stdout


def test_metrics_that_were_asked_for_all_the_time_agree_with_the_record(watched: Run) -> None:
    kinds = pq.read_table(watched.record, columns=["quota_type"])["quota_type"].to_pylist()

    assert not watched.failures
    assert watched.scrapes >= SCRAPES_MIN
    assert watched.counted == Counter(kinds)


def test_the_law_fails_when_one_limit_is_a_thousandth_off(
    spark: SparkSession, record: Path, tmp_path: Path
) -> None:
    def of_fetches(rows: pa.Table) -> pa.Array:
        return pc.and_(pc.equal(rows["quota_type"], "FETCH"), pc.equal(rows["limit"], 20_000))

    assert with_limits_off(record, tmp_path, of_fetches)

    right, wrong = law_of(spark, record), law_of(spark, tmp_path)

    assert (right.holds, right.differing) == (True, 0)
    assert (wrong.holds, wrong.rows, wrong.unjudged) == (False, right.rows, right.unjudged)
    assert {of_type.quota_type for of_type in wrong.of_types if of_type.differing} == {"FETCH"}
