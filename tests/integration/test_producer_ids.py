"""New producer ids beyond their quota: what real clients report as delivered is in the log, exactly once."""

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaProducer
from tests.integration.test_gateway_http import metrics_of

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.localkafka import LocalKafka

_RECORDS = 120
_WINDOW_S = 4
_QUOTAS = "[[quota]]\nuser_default = true\nproducer_ids_rate = 2\n"
_SETTINGS = {
    "producer.id.quota.window.size.seconds": _WINDOW_S,
    "producer.id.quota.cache.cleanup.scheduler.interval.ms": 1000,
}
_AT_MOST_S = 120.0
# So often an id must have been refused, or nothing was tried.
_REFUSED_MIN = 2

# Sends numbered records with this prefix; returns those that were reported as delivered.
Client = Callable[[str, str, str], set[str]]


@pytest.fixture
def gateway(kafka: LocalKafka, tmp_path: Path) -> Iterator[GatewayProcess]:
    config = gateway_toml(
        upstream=kafka.bootstrap_servers,
        node_ids="0-2",
        enforce={"PRODUCER_ID": True},
        record="record",
        kafka=_SETTINGS,
        http_port=0,
    )
    with GatewayProcess(tmp_path, config=config, quotas=_QUOTAS) as process:
        yield process


def librdkafka(servers: str, topic: str, prefix: str) -> set[str]:
    """Five requests in flight, a record in each."""
    delivered: set[str] = set()

    def on_delivery(error: object, message: object) -> None:
        if error is None:
            delivered.add(message.value().decode())  # type: ignore[attr-defined]

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "max.in.flight": 5,
            "batch.num.messages": 1,
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    for number in range(_RECORDS):
        producer.produce(topic, f"{prefix}{number}".encode(), on_delivery=on_delivery)
    assert producer.flush(_AT_MOST_S) == 0
    return delivered


def kafka_python(servers: str, topic: str, prefix: str) -> set[str]:
    producer = KafkaProducer(
        bootstrap_servers=servers,
        enable_idempotence=True,
        batch_size=0,
        linger_ms=0,
        delivery_timeout_ms=300_000,
    )
    try:
        futures = {
            value: producer.send(topic, value.encode())
            for value in (f"{prefix}{number}" for number in range(_RECORDS))
        }
        producer.flush(_AT_MOST_S)
    finally:
        producer.close(timeout=5)
    return {value for value, future in futures.items() if future.succeeded()}


def aiokafka(servers: str, topic: str, prefix: str) -> set[str]:
    async def produce() -> set[str]:
        delivered = set()
        producer = AIOKafkaProducer(
            bootstrap_servers=servers,
            enable_idempotence=True,
            max_batch_size=100,
            request_timeout_ms=120_000,  # a batch fails that has waited so long
        )
        await producer.start()
        try:
            futures = {}
            for number in range(_RECORDS):
                value = f"{prefix}{number}"
                futures[value] = await producer.send(topic, value.encode())
            await producer.flush()
            for value, future in futures.items():
                if not future.exception():
                    delivered.add(value)
        finally:
            await producer.stop()
        return delivered

    return asyncio.run(produce())


def java(kafka: LocalKafka, folder: Path) -> Client:
    """Apache's VerifiableProducer, which says of each record what has become of it."""
    config = folder / "producer.properties"
    config.write_text(
        "enable.idempotence=true\nretries=2147483647\nacks=all\nbatch.size=1\n"
        "max.in.flight.requests.per.connection=5\n"
    )

    def produce(servers: str, topic: str, prefix: str) -> set[str]:
        del prefix  # it takes numbers alone
        done = kafka.run_tool(
            "org.apache.kafka.tools.VerifiableProducer",
            *("--bootstrap-server", servers, "--topic", topic, "--max-messages", str(_RECORDS)),
            *("--throughput", "-1", "--acks", "-1", "--value-prefix", "7"),
            *("--command-config", str(config)),
            timeout_s=_AT_MOST_S,
        )
        said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert said, done.stderr
        return {one["value"] for one in said if one["name"] == "producer_send_success"}

    return produce


@contextmanager
def running(work: Callable[[], object]) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield thread
    thread.join(_AT_MOST_S)
    assert not thread.is_alive()


class Known:
    """A producer that has written before the storm, and goes on: it must never notice."""

    def __init__(self, servers: str, topic: str) -> None:
        self.delivered: list[str] = []
        self.failed: list[str] = []
        self.sent_again = self._requests = 0
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 0,
                "log_level": 0,
                "statistics.interval.ms": 500,
                "stats_cb": self._counted,
            }
        )
        self._number = 0

    def write(self, *, times: int = 1) -> None:
        for _ in range(times):
            value = f"known-{self._number}"
            self._number += 1
            self._producer.produce(self._topic, value.encode(), on_delivery=self._told)
            assert self._producer.flush(_AT_MOST_S) == 0
            time.sleep(0.02)

    def _counted(self, statistics: str) -> None:
        brokers = json.loads(statistics)["brokers"].values()
        self._requests = sum(broker["req"].get("Produce", 0) for broker in brokers)

    def end(self) -> None:
        """When the client has counted its requests: each record is one, unless it was sent again."""
        end_s = time.monotonic() + _AT_MOST_S
        while self._requests < self._number and time.monotonic() < end_s:
            self._producer.poll(0.1)
        end_s = time.monotonic() + 1.5  # so that one more is counted, too
        while time.monotonic() < end_s:
            self._producer.poll(0.1)
        self.sent_again = self._requests - self._number

    def _told(self, error: object, message: object) -> None:
        if error is None:
            self.delivered.append(message.value().decode())  # type: ignore[attr-defined]
        else:
            self.failed.append(str(error))


def logged(servers: str, topic: str) -> Counter[str]:
    """What is in the log up to its end as it is now, read from the broker itself."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": uuid4().hex})
    partition = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(partition, _AT_MOST_S)
    consumer.assign([partition])
    found: Counter[str] = Counter()
    end_s = time.monotonic() + _AT_MOST_S
    while found.total() < end and time.monotonic() < end_s:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found[message.value().decode()] += 1
    consumer.close()
    assert found.total() == end
    return found


def refused(gateway: GatewayProcess) -> int:
    """How often a new id was refused; ends the gateway."""
    assert gateway.stop() == 0
    rows: list[dict[str, object]] = []
    for path in (gateway.folder / "record").glob("*.parquet"):
        rows += pq.read_table(path).to_pylist()
    of_ids = [row for row in rows if row["quota_type"] == "PRODUCER_ID"]
    return sum(row["outcome"] == "rejected" for row in of_ids)


def refused_so_far(gateway: GatewayProcess) -> int:
    """How often a new id was refused, by its metrics."""
    return sum(
        int(value)
        for (name, labels), value in metrics_of(gateway).items()
        if name == "kvota_decisions_total"
        and {"PRODUCER_ID", "rejected"} <= {text for _, text in labels}
    )


@pytest.mark.timeout(600)
def test_what_clients_report_as_delivered_is_in_the_log_once(
    gateway: GatewayProcess, kafka: LocalKafka, tmp_path: Path
) -> None:
    topic, servers = f"ids-{uuid4().hex[:8]}", gateway.bootstrap_servers
    kafka.create_topic(topic, partitions=1)
    clients: dict[str, Client] = {
        "librdkafka-": librdkafka,
        "kafka-python-": kafka_python,
        "aiokafka-": aiokafka,
        "java": java(kafka, tmp_path),
    }
    python = {name: client for name, client in clients.items() if name != "java"}
    delivered: dict[str, set[str]] = {}

    def storm(prefix: str, client: Client) -> None:
        delivered[prefix] = client(servers, topic, prefix)

    known = Known(servers, topic)
    known.write(times=5)
    end_s = time.monotonic() + _AT_MOST_S
    coming, came = clients, set(clients)
    while coming:
        threads = [threading.Thread(target=storm, args=one, daemon=True) for one in coming.items()]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            known.write()
        assert delivered.keys() == came
        # Where the machine stood still there were ids again for all: others come, until some were refused.
        enough = refused_so_far(gateway) >= _REFUSED_MIN or time.monotonic() > end_s
        coming = {} if enough else {f"{len(came)}-{name}": one for name, one in python.items()}
        came |= coming.keys()
    known.end()

    found = logged(kafka.bootstrap_servers, topic)
    for prefix, values in delivered.items():
        assert len(values) == _RECORDS, (prefix, len(values))
        assert {found[value] for value in values} == {1}, prefix
    assert not known.failed
    assert known.sent_again == 0  # what was refused would have been
    assert {found[value] for value in known.delivered} == {1}
    assert refused(gateway) >= _REFUSED_MIN
