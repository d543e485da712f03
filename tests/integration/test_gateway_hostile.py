"""Ten thousand strangers and twenty thousand damaged requests: nobody else is the worse for them."""

import asyncio
import re
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient
from kafka.admin import NewTopic as KafkaPythonTopic
from tests.adversary.memory import mib_of
from tests.integration.hostile_clients import (
    LARGE_STRANGERS,
    STRANGERS,
    Fate,
    Outcome,
    attack,
    mutants,
)
from tests.integration.idempotent_producer import IdempotentProducer
from tests.integration.tapped_gateway import TappedGateway, tapped_gateway

from kvota.localkafka import LocalKafka
from kvota.localkafka.processes.command_line import SHORT_LIVED
from kvota.testing.frames import split

pytestmark = pytest.mark.timeout(600)

GROWTH_MAX_MIB = 20
STRANGERS_COUNT, MUTANTS_COUNT = 10_000, 20_000
SEED = 599
QUOTAS = """
[[quota]]
user_default = true
producer_byte_rate = "1GB/s"
consumer_byte_rate = "1GB/s"
controller_mutation_rate = 1000
"""
CLOSED = re.compile(
    r"connection \d+ from 127\.0\.0\.1:(\d+)(?: closed: .|.*; (?:\d+ answers?|no answer) )"
)


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalKafka]:
    """A node with a small heap, which one request of 100 MB too many exhausts."""
    session = {"broker.session.timeout.ms": "30000"}  # it is busy
    with LocalKafka(
        host="127.0.0.2", heap_mb=300, properties=session, java_options=SHORT_LIVED
    ) as local:
        local.create_topic("hostile", partitions=3)
        yield local


@pytest.fixture
def gateway(kafka: LocalKafka, tmp_path: Path) -> Iterator[TappedGateway]:
    # What would come again and again is only counted above debug.
    with tapped_gateway(
        tmp_path, kafka, quotas=QUOTAS, limits={"frame_time": "1s"}, log_level="debug"
    ) as tapped:
        yield tapped


@pytest.fixture
def good_client(gateway: TappedGateway) -> Iterator[IdempotentProducer]:
    """Sends all the time, and must not notice anything."""
    producer = IdempotentProducer(gateway.bootstrap_servers, "hostile", 10**9, pause_s=0.1)
    while not producer.acknowledged:
        assert not producer.failed
        threading.Event().wait(0.05)
    yield producer
    producer.stop()


@pytest.fixture
def memory(gateway: TappedGateway, good_client: IdempotentProducer) -> Iterator["Memory"]:
    watched = Memory(gateway.process.pid)
    yield watched
    watched.growth_mib()


class Memory:
    """Resident memory of a process, watched by a thread."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stopping = threading.Event()
        self.at_start_mib = self.peak_mib = self._now_mib()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def growth_mib(self) -> float:
        """By how much the peak exceeds the start; ends the watching."""
        self._stopping.set()
        self._thread.join()
        return self.peak_mib - self.at_start_mib

    def _watch(self) -> None:
        while not self._stopping.wait(0.02):
            self.peak_mib = max(self.peak_mib, self._now_mib())

    def _now_mib(self) -> float:
        return mib_of(self._pid, "VmRSS:")


def run_attack(
    gateway: TappedGateway, openings: Iterator[bytes], at_once: int, *, patience_s: float = 60
) -> Outcome:
    address = ("127.0.0.1", gateway.first_port)
    return asyncio.run(attack(address, openings, at_once=at_once, patience_s=patience_s))


def unexplained(outcome: Outcome, log: str) -> Counter[int]:
    """Connections closed without an answer for which the log has no line, by their port."""
    told = Counter(int(found[1]) for found in CLOSED.finditer(log))
    return outcome.closed_ports - told


def assert_unharmed(gateway: TappedGateway, kafka: LocalKafka, pid: int) -> None:
    assert gateway.process.running
    assert "Traceback" not in gateway.log
    assert (kafka.nodes[0].pid, kafka.nodes[0].running) == (pid, True)
    _, error, behind = kafka.nodes[0].log_path.read_text().partition("OutOfMemoryError")
    assert not error, behind[:2_000]


def test_strangers_are_closed_with_a_reason_and_cost_nobody_anything(
    gateway: TappedGateway, kafka: LocalKafka, good_client: IdempotentProducer, memory: "Memory"
) -> None:
    broker_pid = kafka.nodes[0].pid
    before = good_client.acknowledged
    kinds = (STRANGERS[number % len(STRANGERS)] for number in range(STRANGERS_COUNT))

    outcome = run_attack(gateway, kinds, at_once=500)

    assert outcome.fates == {Fate.CLOSED: STRANGERS_COUNT}
    assert unexplained(outcome, gateway.log) == Counter()
    assert memory.growth_mib() < GROWTH_MAX_MIB
    assert good_client.acknowledged > before + 100
    assert good_client.failed == []
    assert_unharmed(gateway, kafka, broker_pid)


def test_who_announces_much_and_sends_little_does_not_exhaust_the_broker(
    gateway: TappedGateway, kafka: LocalKafka, good_client: IdempotentProducer, memory: "Memory"
) -> None:
    broker_pid = kafka.nodes[0].pid
    before = good_client.acknowledged
    kinds = (LARGE_STRANGERS[number % len(LARGE_STRANGERS)] for number in range(1_000))

    outcome = run_attack(gateway, kinds, at_once=200)

    assert outcome.fates == {Fate.CLOSED: 1_000}
    assert unexplained(outcome, gateway.log) == Counter()
    assert memory.growth_mib() < GROWTH_MAX_MIB
    assert good_client.acknowledged > before + 100
    assert good_client.failed == []
    assert_unharmed(gateway, kafka, broker_pid)


def test_damaged_requests_are_answered_or_closed_with_a_reason(
    gateway: TappedGateway, kafka: LocalKafka, good_client: IdempotentProducer, memory: "Memory"
) -> None:
    frames = recorded_requests(gateway)
    assert len({frame[5] for frame in frames}) >= 15, "too few APIs to damage"
    broker_pid = kafka.nodes[0].pid
    before = good_client.acknowledged

    openings = mutants(frames, MUTANTS_COUNT, SEED)
    # Not as patient: some wait for good, at the broker.
    outcome = run_attack(gateway, openings, at_once=100, patience_s=20)

    assert outcome.fates[Fate.WAITING] < MUTANTS_COUNT / 1000  # long polls that were made longer
    assert outcome.fates[Fate.CLOSED] > MUTANTS_COUNT / 2
    assert outcome.fates[Fate.ANSWERED] > MUTANTS_COUNT / 20
    assert unexplained(outcome, gateway.log) == Counter()
    assert memory.growth_mib() < GROWTH_MAX_MIB
    assert good_client.acknowledged > before + 100
    assert good_client.failed == []
    assert_unharmed(gateway, kafka, broker_pid)


def recorded_requests(gateway: TappedGateway) -> list[bytes]:
    """What real clients sent: up to ten of each API and version."""
    config = {"bootstrap.servers": gateway.bootstrap_servers}
    producer = Producer(config | {"enable.idempotence": True})
    producer.produce("hostile", bytes(200))
    assert producer.flush(60) == 0
    consumer = Consumer(config | {"group.id": "recorded", "auto.offset.reset": "earliest"})
    consumer.subscribe(["hostile"])
    while not [message for message in consumer.consume(1, 1) if not message.error()]:
        pass
    consumer.commit(asynchronous=False)
    consumer.close()
    admin = AdminClient(config)
    [made.result(60) for made in admin.create_topics([NewTopic("recorded", 2, 1)]).values()]
    [gone.result(60) for gone in admin.delete_topics(["recorded"]).values()]
    python = KafkaAdminClient(bootstrap_servers=gateway.bootstrap_servers)
    python.create_topics([KafkaPythonTopic("recorded-too", 2, 1)])
    python.create_partitions({"recorded-too": 3})
    python.describe_topics(["recorded-too"])
    python.delete_topics(["recorded-too"])
    python.close()
    by_kind: dict[bytes, list[bytes]] = {}
    for frame in chain.from_iterable(map(whole_frames, gateway.tap.sent_by_clients)):
        by_kind.setdefault(frame[4:8], []).append(frame)
    return [frame for frames in by_kind.values() for frame in frames[:10]]


def whole_frames(stream: bytes) -> list[bytes]:
    """Those of a connection that may still be in the middle of one."""
    at = 0
    while at + 4 <= len(stream):
        end = at + 4 + int.from_bytes(stream[at : at + 4], "big")
        if end > len(stream):
            break
        at = end
    return split(stream[:at])
