"""New producer ids in transactions: none comes into a broker's memory uncounted, and clients that are refused finish theirs."""

import asyncio
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as CPartition
from kafka import KafkaProducer
from kafka import TopicPartition as PyPartition
from kafka.structs import OffsetAndMetadata
from tests.adversary.frames import frame
from tests.adversary.wire_client import Lost, WireClient
from tests.integration.test_producer_ids import refused_so_far

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.localkafka import LocalKafka
from kvota.testing import frames
from kvota.testing.frames import PRODUCE
from kvota.testing.transaction_frames import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    COMMIT_OFFSETS,
    errors_of,
    of_transaction,
)

_FIND_COORDINATOR, _INIT_PRODUCER_ID, _END = 10, 22, 26
_DESCRIBE_PRODUCERS = 61
# Partitions that are not there are answered with an error.
_OFFSETS_TOPIC, _OFFSETS_PARTITIONS = "__consumer_offsets", 50
_ATTEMPTS, _QUOTA = 25, 10
# Transactions of each client, each of a new producer; a record in each of so many partitions.
_TRANSACTIONS, _PARTITIONS = 4, 3
# What a step of a client may take on a busy machine, and all of them together.
_AT_MOST_S = 240.0
_READ_OFFSET = 5

Client = Callable[[str, str, str], None]


@contextmanager
def counting(
    kafka: LocalKafka, folder: Path, *, rate: int, window_s: int
) -> Iterator[GatewayProcess]:
    config = gateway_toml(
        upstream=kafka.bootstrap_servers,
        node_ids="0-2",
        enforce={"PRODUCER_ID": True},
        record="record",
        kafka={"producer.id.quota.window.size.seconds": window_s},
        http_port=0,
    )
    quotas = f"[[quota]]\nuser_default = true\nproducer_ids_rate = {rate}\n"
    with GatewayProcess(folder, config=config, quotas=quotas) as process:
        yield process


def rows(gateway: GatewayProcess) -> list[dict[str, object]]:
    """What is recorded of producer ids; ends the gateway."""
    assert gateway.stop() == 0
    found: list[dict[str, object]] = []
    for path in (gateway.folder / "record").glob("*.parquet"):
        found += pq.read_table(path).to_pylist()
    return [row for row in found if row["quota_type"] == "PRODUCER_ID"]


# ------------------------------------------------------------------ an attack


class Attacker:
    """Transactions that produce nothing; a connection that is refused is left for another one."""

    def __init__(self, gateway: GatewayProcess, topic: str) -> None:
        host, port = gateway.bootstrap_servers.split(",")[0].rsplit(":", 1)
        self._address = host, int(port)
        self._topic = topic
        self._connection: WireClient | None = None

    async def ask(self, request: bytes) -> bytes:
        for _ in range(3):
            if self._connection is None:
                self._connection = await WireClient.to(self._address)
            try:
                async with asyncio.timeout(15):
                    return await self._connection.ask(request)
            except Lost:  # it is muted
                self.leave()
        raise AssertionError(request)

    def leave(self) -> None:
        if self._connection is not None:
            self._connection.abort()
        self._connection = None

    async def producer_id(self, name: str) -> int:
        body = _text(name) + struct.pack(">i", 60_000)
        for _ in range(100):
            answer = await self.ask(frame(_INIT_PRODUCER_ID, 0, body, client_id="x"))
            error, found = struct.unpack_from(">hq", answer, 12)
            if not error:
                return int(found)
            await self.ask(frame(_FIND_COORDINATOR, 1, _text(name) + b"\1", client_id="x"))
            await asyncio.sleep(0.1)
        raise AssertionError(error)

    async def begin(self, key: int, version: int, number: int) -> int:
        """Ask once the coordinator does something else than load; returns the error."""
        name = f"txn-{key}-{number}"
        producer_id = await self.producer_id(name)
        request = of_transaction(key, version, producer_id, topics={self._topic: (0, 1)})
        # The transactional id of frames made elsewhere is not ours; nor is the epoch.
        if key == ADD_PARTITIONS:
            body = _text(name) + struct.pack(">qhi", producer_id, 0, 1) + _text(self._topic)
            request = frame(key, version, body + struct.pack(">iii", 2, 0, 1), client_id="x")
        elif key == ADD_OFFSETS:
            body = _text(name) + struct.pack(">qh", producer_id, 0) + _text("group")
            request = frame(key, version, body, client_id="x")
        else:
            body = _text(name) + _text("group") + struct.pack(">qh", producer_id, 0)
            body += struct.pack(">i", 1) + _text(self._topic) + struct.pack(">iiq", 1, 0, 5)
            request = frame(key, version, body + _text(""), client_id="x")
        for _ in range(100):
            answer = await self.ask(request)
            (error,) = set(errors_of(answer, key, version).values())
            if not (throttled := int.from_bytes(answer[8:12], "big")) and error in {14, 15, 16, 51}:
                await self.ask(frame(_FIND_COORDINATOR, 1, _text("group") + b"\0", client_id="x"))
                await asyncio.sleep(0.1)
                continue
            break
        if throttled:
            self.leave()
        if key != COMMIT_OFFSETS and not error:
            body = _text(name) + struct.pack(">qhb", producer_id, 0, 0)
            await self.ask(frame(_END, 0, body, client_id="x"))
        return error


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


async def ids_of(kafka: LocalKafka, topic: str) -> set[int]:
    """At the broker, in __consumer_offsets and in this topic."""
    host, port = kafka.bootstrap_servers.split(",")[0].rsplit(":", 1)
    connection = await WireClient.to((host, int(port)))
    topics = frames.parts(
        _DESCRIBE_PRODUCERS,
        0,
        "request",
        "TopicRequest",
        {"name": topic, "partition_indexes": (0, 1)},
        {"name": _OFFSETS_TOPIC, "partition_indexes": tuple(range(_OFFSETS_PARTITIONS))},
    )
    asked = frames.request(_DESCRIBE_PRODUCERS, 0, topics=topics)
    told = frames.decoded(await connection.ask(asked), _DESCRIBE_PRODUCERS, 0)
    connection.abort()
    return {
        state.producer_id
        for of_topic in told.topics
        for partition in of_topic.partitions
        for state in partition.active_producers
    }


@pytest.mark.parametrize("key", [ADD_PARTITIONS, ADD_OFFSETS, COMMIT_OFFSETS])
def test_transactions_without_a_record_bring_no_more_ids_than_the_quota(
    kafka: LocalKafka, tmp_path: Path, key: int
) -> None:
    topic = f"txn-{uuid4().hex[:8]}"
    kafka.create_topic(topic, partitions=2)

    async def attack(gateway: GatewayProcess) -> tuple[list[int], int]:
        attacker = Attacker(gateway, topic)
        # The topic of offsets is there before it is looked at.
        await attacker.ask(frame(_FIND_COORDINATOR, 1, _text("group") + b"\0", client_id="x"))
        await asyncio.sleep(1)
        before = await ids_of(kafka, topic)
        errors = [await attacker.begin(key, 0, number) for number in range(_ATTEMPTS)]
        attacker.leave()
        # The markers of what has ended are written behind its answer.
        end_s = time.monotonic() + 15
        while key != COMMIT_OFFSETS and time.monotonic() < end_s:
            if len(await ids_of(kafka, topic) - before) >= _ATTEMPTS - errors.count(14):
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.5)  # nor do more come
        return errors, len(await ids_of(kafka, topic) - before)

    with counting(kafka, tmp_path, rate=_QUOTA, window_s=3600) as gateway:
        errors, ids = asyncio.run(attack(gateway))
        recorded = rows(gateway)

    let_on = _ATTEMPTS - errors.count(14)
    # One that looks like a known one passes uncounted: 1 in 10,000, so two of these would be no chance.
    assert _QUOTA <= let_on <= _QUOTA + 1, Counter(errors)
    # A broker of today verifies that the transaction of a TxnOffsetCommit has begun, and may refuse it by itself.
    assert ids <= let_on if key == COMMIT_OFFSETS else ids == let_on
    of_outcome = Counter(row["outcome"] for row in recorded)
    assert of_outcome == {"admitted": _QUOTA, "rejected": _ATTEMPTS - let_on}
    assert {(row["api_key"], row["api_version"]) for row in recorded} == {(key, 0)}


async def keep_spent(gateway: GatewayProcess, topic: str, while_runs: threading.Thread) -> None:
    """Spend ids as soon as they may come, until the one client that runs beside this has been refused."""
    attacker = Attacker(gateway, topic)
    of_attacker = 0
    for number in count(_ATTEMPTS):  # the names before are another test's
        if not while_runs.is_alive() or refused_so_far(gateway) > of_attacker:
            break
        error = await attacker.begin(ADD_PARTITIONS, 0, number)
        of_attacker += error == 14
    attacker.leave()


# ------------------------------------------------------------------ real clients


def librdkafka(servers: str, topic: str, name: str) -> None:
    group = Consumer({"bootstrap.servers": servers, "group.id": name, "log_level": 0})
    for number in range(_TRANSACTIONS):
        producer = Producer(
            {
                "bootstrap.servers": servers,
                "client.id": name,
                "transactional.id": f"{topic}-{name}-{number}",
                "log_level": 0,
            }
        )
        producer.init_transactions(_AT_MOST_S)
        producer.begin_transaction()
        for partition in range(_PARTITIONS):
            producer.produce(topic, f"{name}{number}.{partition}", partition=partition)
        offset = CPartition(topic, 0, _READ_OFFSET + number)
        producer.send_offsets_to_transaction([offset], group.consumer_group_metadata(), _AT_MOST_S)
        producer.commit_transaction(_AT_MOST_S)
    group.close()


def kafka_python(servers: str, topic: str, name: str) -> None:
    for number in range(_TRANSACTIONS):
        producer = KafkaProducer(
            bootstrap_servers=servers,
            client_id=name,
            transactional_id=f"{topic}-{name}-{number}",
            max_block_ms=1_000 * int(_AT_MOST_S),
        )
        try:
            producer.init_transactions()
            producer.begin_transaction()
            for partition in range(_PARTITIONS):
                producer.send(topic, f"{name}{number}.{partition}".encode(), partition=partition)
            offset = OffsetAndMetadata(_READ_OFFSET + number, "", -1)
            producer.send_offsets_to_transaction({PyPartition(topic, 0): offset}, name)
            producer.commit_transaction()
        finally:
            producer.close(timeout=5)


def aiokafka(servers: str, topic: str, name: str) -> None:
    async def produce() -> None:
        for number in range(_TRANSACTIONS):
            producer = AIOKafkaProducer(
                bootstrap_servers=servers,
                client_id=name,
                transactional_id=f"{topic}-{name}-{number}",
            )
            await producer.start()
            async with producer.transaction():
                for partition in range(_PARTITIONS):
                    value = f"{name}{number}.{partition}".encode()
                    await producer.send(topic, value, partition=partition)
                offset = {AioPartition(topic, 0): _READ_OFFSET + number}
                await producer.send_offsets_to_transaction(offset, name)
            await producer.stop()

    asyncio.run(produce())


def java(kafka: LocalKafka, servers: str, topic: str, name: str) -> None:
    """Apache's own tool; its records are the numbers from 0 on, in partitions of its choice."""
    for number in range(_TRANSACTIONS):
        command = kafka.java_command_line(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", topic, "--num-records", str(_PARTITIONS), "--payload-monotonic"),
            *(
                "--transactional-id",
                f"{topic}-{name}-{number}",
                "--transaction-duration-ms",
                "1000",
            ),
            *("--throughput", "-1"),
            *("--producer-props", f"bootstrap.servers={servers}", f"client.id={name}"),
            f"max.block.ms={1_000 * int(_AT_MOST_S)}",
        )
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_AT_MOST_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def committed_records(servers: str, topic: str, expected: int) -> Counter[str]:
    """What readers of committed transactions see in the broker's log."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": uuid4().hex,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    found: Counter[str] = Counter()
    ends: set[int] = set()
    while len(ends) < _PARTITIONS:
        message = consumer.poll(30)
        assert message is not None, (found, expected)
        if message.error() is not None:
            ends.add(message.partition())
        else:
            found[message.value().decode()] += 1
    consumer.close()
    return found


def committed_offset(servers: str, group: str, topic: str, partition: int) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    (found,) = consumer.committed([CPartition(topic, partition)], 30)
    consumer.close()
    return int(found.offset)


# Between clients of today and a broker of 3.9 partitions are added by requests of their own (KIP-890 is younger).
@pytest.mark.parametrize("cluster", ["kafka", "kafka_3_9"])
@pytest.mark.timeout(600)
def test_transactions_that_are_refused_for_a_while_are_committed_once(
    request: pytest.FixtureRequest, tmp_path: Path, cluster: str
) -> None:
    kafka: LocalKafka = request.getfixturevalue(cluster)
    topic = f"txn-{uuid4().hex[:8]}"
    clients: dict[str, Client] = {
        "librdkafka": librdkafka,
        "kafka-python": kafka_python,
        "aiokafka": aiokafka,
        "java": partial(java, kafka),
    }
    spent = f"spent-{topic}"
    kafka.create_topic(topic, partitions=_PARTITIONS)
    kafka.create_topic(spent, partitions=2)
    with_offsets = clients.keys() - {"java"}
    failed: list[str] = []

    def run(name: str, client: Client, servers: str) -> None:
        try:
            client(servers, topic, name)
        except BaseException as error:  # noqa: BLE001  (the test fails with it)
            failed.append(f"{name}: {error!r}")

    # A token comes every 3 s, so that clients of a slow machine are refused, too.
    with counting(kafka, tmp_path, rate=2, window_s=6) as gateway:
        threads = {
            name: threading.Thread(
                target=run, args=(name, client, gateway.bootstrap_servers), daemon=True
            )
            for name, client in clients.items()
        }
        # Its processes take so long to start that the others might have spent nothing any more by then.
        threads["java"].start()
        asyncio.run(keep_spent(gateway, spent, threads["java"]))
        for name in with_offsets:
            threads[name].start()
        end_s = time.monotonic() + _AT_MOST_S
        for name, thread in threads.items():
            thread.join(max(0.0, end_s - time.monotonic()))
            assert not thread.is_alive(), (name, failed)
        recorded = rows(gateway)

    assert not failed
    expected = {
        f"{name}{number}.{record}": 1
        for name in with_offsets
        for number in range(_TRANSACTIONS)
        for record in range(_PARTITIONS)
    }
    expected |= {str(record): _TRANSACTIONS for record in range(_PARTITIONS)}
    found = committed_records(kafka.bootstrap_servers, topic, sum(expected.values()))
    assert found == expected
    last = _READ_OFFSET + _TRANSACTIONS - 1
    for name in with_offsets:
        assert committed_offset(kafka.bootstrap_servers, name, topic, 0) == last
    refused = Counter(
        (str(row["client_id"]), row["api_key"]) for row in recorded if row["outcome"] == "rejected"
    )
    for name in with_offsets:
        assert refused[name, ADD_PARTITIONS] + refused[name, ADD_OFFSETS], refused
    java_key = ADD_PARTITIONS if cluster == "kafka_3_9" else PRODUCE
    assert refused["java", java_key], refused
