"""Consumers that have far more to read than their quota: every record once, by every client."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.localkafka import LocalKafka
from kvota.model.bucket_settings import BucketSettings
from kvota.model.quota_type import QuotaType

RECORDS, RECORD_BYTES, PARTITIONS = 4_000, 1_000, 4
LIMIT = 400_000
# Ten seconds of the limit, and as long as clients take to begin where the machine has other work.
WAIT_S = 150.0
pytestmark = pytest.mark.timeout(400)
QUOTAS = f"""
[[quota]]
client_id_default = true
consumer_byte_rate = {LIMIT}
"""
# A window of 2 s instead of 10: its fill would be all there is to read.
KAFKA = {"quota.window.num": 3}
BUCKETS = {QuotaType.FETCH: BucketSettings(burst_ms=1_000, debt_max_ms=2_000)}


@pytest.fixture(scope="module")
def topic(kafka: LocalKafka) -> str:
    """Ten seconds of the limit for each client."""
    name = "over-their-limit"
    kafka.create_topic(name, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 20})
    for number in range(RECORDS):
        value = b"%d" % number
        producer.produce(name, value.ljust(RECORD_BYTES), partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0
    return name


@pytest.fixture(params=["sampled_rate", "token_bucket"])
def gateway(
    request: pytest.FixtureRequest, kafka: LocalKafka, tmp_path: Path
) -> Iterator[GatewayProcess]:
    config = gateway_toml(
        upstream=kafka.bootstrap_servers,
        node_ids="0-8",
        enforce={"FETCH": True},
        buckets=BUCKETS if request.param == "token_bucket" else None,
        record="record",
        kafka=KAFKA,
    )
    process = GatewayProcess(tmp_path, config=config, quotas=QUOTAS)
    with process:
        yield process


def by_librdkafka(servers: str, topic: str) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "client.id": "librdkafka",
            "group.id": f"librdkafka-{servers}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    received: list[bytes] = []
    deadline = time.monotonic() + WAIT_S
    while len(received) < RECORDS and time.monotonic() < deadline:
        received += [m.value() for m in consumer.consume(500, 1) if not m.error()]
    received += [m.value() for m in consumer.consume(500, 1) if not m.error()]
    consumer.close()
    return received


def by_kafka_python(servers: str, topic: str) -> list[bytes]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        client_id="kafka-python",
        group_id=f"kafka-python-{servers}",
        auto_offset_reset="earliest",
    )
    received: list[bytes] = []
    deadline = time.monotonic() + WAIT_S
    while len(received) < RECORDS and time.monotonic() < deadline:
        for records in consumer.poll(500).values():
            received += [record.value for record in records]
    for records in consumer.poll(500).values():
        received += [record.value for record in records]
    consumer.close()
    return received


def by_aiokafka(servers: str, topic: str) -> list[bytes]:
    async def consume() -> list[bytes]:
        received: list[bytes] = []
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            client_id="aiokafka",
            group_id=f"aiokafka-{servers}",
            auto_offset_reset="earliest",
        )
        async with consumer:
            deadline = time.monotonic() + WAIT_S
            while len(received) < RECORDS and time.monotonic() < deadline:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    received += [record.value for record in records]
            for records in (await consumer.getmany(timeout_ms=500)).values():
                received += [record.value for record in records]
        return received

    return asyncio.run(consume())


def by_java(kafka: LocalKafka, servers: str, topic: str) -> list[bytes]:
    done = kafka.run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", servers, "--topic", topic, "--from-beginning"),
        *("--command-property", "client.id=java"),
        *("--max-messages", str(RECORDS), "--timeout-ms", str(int(WAIT_S * 1000))),
        timeout_s=2 * WAIT_S,
    )
    return done.stdout.encode().splitlines()


def test_every_record_is_read_once(gateway: GatewayProcess, kafka: LocalKafka, topic: str) -> None:
    servers = gateway.bootstrap_servers
    ways: dict[str, Callable[[], list[bytes]]] = {
        "librdkafka": lambda: by_librdkafka(servers, topic),
        "kafka-python": lambda: by_kafka_python(servers, topic),
        "aiokafka": lambda: by_aiokafka(servers, topic),
        "java": lambda: by_java(kafka, servers, topic),
    }
    received: dict[str, list[int]] = {}

    def read(name: str) -> None:
        received[name] = sorted(int(value) for value in ways[name]())

    threads = [threading.Thread(target=read, args=(name,), daemon=True) for name in ways]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {name: len(values) for name, values in received.items()} == dict.fromkeys(ways, RECORDS)
    assert all(values == list(range(RECORDS)) for values in received.values())
    assert " ERROR " not in gateway.log
