"""No byte of a broker's address reaches a client, though brokers tell theirs wherever they can."""

import subprocess
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from kafka.record.default_records import DefaultRecordBatchBuilder
from tests.integration.address_scan import TAP_HOST, addresses_in, told_endpoints
from tests.integration.brokers_in_step import await_served
from tests.integration.raw_client import RawClient
from tests.integration.tapped_gateway import TappedGateway, tapped_gateway

from kvota.localkafka import LocalKafka
from kvota.testing.frames import FETCH, METADATA, PRODUCE, parts, request
from kvota.testing.kafka_messages import throttle

NOT_LEADER = 6
_MOVED_S = 60


@pytest.fixture(scope="module")
def gateway(
    kafka3: LocalKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TappedGateway]:
    with tapped_gateway(tmp_path_factory.mktemp("addresses"), kafka3) as tapped:
        ask_metadata(RawClient((TAP_HOST, tapped.first_port)))  # now it knows every node
        yield tapped


@pytest.fixture(scope="module")
def topic(kafka3: LocalKafka) -> str:
    kafka3.create_topic("addresses", partitions=6, replication_factor=1)
    await_served(kafka3, "addresses", 6)
    return "addresses"


def ask_metadata(client: RawClient, *names: str, version: int = 12) -> Any:
    topics = parts(
        METADATA, version, "request", "MetadataRequestTopic",
        *({"name": name, "topic_id": None} for name in names),
    )  # fmt: skip
    asked = request(METADATA, version, topics=topics, allow_auto_topic_creation=False)
    with client:
        return client.ask(asked)


def leaders(kafka: LocalKafka, name: str) -> tuple[uuid.UUID, dict[int, int]]:
    """The topic's id, and the leader of each partition."""
    (told,) = ask_metadata(RawClient(kafka.nodes[0].address), name).topics
    return told.topic_id, {p.partition_index: p.leader_id for p in told.partitions}


def batch(records: int = 1, size: int = 100) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1,
        base_sequence=-1, batch_size=10**7,
    )  # fmt: skip
    for offset in range(records):
        builder.append(offset, timestamp=1, key=None, value=bytes(size), headers=[])
    return bytes(builder.build())


def produce_to(topic: str, topic_id: uuid.UUID, partition: int, version: int, data: bytes) -> bytes:
    entry = parts(
        PRODUCE, version, "request", "PartitionProduceData", {"index": partition, "records": data}
    )
    name = {"topic_id": topic_id} if version >= 13 else {"name": topic}
    topics = parts(PRODUCE, version, "request", "TopicProduceData", {**name, "partition_data": entry})  # fmt: skip
    return request(
        PRODUCE, version, acks=1, transactional_id=None, timeout=throttle(30_000), topic_data=topics
    )


def fetch_from(topic_id: uuid.UUID, partitions: list[int], version: int) -> bytes:
    wanted = {"current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1}
    wanted |= {"log_start_offset": -1, "partition_max_bytes": 10**7}
    rows = ({**wanted, "partition": partition} for partition in partitions)
    entries = parts(FETCH, version, "request", "FetchPartition", *rows)
    if hasattr(entries[0], "replica_directory_id"):
        entries = parts(
            FETCH, version, "request", "FetchPartition",
            *({**wanted, "partition": p, "replica_directory_id": None} for p in partitions),
        )  # fmt: skip
    topics = parts(
        FETCH, version, "request", "FetchTopic", {"topic_id": topic_id, "partitions": entries}
    )
    return request(
        FETCH, version, topics=topics, forgotten_topics_data=(), rack_id="", session_id=0,
        session_epoch=-1, isolation_level=0, min_bytes=1, max_bytes=10**8, max_wait=throttle(500),
        cluster_id=None, replica_state=_consumer(version),
    )  # fmt: skip


def _consumer(version: int) -> Any:
    (state,) = parts(FETCH, version, "request", "ReplicaState", {"replica_id": -1, "replica_epoch": -1})  # fmt: skip
    return state


def endpoints(answer: Any) -> set[tuple[int, str, int]]:
    return {(node.node_id, node.host, node.port) for node in answer.node_endpoints}


def test_the_scan_sees_what_a_broker_tells(kafka3: LocalKafka) -> None:
    with RawClient(kafka3.nodes[0].address) as client:
        client.send(request(METADATA, 12, topics=()))
        told = client.frame()

    assert len(addresses_in(told, kafka3)) == 6  # three hosts, three ports
    assert addresses_in(told.replace(b"127.0.0.2", b"127.0.0.3"), kafka3) != []


@pytest.mark.parametrize("version", range(10, 14))
def test_node_endpoints_of_produce_answers(
    gateway: TappedGateway, kafka3: LocalKafka, topic: str, version: int
) -> None:
    topic_id, leader_of = leaders(kafka3, topic)
    leader = leader_of[0]
    other = next(node for node in kafka3.nodes if node.node_id != leader)
    asked = produce_to(topic, topic_id, 0, version, batch())

    with RawClient(other.address) as direct, RawClient(gateway.node(other.node_id)) as client:
        straight, told = direct.ask(asked), client.ask(asked)

    assert straight.responses[0].partition_responses[0].error_code == NOT_LEADER
    assert endpoints(straight) == {(leader, *kafka3.node(leader).address)}
    assert endpoints(told) == {(leader, *gateway.node(leader))}
    assert told.responses == straight.responses
    gateway.assert_no_address_leaked()


@pytest.mark.parametrize("version", [16, 17, 18])
def test_node_endpoints_of_fetch_answers_small_and_streamed(
    gateway: TappedGateway, kafka3: LocalKafka, topic: str, version: int
) -> None:
    topic_id, leader_of = leaders(kafka3, topic)
    here, there = 1, next(p for p in leader_of if leader_of[p] != leader_of[1])
    node = kafka3.node(leader_of[here])
    with RawClient(node.address) as direct:
        stored = direct.ask(produce_to(topic, topic_id, here, 12, batch(300, 1_000)))
        assert stored.responses[0].partition_responses[0].error_code == 0

    for wanted in ([there], [here, there]):
        asked = fetch_from(topic_id, wanted, version)
        with RawClient(node.address) as direct, RawClient(gateway.node(node.node_id)) as client:
            straight = direct.ask(asked)
            client.send(asked)
            told = client.frame()

        assert endpoints(straight) == {(leader_of[there], *kafka3.node(leader_of[there]).address)}
        assert (told_endpoints(told), len(told) > 131_072) in {(1, False), (0, True)}
    gateway.assert_no_address_leaked()


@pytest.mark.timeout(400)
def test_clients_whose_leaders_move_see_only_the_gateway(
    gateway: TappedGateway, kafka3: LocalKafka
) -> None:
    """How many records come through is the clients' affair: moving at this pace, some get stuck
    for their delivery timeout, also where they talk to the brokers themselves."""
    name = f"moving-{uuid.uuid4().hex[:6]}"
    kafka3.create_topic(name, partitions=3, replication_factor=2)
    java = subprocess.Popen(
        kafka3.java_command_line(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", name, "--num-records", "1000000", "--record-size", "500"),
            *("--throughput", "400", "--bootstrap-server", gateway.bootstrap_servers),
        ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    config = {"bootstrap.servers": gateway.bootstrap_servers}
    producer = Producer(config | {"linger.ms": 1})
    consumer = Consumer(config | {"group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([name])
    received = []
    try:
        received.append(_produce_and_consume(producer, consumer, name))
        for _ in range(3):
            _move_leaders(kafka3, name)
            received.append(_produce_and_consume(producer, consumer, name))
    finally:
        java.kill()
        java.wait()
    producer.purge()
    producer.flush(20)
    consumer.close()

    assert min(received) > 0, received
    assert sum(map(told_endpoints, gateway.tap.sent_to_clients)) > 0, "no endpoints were told"
    gateway.assert_no_address_leaked()


def _produce_and_consume(producer: Producer, consumer: Consumer, name: str) -> int:
    """1,000 records, 2 s long; waits until some come back."""
    received = 0
    for _ in range(1_000):
        producer.produce(name, bytes(500))
        producer.poll(0.002)
    while not received:
        received += len([message for message in consumer.consume(5_000, 1) if not message.error()])
    return received


def _move_leaders(kafka: LocalKafka, name: str) -> None:
    """Each partition's replicas take turns at being its leader.

    One that is not in sync is not elected, as on a busy machine: the election is asked for until
    leaders have changed, also in what the brokers tell.
    """
    _topic_id, leader_of = leaders(kafka, name)
    _reassign(kafka, name)
    end = time.monotonic() + _MOVED_S
    while leaders(kafka, name)[1] == leader_of:
        assert time.monotonic() < end, f"no leader has moved: {leader_of}"
        _elect(kafka, name, leader_of)
        time.sleep(0.1)


def _reassign(kafka: LocalKafka, name: str) -> None:
    (told,) = ask_metadata(RawClient(kafka.nodes[0].address), name).topics
    rows = (
        {
            "partition_index": partition.partition_index,
            "replicas": tuple(sorted(partition.replica_nodes, key=lambda node: node == partition.leader_id)),
        }
        for partition in told.partitions
    )  # fmt: skip
    partitions = parts(45, 0, "request", "ReassignablePartition", *rows)
    topics = parts(45, 0, "request", "ReassignableTopic", {"name": name, "partitions": partitions})
    with RawClient(kafka.nodes[0].address) as client:
        assert client.ask(request(45, 0, topics=topics, timeout=throttle(20_000))).error_code == 0


def _elect(kafka: LocalKafka, name: str, leader_of: dict[int, int]) -> None:
    topics = parts(
        43, 2, "request", "TopicPartitions", {"topic": name, "partitions": tuple(leader_of)}
    )
    asked = request(43, 2, election_type=0, topic_partitions=topics, timeout=throttle(20_000))
    with RawClient(kafka.nodes[0].address) as client:
        client.ask(asked)
