"""Consumer groups of several members while the gateway is stopped or killed, and started again: every record is seen."""

import time
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.endurance.client_process import ClientProcess, java_client, python_client
from tests.endurance.findings import Findings
from tests.endurance.gated_kafka import Quota, gateway_before

from kvota.app.gateway_process import GatewayProcess
from kvota.localkafka import LocalKafka
from kvota.model.quota_type import Algorithm

PARTITIONS = 6
RECORD_BYTES = 100
_ALL_SEEN_S = 120.0
_LOOK_S = 0.2


@dataclass(frozen=True)
class Group:
    """So many members of one library."""

    library: str
    protocol: str
    members: int

    @property
    def name(self) -> str:
        """The group's id, and its members' client id."""
        return f"{self.library}-{self.protocol}"

    def command(self, bootstrap: str, topic: str) -> list[str]:
        """Of the process that all members run in."""
        if self.library == "java":
            return java_client("Members", self.protocol, bootstrap, topic, self.name, self.members)
        arguments = (self.library, self.protocol, bootstrap, topic, self.name, self.members)
        return python_client("members", *arguments)


GROUPS = (
    Group("librdkafka", "classic", 3),
    Group("librdkafka", "cooperative", 3),
    Group("librdkafka", "consumer", 3),
    Group("java", "classic", 3),
    Group("java", "consumer", 3),
    Group("kafka-python", "classic", 2),
    Group("aiokafka", "classic", 2),
)


@dataclass(frozen=True, kw_only=True)
class Restarts:
    """What groups read while the gateway goes and comes.

    Attributes:
        records: produced evenly, straight at the broker, while the gateway goes and comes; as many as it takes come before, until each
            member has had one.
        records_per_s: as fast.
        restarts: in turns by SIGTERM and kill -9, evenly while records are produced.
        limit: of each group, in bytes per second of Fetch.
    """

    groups: Sequence[Group]
    records: int
    records_per_s: float
    restarts: int
    limit: float


def run_groups(kafka: LocalKafka, folder: Path, algorithm: Algorithm, plan: Restarts) -> Findings:
    """All groups at once; what they say stays in the folder."""
    topic = f"groups-{algorithm}".replace("_", "-")
    kafka.create_topic(topic, partitions=PARTITIONS)
    quota = Quota(1e12, plan.limit)
    with ExitStack() as stack:
        gateway = stack.enter_context(gateway_before(kafka, folder / "gateway", algorithm, quota))
        members = {
            group: stack.enter_context(
                ClientProcess(folder, group.name, group.command(gateway.bootstrap_servers, topic))
            )
            for group in plan.groups
        }
        values = _produce_until_all_began(kafka.bootstrap_servers, topic, members.values(), plan)
        with ThreadPoolExecutor(1) as pool:
            numbers = range(len(values), len(values) + plan.records)
            produced = pool.submit(_produce, kafka.bootstrap_servers, topic, numbers, plan)
            _restart(gateway, plan)
            values |= produced.result()
        # Who has seen these has reached the gateway behind its last start, however long that has taken.
        numbers = range(len(values), len(values) + PARTITIONS)
        values |= _produce(kafka.bootstrap_servers, topic, numbers, plan)
        _wait_until_all_is_seen(members.values(), len(values))
        for process in members.values():
            process.ask_to_end()
        said = {group: process.result() for group, process in members.items()}
        found = Findings({"records": len(values), "restarts": plan.restarts})
        found.expect("Traceback" not in gateway.log, "the gateway's log has a stack trace")
    for group, lines in said.items():
        got = Counter(line.removeprefix("got ") for line in lines if line.startswith("got "))
        found.add(group.name, _judge(kafka, topic, group, got, values))
        errors = sorted({line for line in lines if line.startswith("error ")})
        found.expect(not errors, f"{group.name} was told {errors}")
    return found


def _produce_until_all_began(
    bootstrap_servers: str, topic: str, members: Collection[ClientProcess], plan: Restarts
) -> set[str]:
    """Some libraries give up where a gateway goes before they have reached it once."""
    values: set[str] = set()
    with ThreadPoolExecutor(len(members)) as pool:
        begun = [pool.submit(process.wait_until_it_began) for process in members]
        while not all(one.done() for one in begun):
            numbers = range(len(values), len(values) + PARTITIONS)
            values |= _produce(bootstrap_servers, topic, numbers, plan)
        for one in begun:
            one.result()
    return values


def _produce(bootstrap_servers: str, topic: str, numbers: range, plan: Restarts) -> set[str]:
    """The values of these numbers, when all are in the topic."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0})
    for number in numbers:
        producer.produce(topic, _value(number), partition=number % PARTITIONS)
        time.sleep(1 / plan.records_per_s)
    assert producer.flush(30) == 0
    return {_value(number) for number in numbers}


def _restart(gateway: GatewayProcess, plan: Restarts) -> None:
    between_s = plan.records / plan.records_per_s / (plan.restarts + 1)
    for number in range(plan.restarts):
        time.sleep(between_s)
        if number % 2:
            gateway.kill()
        else:
            gateway.stop()
        gateway.start()


def _value(number: int) -> str:
    return f"{number}".ljust(RECORD_BYTES, ".")


def _wait_until_all_is_seen(members: Collection[ClientProcess], count: int) -> None:
    """For a while; what is missing then, the judge finds."""
    end = time.monotonic() + _ALL_SEEN_S
    for process in members:
        while time.monotonic() < end:
            if len({line for line in process.lines if line.startswith("got ")}) >= count:
                break
            time.sleep(_LOOK_S)


def _judge(
    kafka: LocalKafka, topic: str, group: Group, got: Counter[str], values: set[str]
) -> Findings:
    missing = values - got.keys()
    again = sum(got.values()) - len(got)
    behind = _behind(kafka.bootstrap_servers, topic, group.name)
    found = Findings({"seen": len(got), "again": again, "not committed": behind})
    found.expect(not missing, f"{len(missing)} were not seen, e.g. {sorted(missing)[:3]}")
    found.expect(got.keys() <= values, "something was seen that nobody has produced")
    found.expect(not behind, f"{behind} were not committed at the end")
    return found


def _behind(bootstrap_servers: str, topic: str, group: str) -> int:
    """How many records the group's offsets, asked of the broker itself, are before the end."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    parts = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    committed = consumer.committed(parts, 30)
    ends = [consumer.get_watermark_offsets(part, 30)[1] for part in parts]
    consumer.close()
    return sum(end - max(0, part.offset) for part, end in zip(committed, ends, strict=True))
