"""Runs one of the demo's tenants: real clients, unmodified, each in a process of its own.

    python -m kvota.app.demo.tenants NAME '{"bootstrap_servers": ..., "seconds": ..., "report": ...}'

``orders`` sends and reads small records at a steady rate and minds its latency; ``analytics`` sends all
it can, over ten connections; ``crashloop`` makes a producer for each batch and is gone; ``ci-bot`` creates and deletes
topics in storms. Each writes what it saw to its report, as JSON.
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
    from confluent_kafka import Consumer, KafkaError, Producer
    from kafka import KafkaAdminClient

log = logging.getLogger(__name__)

ORDERS, ANALYTICS, CRASHLOOP, CI_BOT = "orders", "analytics", "crashloop", "ci-bot"
TENANTS = (ORDERS, ANALYTICS, CRASHLOOP, CI_BOT)
# Each has a topic of its own.
PRODUCING = (ORDERS, ANALYTICS, CRASHLOOP)

ORDERS_PER_S = 1_500
ORDER_BYTES = 1_000
ANALYTICS_CONNECTIONS = 10
ANALYTICS_RECORD_BYTES = 16_000
CRASHLOOP_AT_ONCE = 8
CRASHLOOP_RECORDS = 10
# The first ones crash when they have done their work; each later one after twice that time, done or not, as the
# orchestrator of its pods sees to. No sooner than this, and two generations at least: on a busy machine, too, they
# bring more producer ids than are allowed.
CRASHLOOP_LIVES_S = 1.5
CRASHLOOP_GENERATIONS = 2
TOPICS_PER_STORM = 4
PARTITIONS_PER_TOPIC = 4

# Behind the time it was sent and its number.
_PADDING = b"." * (ORDER_BYTES - 30)
_MEET_S = 60.0
_FLUSH_S = 60.0
_QUIET_S = 10.0


@dataclass(slots=True)
class TenantReport:
    """One tenant's view of one run.

    ``delivered_records``: what its clients were told has been written; ``stored_records``: what is in the
    topic, or has come back, of this run. ``failed_records`` its clients reported as lost. ``producers``: how many it made,
    where it makes one after the other.
    """

    sent_records: int = 0
    delivered_records: int = 0
    failed_records: int = 0
    stored_records: int = 0
    latencies_ms: list[float] = field(default_factory=list)
    producers: int = 0
    refused_topics: int = 0
    created_topics: int = 0

    def delivered(self, error: "KafkaError | None", _message: object) -> None:
        """Count what a client says of one record; what the demo itself gave up is no loss."""
        from confluent_kafka import KafkaError

        if error is None:
            self.delivered_records += 1
        elif error.code() not in {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}:  # noqa: SLF001
            self.failed_records += 1


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
    report = _RUN[name](job)
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
    _meet(producer, consumer, topic)
    seen: set[int] = set()
    start = time.monotonic()
    while (elapsed := time.monotonic() - start) < job.seconds:
        while report.sent_records < elapsed * ORDERS_PER_S:
            payload = b"%020d%010d" % (time.time_ns(), report.sent_records) + _PADDING
            producer.produce(topic, payload, on_delivery=report.delivered)
            report.sent_records += 1
        producer.poll(0)
        _receive(consumer, report, seen, 0.002)
    report.failed_records += producer.flush(_FLUSH_S)
    # What is still on its way shows within this time, on the slowest machine.
    quiet_until = time.monotonic() + _QUIET_S
    while len(seen) < report.delivered_records and time.monotonic() < quiet_until:
        if _receive(consumer, report, seen, 0.1):
            quiet_until = time.monotonic() + _QUIET_S
    report.stored_records = len(seen)
    try:
        consumer.close()
    except KafkaException:
        log.exception("closing the consumer")
    return report


def _meet(producer: "Producer", consumer: "Consumer", topic: str) -> None:
    """Send until something comes back, so that the consumer misses nothing later."""
    deadline = time.monotonic() + _MEET_S
    while not any(message.error() is None for message in consumer.consume(500, 0.2)):
        if time.monotonic() > deadline:
            msg = f"nothing that was sent to {topic} came back within {_MEET_S:.0f} s"
            raise TimeoutError(msg)
        producer.produce(topic, b"hello")
        producer.flush(5)


def _receive(consumer: "Consumer", report: TenantReport, seen: set[int], wait_s: float) -> int:
    messages = consumer.consume(500, wait_s)
    now_ns = time.time_ns()
    for message in messages:
        value = message.value()
        if message.error() is None and value is not None and len(value) == ORDER_BYTES:
            seen.add(int(value[20:30]))
            report.latencies_ms.append((now_ns - int(value[:20])) / 1e6)
    return len(messages)


def _analytics(job: TenantJob) -> TenantReport:
    """Run producers that send all they can and ignore throttling, as librdkafka does."""
    from confluent_kafka import Consumer, Producer

    report = TenantReport()
    settings = _librdkafka(job, ANALYTICS, "PLAIN")
    producers = [
        Producer(
            settings
            | {
                "linger.ms": 20,
                "batch.size": 250_000,
                "queue.buffering.max.kbytes": 16_384 // ANALYTICS_CONNECTIONS,
                "message.timeout.ms": 120_000,
                "compression.type": "none",
            }
        )
        for _ in range(ANALYTICS_CONNECTIONS)
    ]
    topic = topic_of(ANALYTICS)
    looks = Consumer(settings | {"group.id": ANALYTICS})
    stored_before = _stored(looks, topic)
    payload = bytes(ANALYTICS_RECORD_BYTES)
    end = time.monotonic() + job.seconds
    while time.monotonic() < end:
        went = [_send(producer, topic, payload, report) for producer in producers]
        if not any(went):
            time.sleep(0.005)
    for producer in producers:
        # Records still in its queue are given up: the demo measures what got through, and says so.
        producer.purge()
        producer.flush(_FLUSH_S)
    report.stored_records = _stored(looks, topic) - stored_before
    looks.close()
    return report


def _crashloop(job: TenantJob) -> TenantReport:
    """Run idempotent producers that send one batch each: all of them crash, and others begin."""
    from confluent_kafka import Consumer, Producer

    report = TenantReport()
    settings = _librdkafka(job, CRASHLOOP, "PLAIN") | {"log_level": 0}
    topic = topic_of(CRASHLOOP)
    looks = Consumer(settings | {"group.id": CRASHLOOP})
    stored_before = _stored(looks, topic)
    end = time.monotonic() + job.seconds
    lives_s = _MEET_S
    generation = 0
    while generation < CRASHLOOP_GENERATIONS or time.monotonic() < end:
        born_s = time.monotonic()
        producers = [
            Producer(settings | {"enable.idempotence": True, "linger.ms": 0})
            for _ in range(CRASHLOOP_AT_ONCE)
        ]
        report.producers += len(producers)
        for producer in producers:
            for _ in range(CRASHLOOP_RECORDS):
                _send(producer, topic, b"of a short life", report)
        for producer in producers:
            producer.flush(max(0.0, born_s + lives_s - time.monotonic()))
        if generation == 0:
            lives_s = min(_MEET_S, max(CRASHLOOP_LIVES_S, 2 * (time.monotonic() - born_s)))
        for producer in producers:
            producer.purge()
            producer.flush(_FLUSH_S)
        generation += 1
    report.stored_records = _stored(looks, topic) - stored_before
    looks.close()
    return report


def _send(producer: "Producer", topic: str, payload: bytes, report: TenantReport) -> bool:
    """Send one record; False: the queue is full."""
    producer.poll(0)
    try:
        producer.produce(topic, payload, on_delivery=report.delivered)
    except BufferError:
        return False
    report.sent_records += 1
    return True


def _stored(looks: "Consumer", topic: str) -> int:
    """Ask how many records were ever written to a topic."""
    from confluent_kafka import TopicPartition

    partitions = looks.list_topics(topic, _FLUSH_S).topics[topic].partitions
    ends: list[int] = []
    for partition in partitions:
        _, end = looks.get_watermark_offsets(TopicPartition(topic, partition), _FLUSH_S)
        ends.append(end)
    return sum(ends)


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


_RUN = {ORDERS: _orders, ANALYTICS: _analytics, CRASHLOOP: _crashloop, CI_BOT: _ci_bot}


if __name__ == "__main__":
    main(sys.argv[1:])
