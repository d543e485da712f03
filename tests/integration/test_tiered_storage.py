"""Tiered storage (KIP-405): what a broker has put away in another tier is read through the gateway as from the broker itself."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.integration.conftest import HOST
from tests.integration.raw_client import RawClient
from tests.integration.tapped_gateway import tapped_gateway

from kvota.localkafka import LocalKafka
from kvota.localkafka.jars.class_path import kafka_classpath
from kvota.localkafka.jars.compile_java import compile_java
from kvota.localkafka.processes.command_line import SHORT_LIVED
from kvota.testing.frames import parts, request
from kvota.testing.kafka_messages import throttle

_SOURCE = Path(__file__).parent / "java/FolderStorage.java"
TOPIC = "tiered"
RECORDS, RECORD_BYTES = 6_000, 1_000
FETCH, LIST_OFFSETS = 1, 2
# Where a log begins and ends, with a broker's disk and the other tier: what ListOffsets knows them by.
EARLIEST, LATEST, EARLIEST_LOCAL, LATEST_TIERED = -2, -1, -4, -5
LIMIT = 700_000
QUOTAS = f"""
[[quota]]
client_id = "reader"
consumer_byte_rate = {LIMIT}
"""
# A window of 2 s instead of 10: its fill would be all there is to read.
WINDOW = {"quota.window.num": 3}
_PATIENCE_S = 90.0


@pytest.fixture(scope="module")
def tiered_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """One node that puts segments away as soon as they are full, and keeps none of them."""
    folder = tmp_path_factory.mktemp("other-tier")
    classes = compile_java([_SOURCE], classpath=kafka_classpath())
    kafka = LocalKafka(
        host=HOST,
        properties={
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": "FolderStorage",
            "remote.log.storage.manager.class.path": f"{classes}/",
            "rsm.config.folder": str(folder),
            "remote.log.metadata.manager.listener.name": "PLAINTEXT",
            "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
            "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
            "remote.log.manager.task.interval.ms": "300",
            "log.retention.check.interval.ms": "300",
            "log.initial.task.delay.ms": "300",
        },
        java_options=SHORT_LIVED,
    )
    with kafka:
        kafka.create_topic(
            TOPIC,
            configs={
                "remote.storage.enable": "true",
                "segment.bytes": str(1 << 20),
                "local.retention.bytes": "1",
            },
        )
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        for number in range(RECORDS):
            producer.produce(TOPIC, b"%d" % number + b" " * RECORD_BYTES)
            producer.poll(0)
        assert producer.flush(60) == 0
        _await_put_away(kafka)
        yield kafka


def offset(address: tuple[str, int], which: int) -> tuple[int, int]:
    """Error and offset that a partition's log has for one of the ends."""
    wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": which}
    entries = parts(LIST_OFFSETS, 11, "request", "ListOffsetsPartition", wanted)
    topics = parts(LIST_OFFSETS, 11, "request", "ListOffsetsTopic", {"name": TOPIC, "partitions": entries})  # fmt: skip
    asked = request(
        LIST_OFFSETS,
        11,
        replica_id=-1,
        isolation_level=0,
        topics=topics,
        timeout=throttle(30_000),
    )
    with RawClient(address) as client:
        ((partition,),) = [topic.partitions for topic in client.ask(asked).topics]
    return int(partition.error_code), partition.offset


def _await_put_away(kafka: LocalKafka) -> None:
    end = time.monotonic() + _PATIENCE_S
    while offset(kafka.nodes[0].address, EARLIEST_LOCAL)[1] < RECORDS // 2:
        assert time.monotonic() < end, "the broker has put nothing away"
        time.sleep(0.2)


def read(servers: str) -> list[int]:
    """All records from the beginning of the log on."""
    consumer = Consumer({"bootstrap.servers": servers, "client.id": "reader", "group.id": "tiered"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    numbers: list[int] = []
    end = time.monotonic() + _PATIENCE_S
    while len(numbers) < RECORDS and time.monotonic() < end:
        for message in consumer.consume(500, 1):
            assert message.error() is None, message.error()
            numbers.append(int(message.value()))
    consumer.close()
    return numbers


def test_what_is_in_the_other_tier_is_read_and_charged_as_any_answer(
    tiered_kafka: LocalKafka, tmp_path: Path
) -> None:
    with tapped_gateway(tmp_path, tiered_kafka, quotas=QUOTAS, kafka_properties=WINDOW) as gateway:
        through = read(gateway.bootstrap_servers)
        gateway.assert_no_address_leaked()
        rows = [row for row in gateway.recorded() if row["api_key"] == FETCH]

    assert read(tiered_kafka.bootstrap_servers) == through == list(range(RECORDS))
    charged = [row for row in rows if row["outcome"] != "rejected"]
    assert sum(float(str(row["value"])) for row in charged) > RECORDS * RECORD_BYTES
    assert max(int(str(row["throttle_ms"])) for row in rows) > 0, "nobody was held back"


def test_the_ends_of_such_a_log_are_told_as_by_the_broker(
    tiered_kafka: LocalKafka, tmp_path: Path
) -> None:
    with tapped_gateway(tmp_path, tiered_kafka) as gateway:
        for which in (EARLIEST, LATEST, EARLIEST_LOCAL, LATEST_TIERED):
            straight = through = (-1, -1)
            end = time.monotonic() + _PATIENCE_S
            while straight != through or straight[0]:  # it goes on to put away what is left
                assert time.monotonic() < end, (which, straight, through)
                straight = offset(tiered_kafka.nodes[0].address, which)
                through = offset(gateway.node(tiered_kafka.nodes[0].node_id), which)
    assert offset(tiered_kafka.nodes[0].address, EARLIEST) == (0, 0)
    assert offset(tiered_kafka.nodes[0].address, LATEST) == (0, RECORDS)
    assert offset(tiered_kafka.nodes[0].address, EARLIEST_LOCAL)[1] > 0
