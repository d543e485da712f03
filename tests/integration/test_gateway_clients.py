"""Real clients, unmodified, through the gateway to one broker, to three, and to an older one."""

import time
import uuid
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic as KafkaPythonTopic
from tests.integration.tapped_gateway import TappedGateway, tapped_gateway

# Far above what these clients do: charged, in force, never reached.
QUOTAS = """
[[quota]]
user_default = true
producer_byte_rate = "10GB/s"
consumer_byte_rate = "10GB/s"
controller_mutation_rate = "100000/s"
"""
RECORDS = 3_000
# A broker follows its controller; a JVM that asks it begins slowly on a busy machine.
KNOWN_S, TOOL_S = 60, 150


@pytest.fixture(scope="module", params=["kafka", "kafka3", "kafka_3_9"])
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TappedGateway]:
    kafka = request.getfixturevalue(request.param)
    with tapped_gateway(tmp_path_factory.mktemp("clients"), kafka, quotas=QUOTAS) as tapped:
        yield tapped
        assert tapped.process.running
        assert [line for line in tapped.log.splitlines() if " ERROR " in line] == []


@pytest.fixture
def topic(gateway: TappedGateway) -> str:
    """A topic whose leaders are spread over all brokers."""
    name = f"clients-{uuid.uuid4().hex[:8]}"
    gateway.kafka.create_topic(name, partitions=2 * len(gateway.kafka.nodes))
    return name


def tool(gateway: TappedGateway, main_class: str, *arguments: str) -> str:
    done = gateway.kafka.run_tool(
        main_class,
        *("--bootstrap-server", gateway.bootstrap_servers, *arguments),
        timeout_s=TOOL_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_java_producer_and_console_consumer(gateway: TappedGateway, topic: str) -> None:
    produced = gateway.kafka.run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(RECORDS), "--record-size", "1000"),
        *("--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={gateway.bootstrap_servers}"),
        timeout_s=TOOL_S,
    )
    assert f"{RECORDS} records sent" in produced.stdout, produced.stdout + produced.stderr
    consumed = tool(
        gateway,
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--topic", topic, "--from-beginning", "--max-messages", str(RECORDS)),
        *("--timeout-ms", "60000"),
    )

    assert len(consumed.splitlines()) == RECORDS
    gateway.assert_no_address_leaked()


def test_kafka_topics(gateway: TappedGateway) -> None:
    command = "org.apache.kafka.tools.TopicCommand"
    name = f"made-{uuid.uuid4().hex[:8]}"

    tool(gateway, command, "--create", "--topic", name, "--partitions", "3")
    gateway.kafka.await_topic(name, 3)
    tool(gateway, command, "--alter", "--topic", name, "--partitions", "5")
    gateway.kafka.await_topic(name, 5)
    described = tool(gateway, command, "--describe", "--topic", name)
    tool(gateway, command, "--delete", "--topic", name)
    gateway.kafka.await_topic(name, 0)

    assert "PartitionCount: 5" in described
    assert name not in tool(gateway, command, "--list").split()
    gateway.assert_no_address_leaked()


def test_kafka_configs(gateway: TappedGateway, topic: str) -> None:
    command = "kafka.admin.ConfigCommand"
    entity = ("--entity-type", "topics", "--entity-name", topic)

    tool(gateway, command, "--alter", *entity, "--add-config", "retention.ms=1234567")

    end = time.monotonic() + KNOWN_S
    while "retention.ms=1234567" not in (said := tool(gateway, command, "--describe", *entity)):
        assert time.monotonic() < end, said
    gateway.assert_no_address_leaked()


def test_librdkafka(gateway: TappedGateway, topic: str) -> None:
    config = {"bootstrap.servers": gateway.bootstrap_servers, "client.id": "librdkafka"}
    failed: list[object] = []
    producer = Producer(config | {"enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(
            topic, b"%d" % number, on_delivery=lambda error, _: failed.append(error) if error else None
        )  # fmt: skip
    assert producer.flush(60) == 0
    consumer = Consumer(config | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    received: list[bytes] = []
    while len(received) < RECORDS:
        received += [m.value() for m in consumer.consume(RECORDS, 30) if not m.error()]
    consumer.close()

    assert failed == []
    assert sorted(map(int, received)) == list(range(RECORDS))
    gateway.assert_no_address_leaked()


def test_librdkafkas_admin_client(gateway: TappedGateway) -> None:
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap_servers})
    names = [f"rd-{uuid.uuid4().hex[:8]}" for _ in range(3)]

    made = admin.create_topics([NewTopic(name, 2, 1) for name in names])
    assert [future.result(60) for future in made.values()] == [None] * 3
    gone = admin.delete_topics(names)
    assert [future.result(60) for future in gone.values()] == [None] * 3

    brokers = admin.list_topics(timeout=60).brokers.values()
    assert {(b.host, b.port) for b in brokers} == {
        gateway.node(node.node_id) for node in gateway.kafka.nodes
    }
    gateway.assert_no_address_leaked()


async def test_aiokafka(gateway: TappedGateway, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=gateway.bootstrap_servers) as producer:
        sent = [await producer.send(topic, b"%d" % number) for number in range(RECORDS)]
        for delivery in sent:
            await delivery
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=gateway.bootstrap_servers,
        group_id=topic,
        auto_offset_reset="earliest",
    )
    async with consumer:
        received = [(await consumer.getone()).value for _ in range(RECORDS)]

    assert sorted(map(int, received)) == list(range(RECORDS))
    gateway.assert_no_address_leaked()


def test_kafka_python(gateway: TappedGateway, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=gateway.bootstrap_servers, client_id="python")
    for number in range(RECORDS):
        producer.send(topic, b"%d" % number)
    producer.flush(60)
    producer.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=gateway.bootstrap_servers,
        group_id=topic,
        auto_offset_reset="earliest",
        consumer_timeout_ms=100_000,
    )
    received = [next(consumer).value for _ in range(RECORDS)]
    consumer.close()

    assert sorted(map(int, received)) == list(range(RECORDS))
    gateway.assert_no_address_leaked()


def described_partitions(admin: KafkaAdminClient, name: str) -> int:
    """As soon as the asked broker has heard of the topic; it is created before all have."""
    end = time.monotonic() + KNOWN_S
    while True:
        (described,) = admin.describe_topics([name])
        if described["partitions"] or time.monotonic() > end:
            return len(described["partitions"])
        time.sleep(0.1)


def test_kafka_pythons_admin_client(gateway: TappedGateway) -> None:
    admin = KafkaAdminClient(bootstrap_servers=gateway.bootstrap_servers)
    name = f"py-{uuid.uuid4().hex[:8]}"

    admin.create_topics([KafkaPythonTopic(name, 4, 1)])
    partitions = described_partitions(admin, name)
    admin.delete_topics([name])
    admin.close()

    assert partitions == 4
    gateway.assert_no_address_leaked()
