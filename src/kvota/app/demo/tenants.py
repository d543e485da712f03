"""Runs one of the demo's tenants: real clients, unmodified, each in a process of its own.

    python -m kvota.app.demo.tenants NAME '{"bootstrap_servers": ..., "seconds": ..., "report": ...}'

``orders`` sends and reads small records at a steady rate and minds its latency; ``analytics`` sends all
it can; ``ci-bot`` creates and deletes topics in storms. Each writes what it saw to its report, as JSON.
"""

import json
import logging
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kvota.wire.error_code import ErrorCode

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

log = logging.getLogger(__name__)

ORDERS, ANALYTICS, CI_BOT = "orders", "analytics", "ci-bot"
TENANTS = (ORDERS, ANALYTICS, CI_BOT)

ORDERS_PER_S = 1_500
ORDER_BYTES = 1_000
ANALYTICS_RECORD_BYTES = 16_000
TOPICS_PER_STORM = 4
PARTITIONS_PER_TOPIC = 4


@dataclass(slots=True)
class TenantReport:
    """One tenant's view of one run."""

    sent_records: int = 0
    failed_records: int = 0
    received_records: int = 0
    latencies_ms: list[float] = field(default_factory=list)
    refused_topics: int = 0
    created_topics: int = 0


@dataclass(frozen=True, slots=True)
class TenantJob:
    """One tenant's job: the servers, how long to run, and the file for the report."""

    bootstrap_servers: str
    password: str
    seconds: float
    report: str


def topic_of(tenant: str) -> str:
    """Return the name of the tenant's own topic."""
    return f"{tenant}-events"


def main(argv: list[str]) -> None:
    """Run one tenant for as long as its job says."""
    logging.basicConfig(level=logging.ERROR)
    name, job = argv[0], TenantJob(**json.loads(argv[1]))
    report = {ORDERS: _orders, ANALYTICS: _analytics, CI_BOT: _ci_bot}[name](job)
    Path(job.report).write_text(json.dumps(asdict(report)))


def _librdkafka(job: TenantJob, name: str, mechanism: str) -> dict[str, object]:
    return {
        "bootstrap.servers": job.bootstrap_servers,
        "client.id": name,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": job.password,
    }


def _orders(job: TenantJob) -> TenantReport:
    """Run a steady idempotent producer and a consumer of the same topic, in one process."""
    from confluent_kafka import Consumer, KafkaException, Producer

    report = TenantReport()
    connection = _librdkafka(job, ORDERS, "SCRAM-SHA-256")
    consumer = Consumer(
        connection
        | {
            "group.id": f"orders-{time.time_ns()}",
            "auto.offset.reset": "latest",
            "fetch.wait.max.ms": 50,
        }
    )
    producer = Producer(
        connection | {"enable.idempotence": True, "linger.ms": 2, "compression.type": "none"}
    )
    topic = topic_of(ORDERS)
    consumer.subscribe([topic])
    deadline = time.monotonic() + 15
    while not consumer.assignment() and time.monotonic() < deadline:
        consumer.poll(0.1)

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            report.failed_records += 1

    padding = b"." * (ORDER_BYTES - 20)
    _meet(producer, consumer, topic, deadline)
    start = time.monotonic()
    while (elapsed := time.monotonic() - start) < job.seconds:
        while report.sent_records < elapsed * ORDERS_PER_S:
            payload = b"%020d" % time.time_ns() + padding
            producer.produce(topic, payload, on_delivery=delivered)
            report.sent_records += 1
        producer.poll(0)
        _receive(consumer, report, 0.002)
    producer.flush(30)
    quiet_until = time.monotonic() + 2
    while report.received_records < report.sent_records and time.monotonic() < quiet_until:
        if _receive(consumer, report, 0.1):
            quiet_until = time.monotonic() + 2
    try:
        consumer.close()
    except KafkaException:
        log.exception("closing the consumer")
    return report


def _meet(producer: object, consumer: object, topic: str, deadline: float) -> None:
    """Send until something comes back, then read on, so that the consumer misses nothing later."""
    met = TenantReport()
    while not met.received_records and time.monotonic() < deadline:
        producer.produce(topic, b"%020d" % time.time_ns())  # type: ignore[attr-defined]
        producer.flush(5)  # type: ignore[attr-defined]
        _receive(consumer, met, 0.2)
    while _receive(consumer, met, 0.5):
        pass


def _receive(consumer: object, report: TenantReport, wait_s: float) -> int:
    messages = consumer.consume(500, wait_s)  # type: ignore[attr-defined]
    now_ns = time.time_ns()
    for message in messages:
        if message.error() is None:
            report.received_records += 1
            report.latencies_ms.append((now_ns - int(message.value()[:20])) / 1e6)
    return len(messages)


def _analytics(job: TenantJob) -> TenantReport:
    """Run a producer that sends all it can and ignores throttling, as librdkafka does."""
    from confluent_kafka import Producer

    report = TenantReport()

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            report.failed_records += 1

    producer = Producer(
        _librdkafka(job, ANALYTICS, "PLAIN")
        | {
            "linger.ms": 20,
            "batch.size": 250_000,
            "queue.buffering.max.kbytes": 16_384,
            "message.timeout.ms": 120_000,
            "compression.type": "none",
        }
    )
    payload = bytes(ANALYTICS_RECORD_BYTES)
    end = time.monotonic() + job.seconds
    while time.monotonic() < end:
        try:
            producer.produce(topic_of(ANALYTICS), payload, on_delivery=delivered)
            report.sent_records += 1
            producer.poll(0)
        except BufferError:
            producer.poll(0.02)
    # Records still in its queue are given up: the demo measures what got through, and says so.
    producer.purge()
    producer.flush(10)
    return report


def _ci_bot(job: TenantJob) -> TenantReport:
    """Create and delete topics in storms; refused deletions are tried again with the next storm."""
    from kafka import KafkaAdminClient
    from kafka.errors import NodeNotReadyError

    report = TenantReport()
    admin = KafkaAdminClient(
        bootstrap_servers=job.bootstrap_servers,
        client_id=CI_BOT,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username=CI_BOT,
        sasl_plain_password=job.password,
    )
    end = time.monotonic() + job.seconds
    existing: list[str] = []
    try:
        while time.monotonic() < end:
            try:
                existing = _storm(admin, existing, report)
            except NodeNotReadyError:  # the client itself keeps to the answered throttle time
                time.sleep(0.05)
    finally:
        admin.close()
    return report


def _storm(admin: "KafkaAdminClient", existing: list[str], report: TenantReport) -> list[str]:
    """Create a few topics, delete all there are; return those that could not be deleted."""
    from kafka.admin import NewTopic

    names = [f"ci-{time.time_ns()}-{index}" for index in range(TOPICS_PER_STORM)]
    answer = admin.create_topics(
        [NewTopic(name, PARTITIONS_PER_TOPIC, 1) for name in names],
        timeout_ms=10_000,
        raise_errors=False,
    )
    created = _split(answer["topics"], report)
    report.created_topics += len(created)
    existing += created
    if not existing:
        return existing
    answer = admin.delete_topics(existing, timeout_ms=10_000, raise_errors=False)
    deleted = set(_split(answer["topics"], report))
    return [name for name in existing if name not in deleted]


def _split(results: list[dict[str, object]], report: TenantReport) -> list[str]:
    """Return the topics without an error; refusals are counted."""
    report.refused_topics += sum(
        result["error_code"] == ErrorCode.THROTTLING_QUOTA_EXCEEDED for result in results
    )
    return [str(result["name"]) for result in results if result["error_code"] == 0]


if __name__ == "__main__":
    main(sys.argv[1:])
