"""Real clients whose topic is created because they ask for it, under a quota that is spent: they wait, and get there."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.integration.raw_client import RawClient
from tests.integration.tapped_gateway import TappedGateway, tapped_gateway

from kvota.localkafka import LocalKafka
from kvota.testing.frames import METADATA, parts, request, throttle_of
from kvota.testing.kafka_messages import from_frame

# By 40 samples of 1 s: so much at once, and then 1/rate s for each topic of one partition. Where the machine has other work
# a client takes a while until it asks, a JVM half a minute: what is spent then is spent for longer.
SAMPLES = 40
RATES = {"librdkafka": 0.05, "java": 0.025, "old": 0.025}
# And what they wait is far less than what they are given.
PATIENCE_S = 150
AT_ONCE = {client_id: round(rate * SAMPLES) + 1 for client_id, rate in RATES.items()}
QUOTAS = "".join(
    f"""
[[quota]]
client_id = "{client_id}"
controller_mutation_rate = {rate}
"""
    for client_id, rate in RATES.items()
)
RECORDS = 100


@pytest.fixture
def gateway(kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TappedGateway]:
    window = {"controller.quota.window.num": SAMPLES, "controller.quota.window.size.seconds": 1}
    with tapped_gateway(
        tmp_path_factory.mktemp("auto"), kafka, quotas=QUOTAS, kafka_properties=window
    ) as tapped:
        yield tapped


def asks_for(client_id: str, names: list[str], version: int) -> bytes:
    no_id = {"topic_id": None} if version >= 10 else {}
    rows: list[dict[str, object]] = [{"name": name, **no_id} for name in names]
    flag: dict[str, Any] = {"allow_auto_topic_creation": True} if version >= 4 else {}
    topics = parts(METADATA, version, "request", "MetadataRequestTopic", *rows)
    return request(METADATA, version, client=client_id, topics=topics, **flag)


def spend_the_quota(gateway: TappedGateway, client_id: str) -> None:
    """As many topics as there may be at once are created."""
    names = new_names(AT_ONCE[client_id])
    with RawClient(gateway.node(1)) as client:
        told = client.ask(asks_for(client_id, names, 8))
    assert told.throttle_time.total_seconds() == 0


def new_names(count: int) -> list[str]:
    return [f"auto-{uuid.uuid4().hex[:8]}" for _ in range(count)]


def assert_it_waited_and_was_charged(gateway: TappedGateway, client_id: str) -> None:
    """Each topic of one partition once."""
    rows = [row for row in gateway.recorded() if row["quota_type"] == "CONTROLLER_MUTATION"]
    admitted = [row["value"] for row in rows if row["outcome"] == "admitted"]
    assert admitted == [1.0] * (AT_ONCE[client_id] + 1)
    rejected = [row for row in rows if row["outcome"] == "rejected"]
    assert rejected, "it never had to wait"
    assert {row["client_id"] for row in rows} == {client_id}


@pytest.mark.timeout(400)
def test_librdkafka_waits_and_gets_its_topic(gateway: TappedGateway) -> None:
    spend_the_quota(gateway, "librdkafka")
    (topic,) = new_names(1)
    failed: list[object] = []
    producer = Producer(
        {"bootstrap.servers": gateway.bootstrap_servers, "client.id": "librdkafka"}
        # Else a topic that is unknown for so long counts as one that never comes.
        | {"topic.metadata.propagation.max.ms": PATIENCE_S * 1_000}
    )
    for number in range(RECORDS):
        producer.produce(
            topic, b"%d" % number, on_delivery=lambda error, _: failed.append(error) if error else None
        )  # fmt: skip

    assert producer.flush(PATIENCE_S) == 0

    assert failed == []
    assert_it_waited_and_was_charged(gateway, "librdkafka")


@pytest.mark.timeout(400)
def test_the_java_producer_waits_and_gets_its_topic(gateway: TappedGateway) -> None:
    spend_the_quota(gateway, "java")
    (topic,) = new_names(1)

    produced = gateway.kafka.run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(RECORDS), "--record-size", "100"),
        *("--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={gateway.bootstrap_servers}", "client.id=java"),
        f"max.block.ms={PATIENCE_S * 1_000}",
        timeout_s=2 * PATIENCE_S,
    )

    assert f"{RECORDS} records sent" in produced.stdout, produced.stdout + produced.stderr
    assert_it_waited_and_was_charged(gateway, "java")


def test_a_broker_answers_every_version_without_creation(gateway: TappedGateway) -> None:
    spend_the_quota(gateway, "old")
    unknown, known = new_names(2)
    gateway.kafka.create_topic(known, partitions=3)
    for version in range(14):
        with RawClient(gateway.node(1)) as client:
            client.send(asks_for("old", [unknown, known], version))
            answer = client.frame()
        told = from_frame(answer, METADATA, version, "response")
        topics = {
            topic.name: (int(topic.error_code), len(topic.partitions)) for topic in told.topics
        }
        assert topics == {unknown: (3, 0), known: (0, 3)}
        assert version < 3 or throttle_of(answer, METADATA, version) > 0
    gateway.assert_no_address_leaked()
