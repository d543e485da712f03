"""Transactions of version 2 (KIP-890), step by step: a broker and the gateway in front of it say the same of each."""

import datetime
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta
from tests.integration.raw_client import RawClient

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.localkafka import LocalKafka
from kvota.testing.frames import parts, request
from kvota.testing.kafka_messages import throttle

GROUP = "transactions-v2"
PRODUCE, FIND_COORDINATOR, INIT_PRODUCER_ID = 0, 10, 22
END, COMMIT_OFFSETS, DESCRIBE_TRANSACTIONS = 26, 28, 65
# From these versions on a broker adds a partition, or a group, to a transaction with what is sent to it.
PRODUCE_V2, COMMIT_OFFSETS_V2, END_V2 = 12, 5, 5
_PASSING = {
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
    ErrorCode.concurrent_transactions,
    # Of a leader that does not know its new partition yet.
    ErrorCode.not_leader_or_follower,
    ErrorCode.unknown_topic_or_partition,
}
_MINUTE = i32Timedelta.parse(datetime.timedelta(minutes=1))


class Producer(NamedTuple):
    """Who a broker has made of a transactional id."""

    name: str
    number: int
    epoch: int


class Way(NamedTuple):
    """How a broker is reached; what it has said is kept, without the numbers that differ from one producer to the next."""

    client: RawClient
    topic: str
    said: list[str]

    def ask(self, part: Callable[[Any], Any], key: int, version: int, **fields: object) -> Any:
        """The part of the answer that has its error, when that is none of those that pass by themselves."""
        end = time.monotonic() + 60
        while True:
            told = part(self.client.ask(request(key, version, **fields)))
            if told.error_code not in _PASSING or time.monotonic() > end:
                return told
            time.sleep(0.02)

    def coordinator(self, name: str, kind: int) -> None:
        fields = {"coordinator_keys": (name,), "key_type": kind}
        self.ask(lambda answer: answer.coordinators[0], FIND_COORDINATOR, 6, **fields)

    def begin(self, name: str) -> Producer:
        answer = self.ask(
            lambda answer: answer,
            INIT_PRODUCER_ID,
            5,
            transactional_id=name,
            transaction_timeout=_MINUTE,
            producer_id=-1,
            producer_epoch=-1,
        )
        self.said.append(f"begun: {answer.error_code.name}, epoch {answer.producer_epoch}")
        return Producer(name, answer.producer_id, answer.producer_epoch)

    def produce(self, producer: Producer, version: int, sequence: int) -> None:
        data = batch(producer, sequence)
        entry = parts(PRODUCE, version, "request", "PartitionProduceData", {"index": 0, "records": data})  # fmt: skip
        topics = parts(PRODUCE, version, "request", "TopicProduceData", {"name": self.topic, "partition_data": entry})  # fmt: skip
        told = self.ask(
            lambda answer: answer.responses[0].partition_responses[0],
            PRODUCE,
            version,
            acks=-1,
            transactional_id=producer.name,
            timeout=throttle(30_000),
            topic_data=topics,
        )
        self.said.append(f"batch by v{version}: {told.error_code.name}")

    def commit_offsets(self, producer: Producer, version: int) -> None:
        offsets = parts(
            COMMIT_OFFSETS, version, "request", "TxnOffsetCommitRequestPartition",
            {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": None},
        )  # fmt: skip
        topics = parts(
            COMMIT_OFFSETS, version, "request", "TxnOffsetCommitRequestTopic",
            {"name": self.topic, "partitions": offsets},
        )  # fmt: skip
        told = self.ask(
            lambda answer: answer.topics[0].partitions[0],
            COMMIT_OFFSETS,
            version,
            transactional_id=producer.name,
            group_id=GROUP,
            producer_id=producer.number,
            producer_epoch=producer.epoch,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=topics,
        )
        self.said.append(f"offsets by v{version}: {told.error_code.name}")

    def state(self, producer: Producer) -> Any:
        return self.ask(
            lambda answer: answer.transaction_states[0],
            DESCRIBE_TRANSACTIONS,
            0,
            transactional_ids=(producer.name,),
        )

    def describe(self, producer: Producer) -> None:
        told = self.state(producer)
        topics = {one.topic: list(one.partitions) for one in told.topics}
        self.said.append(f"described: {told.transaction_state}, epoch {told.producer_epoch}, partitions {topics.get(self.topic)}, topics {len(topics)}")  # fmt: skip

    def end(self, producer: Producer, *, is_committed: bool) -> Producer:
        answer = self.ask(
            lambda answer: answer,
            END,
            END_V2,
            transactional_id=producer.name,
            producer_id=producer.number,
            producer_epoch=producer.epoch,
            committed=is_committed,
        )
        while not self.state(producer).transaction_state.startswith("Complete"):
            time.sleep(0.02)  # its partitions do not know of its end yet
        is_same = answer.producer_id == producer.number
        self.said.append(f"ended: {answer.error_code.name}, epoch {answer.producer_epoch}, same producer {is_same}")  # fmt: skip
        return producer._replace(epoch=answer.producer_epoch)


def batch(producer: Producer, sequence: int) -> bytes:
    """One record of a transaction."""
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=1, producer_id=producer.number,
        producer_epoch=producer.epoch, base_sequence=sequence, batch_size=10_000,
    )  # fmt: skip
    builder.append(0, timestamp=1, key=None, value=b"value", headers=[])
    return bytes(builder.build())


def transacted(way: Way, name: str) -> list[str]:
    """What is said of a transaction that is committed, of what is fenced, and of one that is aborted."""
    way.coordinator(name, 1)
    way.coordinator(GROUP, 0)
    first = way.begin(name)
    way.produce(first, PRODUCE_V2 - 1, 0)  # its client would have to add it before
    way.produce(first, PRODUCE_V2, 0)
    way.produce(first, PRODUCE_V2, 1)
    way.commit_offsets(first, COMMIT_OFFSETS_V2)
    way.describe(first)
    second = way.end(first, is_committed=True)
    way.produce(first, PRODUCE_V2, 2)  # what is late of the one before is no part of the next
    way.produce(second, PRODUCE_V2, 0)
    way.describe(second)
    way.end(second, is_committed=False)
    return way.said


@pytest.mark.parametrize("is_counted", [False, True], ids=["plain", "producer ids counted"])
def test_a_transaction_of_version_2_goes_as_at_the_broker(
    kafka: LocalKafka, tmp_path: Path, *, is_counted: bool
) -> None:
    topic = f"transactions-{is_counted}"
    kafka.create_topic(topic)
    config = gateway_toml(
        upstream=kafka.bootstrap_servers, node_ids="0-2", enforce={"PRODUCER_ID": is_counted}
    )
    quotas = "[[quota]]\nuser_default = true\nproducer_ids_rate = 1000\n"
    with GatewayProcess(tmp_path, config=config, quotas=quotas if is_counted else "") as gateway:
        with RawClient(kafka.nodes[0].address) as client:
            direct = transacted(Way(client, topic, []), f"{topic}-direct")
        with RawClient(("127.0.0.1", gateway.first_port)) as client:
            through = transacted(Way(client, topic, []), f"{topic}-through")

    assert (
        through
        == direct
        == [
            "begun: none, epoch 0",
            "batch by v11: transaction_abortable",
            "batch by v12: none",
            "batch by v12: none",
            "offsets by v5: none",
            "described: Ongoing, epoch 0, partitions [0], topics 2",
            "ended: none, epoch 1, same producer True",
            "batch by v12: invalid_producer_epoch",
            "batch by v12: none",
            "described: Ongoing, epoch 1, partitions [0], topics 1",
            "ended: none, epoch 2, same producer True",
        ]
    )
