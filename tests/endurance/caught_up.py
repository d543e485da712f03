"""Consumers that have read all there is, under a quota with plenty of room: when is a new record with them?

The same consumers at the same time on each way: straight to the broker, through a gateway without a quota, and through one
with a quota by each algorithm. A record goes to the topic of one way after the other, in an order drawn anew each time,
straight to the broker. So whatever else the machine does meets all ways alike.
"""

import random
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.adversary.frames import error_of_produce, produce
from tests.endurance.client_process import ClientProcess, python_client
from tests.endurance.gated_kafka import NODES_MAX, gateway_config
from tests.integration.raw_client import RawClient

from kvota.app.gateway_process import GatewayProcess, free_port_range
from kvota.localkafka import LocalKafka
from kvota.model.bucket_settings import BucketSettings
from kvota.model.quota_type import Algorithm

BROKER, UNLIMITED = "broker", "unlimited"
ALGORITHMS = tuple(algorithm.value for algorithm in Algorithm)
WAYS = (BROKER, UNLIMITED, *ALGORITHMS)
HOUR_MS, MAX_WAIT_MS = 3_600_000, 500
THE_PATIENT = 0  # the number of the consumer that waits for an hour
CLIENT_ID = "caught-up"
_NOT_LEADER = 6
_WAIT_S = 60.0
_LOOK_S = 0.02
_LOOK_AT_ALL_S = 0.2  # at all that was said


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many, and what they are sent.

    Attributes:
        consumers: on each way; one of them waits for an hour.
        limit: of all consumers of a way together, in bytes per second.
        record_bytes: sizes of the records; each has a phase of its own, and one behind restarts.
        parts: of each phase; behind restarts each part begins with one.
        records: of each part, on each way.
        pause_s: between two records, whatever their way.
        settle_s: behind the last of a part, until it is with everybody.
    """

    consumers: int
    limit: float
    record_bytes: Sequence[int]
    parts: int
    records: int
    pause_s: float
    settle_s: float


class Got(NamedTuple):
    """One record with one consumer."""

    consumer: int
    offset: int
    at_ns: int


@dataclass(frozen=True)
class Seen:
    """What the consumers of one way saw of the records of one part.

    Attributes:
        latencies_ms: from when a record was about to be produced until it was with a consumer, ascending.
        patient_ms: of the one that waits for an hour.
        missing: of consumers and records, how many pairs did not meet.
        twice: how many met again.
    """

    latencies_ms: list[float]
    patient_ms: list[float]
    missing: int
    twice: int

    def quantile(self, share: float) -> float:
        """Of all latencies, in ms."""
        return self.latencies_ms[int(len(self.latencies_ms) * share)]


@dataclass
class Way:
    """Consumers on one way, the topic that they read, and when its records were produced."""

    name: str
    consumers: ClientProcess
    gateway: GatewayProcess | None
    produced_ns: list[int]

    @property
    def topic(self) -> str:
        return topic_of(self.name)

    def wait_until_all_wait(self, connections: int) -> None:
        """Until at least so many connections were made, and all consumers wait."""
        end = time.monotonic() + _WAIT_S
        while self.connections < connections:
            assert time.monotonic() < end, f"{self.name}: {self.consumers.errors}"
            time.sleep(_LOOK_S)

    def wait_until_all_got(self, records: int) -> None:
        """Until all consumers together have had so many, or for a while: what is missing then is counted later."""
        end = time.monotonic() + _WAIT_S
        while self._got() < records and time.monotonic() < end:
            time.sleep(_LOOK_AT_ALL_S)

    def _got(self) -> int:
        return sum(line.startswith("got ") for line in self.consumers.lines)

    @property
    def connections(self) -> int:
        """How many the consumers had made when all of them waited last; 0: they never did."""
        said = [line for line in self.consumers.lines if line.startswith("waiting ")]
        return int(said[-1].split()[1]) if said else 0


def topic_of(way: str) -> str:
    return f"caught-up-{way}".replace("_", "-")


def run_caught_up(
    kafka: LocalKafka, folder: Path, plan: Plan
) -> tuple[dict[str, dict[str, list[Seen]]], list[str]]:
    """What was seen in each part, by phase and way; and what went wrong."""
    phases: dict[str, list[dict[str, range]]] = {}
    for name in WAYS:
        kafka.create_topic(topic_of(name))
    with ExitStack() as stack:
        ways = [_start(stack, kafka, folder, name, plan) for name in WAYS]
        for way in ways:
            way.wait_until_all_wait(plan.consumers)
        with RawClient(kafka.nodes[0].address) as producer:
            _produce(producer, ways, plan.record_bytes[0], plan)  # the broker's code gets warm
            for size in plan.record_bytes:
                phases[f"{size:,} bytes"] = [
                    _produce(producer, ways, size, plan) for _ in range(plan.parts)
                ]
            for size in plan.record_bytes:
                parts = phases[f"{size:,} bytes, right behind a restart"] = []
                for _ in range(plan.parts):
                    _restart(ways, plan)
                    parts.append(_produce(producer, ways, size, plan))
        for way in ways:
            way.wait_until_all_got(plan.consumers * len(way.produced_ns))
        time.sleep(plan.settle_s)  # who gets one twice gets it soon
        for way in ways:
            way.consumers.ask_to_end()
        said = {way.name: way.consumers.result() for way in ways}
        logs = "".join(way.gateway.log for way in ways if way.gateway is not None)
    wrong = [
        f"{name}: {line}"
        for name, lines in said.items()
        for line in lines
        if line.startswith("strange ")
    ]
    wrong += [line for line in logs.splitlines() if " ERROR " in line or "Traceback" in line]
    got = {name: _parsed(lines) for name, lines in said.items()}
    seen = {
        phase: {
            way.name: [_seen(got[way.name], way, part[way.name], plan) for part in parts]
            for way in ways
        }
        for phase, parts in phases.items()
    }
    return seen, wrong


def _start(stack: ExitStack, kafka: LocalKafka, folder: Path, name: str, plan: Plan) -> Way:
    gateway = None
    address = kafka.nodes[0].address
    if name != BROKER:
        first_port = free_port_range(NODES_MAX + 2)
        algorithm = Algorithm.SAMPLED_RATE if name == UNLIMITED else Algorithm(name)
        entry = f'[[quota]]\nclient_id = "{CLIENT_ID}"\nconsumer_byte_rate = {plan.limit}\n'
        gateway = GatewayProcess(
            folder / name,
            config=gateway_config(kafka, first_port, algorithm, bucket=BucketSettings()),
            quotas="" if name == UNLIMITED else entry,
        )
        stack.enter_context(gateway)
        address = ("127.0.0.1", first_port + 1 + kafka.nodes[0].node_id)
    waits_ms = f"{MAX_WAIT_MS},{HOUR_MS}"
    command = python_client(
        "fetching", *address, topic_of(name), CLIENT_ID, plan.consumers, waits_ms
    )
    consumers = stack.enter_context(ClientProcess(folder, name, command))
    return Way(name, consumers, gateway, [])


def _produce(
    producer: RawClient, ways: Sequence[Way], size_bytes: int, plan: Plan
) -> dict[str, range]:
    """One record after the other to each way; the offsets of each way's records."""
    begin = {way.name: len(way.produced_ns) for way in ways}
    for _ in range(plan.records):
        for way in random.sample(ways, len(ways)):
            frame = produce(way.topic, size_bytes, client_id="producer")
            way.produced_ns.append(time.time_ns())
            end = time.monotonic() + _WAIT_S
            while error := _produced(producer, frame):
                # A broker that has not been heard for seconds leads nothing for a moment.
                assert error == _NOT_LEADER, f"Produce: error {error}"
                assert time.monotonic() < end, "the broker does not lead its partition again"
                time.sleep(_LOOK_S)
            time.sleep(plan.pause_s)
    time.sleep(plan.settle_s)
    return {way.name: range(begin[way.name], len(way.produced_ns)) for way in ways}


def _produced(producer: RawClient, frame: bytes) -> int:
    """Send it; returns the broker's error, 0 for none."""
    producer.send(frame)
    return error_of_produce(producer.frame())


def _restart(ways: Sequence[Way], plan: Plan) -> None:
    """All gateways at once; returns as soon as all of their consumers ask again."""
    gated = [way for way in ways if way.gateway is not None]
    before = {way.name: way.connections for way in gated}

    def restart(way: Way) -> None:
        assert way.gateway is not None
        assert way.gateway.stop() == 0
        way.gateway.start()
        way.wait_until_all_wait(before[way.name] + plan.consumers)

    with ThreadPoolExecutor(len(gated)) as pool:
        list(pool.map(restart, gated))


def _parsed(lines: Sequence[str]) -> list[Got]:
    return [Got(*map(int, line.split()[1:])) for line in lines if line.startswith("got ")]


def _seen(got: Sequence[Got], way: Way, offsets: range, plan: Plan) -> Seen:
    mine = [one for one in got if one.offset in offsets]
    times = Counter((one.consumer, one.offset) for one in mine)

    def latency_ms(one: Got) -> float:
        return (one.at_ns - way.produced_ns[one.offset]) / 1e6

    return Seen(
        latencies_ms=sorted(map(latency_ms, mine)),
        patient_ms=sorted(latency_ms(one) for one in mine if one.consumer == THE_PATIENT),
        missing=plan.consumers * len(offsets) - len(times),
        twice=len(mine) - len(times),
    )
