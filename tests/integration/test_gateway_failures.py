"""Brokers that die and come back, a gateway that ends or changes its quotas: what clients see of it."""

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from tests.integration.idempotent_producer import IdempotentProducer
from tests.integration.tapped_gateway import TappedGateway, tapped_gateway

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka import LocalKafka
from kvota.localkafka.processes.command_line import SHORT_LIVED

RECORDS = 20_000
UNREACHED = (
    '[[quota]]\nuser_default = true\nproducer_byte_rate = "1GB/s"\nconsumer_byte_rate = "1GB/s"\n'
)


@pytest.fixture(scope="module")
def kafka(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    """A node of our own, to kill."""
    local = LocalKafka(host="127.0.0.2", java_options=SHORT_LIVED)
    local.start()
    yield local
    local.stop(keep_logs=request.session.testsfailed > 0)


@pytest.fixture
def gateway(kafka: LocalKafka, tmp_path: Path) -> Iterator[TappedGateway]:
    with tapped_gateway(tmp_path, kafka, quotas=UNREACHED) as tapped:
        yield tapped


@pytest.fixture
def topic(kafka: LocalKafka) -> str:
    name = f"failures-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, partitions=2)
    return name


def read_all(bootstrap_servers: str, topic: str, count: int) -> list[int]:
    """The numbers in the topic; a second of silence behind the last one ends it."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    numbers: list[int] = []
    silent = 0
    while silent < (60 if len(numbers) < count else 1):
        messages = [m for m in consumer.consume(10_000, 1.0) if not m.error()]
        numbers += [int(message.value()) for message in messages]
        silent = 0 if messages else silent + 1
    consumer.close()
    return numbers


def wait_until(producer: IdempotentProducer, acknowledged: int) -> None:
    while producer.acknowledged < acknowledged:
        assert producer.thread.is_alive(), producer.failed[:3]
        threading.Event().wait(0.01)


def test_every_record_of_an_idempotent_producer_survives_kill_9_of_the_broker_once(
    gateway: TappedGateway, kafka: LocalKafka, topic: str
) -> None:
    producer = IdempotentProducer(gateway.bootstrap_servers, topic, RECORDS, pause_s=0.05)
    wait_until(producer, RECORDS // 10)

    kafka.kill(1)
    kafka.start_node(1)
    producer.thread.join(120)

    assert producer.failed == []
    assert producer.acknowledged == RECORDS
    assert sorted(read_all(gateway.bootstrap_servers, topic, RECORDS)) == list(range(RECORDS))
    assert gateway.process.running
    host, port = kafka.nodes[0].address
    assert f"broker {host}:{port} cannot be reached: Connection refused" in gateway.log
    assert f"broker {host}:{port} can be reached again" in gateway.log
    assert "Traceback" not in gateway.log
    gateway.assert_no_address_leaked()


def test_clients_that_come_before_the_broker_succeed_when_it_is_there(
    gateway: TappedGateway, kafka: LocalKafka, topic: str
) -> None:
    kafka.stop_node(1)

    producer = IdempotentProducer(gateway.bootstrap_servers, topic, 100, pause_s=0)
    while "cannot be reached" not in gateway.log:
        threading.Event().wait(0.05)
    kafka.start_node(1)
    producer.thread.join(120)

    assert (producer.acknowledged, producer.failed) == (100, [])
    assert gateway.log.count("cannot be reached") == 1


def test_no_record_is_lost_or_doubled_when_the_gateway_is_replaced(
    kafka: LocalKafka, tmp_path: Path, topic: str
) -> None:
    first_port = free_port_range(4)
    config = gateway_toml(
        upstream=kafka.bootstrap_servers, first_port=first_port, node_ids="1", record="record"
    )
    bootstrap_servers = f"127.0.0.1:{first_port}"
    one = GatewayProcess(tmp_path / "one", config=config, quotas=UNREACHED)
    other = GatewayProcess(tmp_path / "two", config=config, quotas=UNREACHED)
    with one:
        producer = IdempotentProducer(bootstrap_servers, topic, RECORDS, pause_s=0.05)
        wait_until(producer, RECORDS // 10)
        assert one.stop() == 0
    with other:
        producer.thread.join(120)
        numbers = read_all(bootstrap_servers, topic, RECORDS)

    assert (producer.acknowledged, producer.failed) == (RECORDS, [])
    assert sorted(numbers) == list(range(RECORDS))
    assert "draining" in one.log
    assert "had not finished" not in one.log


def test_quotas_put_in_force_hold_for_open_connections_and_the_rows_say_which(
    gateway: TappedGateway, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": gateway.bootstrap_servers, "client.id": "reload"})
    producer.produce(topic, bytes(1_000))
    assert producer.flush(60) == 0

    gateway.process.reload('[[quota]]\nuser_default = true\nproducer_byte_rate = "1 furlong"\n')
    producer.produce(topic, bytes(1_000))
    assert producer.flush(60) == 0
    gateway.process.reload("[[quota]]\nuser_default = true\nproducer_byte_rate = 450\n")
    # The last one is above the limit however long the others took.
    for value_bytes in (1_000, 1_000, 10_000):
        producer.produce(topic, bytes(value_bytes))
        assert producer.flush(60) == 0

    rows = [row for row in gateway.recorded() if row["quota_type"] == "PRODUCE"]
    limits = [row["limit"] for row in rows]
    assert list(dict.fromkeys(limits)) == [1e9, 450.0], rows
    assert limits.count(450.0) >= 3
    assert rows[-1]["outcome"] == "throttled", rows
    assert "what is in force stays as it is. quotas.toml:3" in gateway.log
