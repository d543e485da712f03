"""Consumers read from the replica in their rack (KIP-392), through the gateway and at its addresses."""

import time
import uuid
from pathlib import Path

from confluent_kafka import Consumer, Producer
from tests.integration.conftest import HOST
from tests.integration.tapped_gateway import tapped_gateway

from kvota.localkafka import LocalKafka
from kvota.localkafka.processes.command_line import SHORT_LIVED

QUOTAS = """
[[quota]]
user_default = true
consumer_byte_rate = "1GB/s"
"""
RACKS = ("zone-a", "zone-b")
RECORDS = 200


def test_a_consumer_is_sent_to_the_replica_in_its_rack(tmp_path: Path) -> None:
    topic = f"racks-{uuid.uuid4().hex[:8]}"
    with (
        LocalKafka(nodes=2, host=HOST, racks=RACKS, java_options=SHORT_LIVED) as kafka,
        tapped_gateway(tmp_path, kafka, quotas=QUOTAS) as gateway,
    ):
        kafka.create_topic(topic, replication_factor=2)
        producer = Producer({"bootstrap.servers": gateway.bootstrap_servers})
        told = producer.list_topics(topic, 60).topics[topic].partitions[0]
        nearest = next(node for node in told.replicas if node != told.leader)
        consumer = Consumer(
            {
                "bootstrap.servers": gateway.bootstrap_servers,
                "client.rack": RACKS[nearest - 1],
                "group.id": topic,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([topic])
        for number in range(RECORDS):
            producer.produce(topic, b"%d" % number)
        assert producer.flush(60) == 0
        received = 0
        end = time.monotonic() + 60
        while received < RECORDS and time.monotonic() < end:
            received += sum(message.error() is None for message in consumer.consume(RECORDS, 0.5))
        consumer.close()

        gateway.assert_no_address_leaked()
        nodes = {row["node_id"] for row in gateway.recorded() if row["quota_type"] == "FETCH"}

    assert received == RECORDS
    assert nearest in nodes
