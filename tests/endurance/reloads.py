"""Clients while SIGHUP puts other limits, algorithms and enforcement in force again and again: nobody notices but by waiting."""

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.endurance.client_process import ClientProcess, java_client, python_client
from tests.endurance.findings import Findings
from tests.endurance.gated_kafka import BANDWIDTH, NODES_MAX
from tests.endurance.judging import judge_numbers
from tests.endurance.recorded import rows_by_outcome
from tests.endurance.topic_log import all_of, read_log

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka import LocalKafka
from kvota.model.bucket_settings import BucketSettings
from kvota.model.quota_type import QuotaType

PARTITIONS = 3
LIBRARIES = ("librdkafka", "java")
MEMBERS = 2
_ALL_SEEN_S = 120.0
_LOOK_S = 0.2
_LAW_S = 300.0
_NO_QUOTA, _UNREACHED = "", 10**12
# A producer waits behind its answer, a consumer before its request goes up.
HELD_BACK = {"PRODUCE throttled", "FETCH rejected"}
_HELD_BACK_S = 60.0
# Kafka's own client waits by itself for as long as it is told, whatever is in force by then: that must not be minutes.
_WINDOW = {"quota.window.num": 3}
_REFUSED = "what is in force stays as it is"


@dataclass(frozen=True, kw_only=True)
class Reloads:
    """How often what is in force changes, and under what load.

    Attributes:
        count: of SIGHUPs; one of ten finds a faulty quotas.toml, and changes nothing.
        between_s: two of them.
        producers: of each library, idempotent, and as many records per second together.
        limits: from which to which each limit is drawn, in whole bytes per second. The first of all is the lowest, for both quota types,
            enforced, and stays until it has held clients back.
        seed: of what is put in force.
        with_law: the law is asked about the record, by Spark.
    """

    count: int
    between_s: float
    producers: int
    records_per_s: int
    limits: tuple[int, int]
    seed: int
    with_law: bool


def run_reloads(kafka: LocalKafka, folder: Path, plan: Reloads) -> Findings:
    """Producers and consumer groups of two libraries; what they say stays in the folder."""
    topics = {library: f"reloads-{library}" for library in LIBRARIES}
    for topic in topics.values():
        kafka.create_topic(topic, partitions=PARTITIONS)
    first_port = free_port_range(NODES_MAX + 2)
    drawn = random.Random(plan.seed)
    gateway = GatewayProcess(
        folder / "gateway",
        config=_config(kafka, first_port, None),
        quotas=_quotas(_UNREACHED, _UNREACHED),
    )
    record = folder / "gateway" / "record"
    with ExitStack() as stack:
        stack.enter_context(gateway)
        producers, consumers = _clients(stack, folder, gateway.bootstrap_servers, topics, plan)
        for client in (*producers.values(), *consumers.values()):
            client.wait_until_it_began()
        gateway.reload(_quotas(plan.limits[0], plan.limits[0]))
        _wait_until_they_are_held_back(record)
        faulty = _reload_all(gateway, kafka, first_port, plan, drawn)
        # What was kept back is not waited for.
        gateway.reload(_quotas(_UNREACHED, _UNREACHED))
        said = _ended(producers)
        logs = {
            library: read_log(kafka.bootstrap_servers, topic, PARTITIONS)
            for library, topic in topics.items()
        }
        _wait_until_all_is_seen(consumers, logs)
        got = _ended(consumers)
        log = gateway.log
    refused, rows = log.count(_REFUSED), rows_by_outcome(record)
    found = Findings({"reloads": plan.count, "refused": refused, "rows": rows})
    found.expect("Traceback" not in log, "the gateway's log has a stack trace")
    found.expect(refused == faulty, f"{refused} were refused, and {faulty} have a fault")
    found.expect(rows.keys() >= HELD_BACK, "nobody was held back")
    for library in LIBRARIES:
        found.add(library, judge_numbers(logs[library], said[library]))
        found.add(f"{library}, consumed", _judge_consumed(all_of(logs[library]), got[library]))
    if plan.with_law:
        found.add("law", _law(record))
    return found


def _clients(
    stack: ExitStack, folder: Path, bootstrap: str, topics: dict[str, str], plan: Reloads
) -> tuple[dict[str, ClientProcess], dict[str, ClientProcess]]:
    def numbers(library: str) -> tuple[object, ...]:
        plain = (bootstrap, topics[library], PARTITIONS, library)
        return (*plain, plan.producers, plan.records_per_s)

    def group(library: str) -> tuple[object, ...]:
        return (bootstrap, topics[library], f"{library}-group", MEMBERS)

    producing = {
        "librdkafka": python_client("producing", *numbers("librdkafka")),
        "java": java_client("Producing", *numbers("java")),
    }
    consuming = {
        "librdkafka": python_client("members", "librdkafka", "consumer", *group("librdkafka")),
        "java": java_client("Members", "classic", *group("java")),
    }

    def started(commands: dict[str, list[str]], suffix: str) -> dict[str, ClientProcess]:
        return {
            library: stack.enter_context(ClientProcess(folder, f"{library}-{suffix}", command))
            for library, command in commands.items()
        }

    return started(producing, "producers"), started(consuming, "group")


def _ended(clients: dict[str, ClientProcess]) -> dict[str, list[str]]:
    """What they have said, when all have ended."""
    for client in clients.values():
        client.ask_to_end()
    return {library: client.result() for library, client in clients.items()}


def _wait_until_they_are_held_back(record: Path) -> None:
    """For a while: a quota that holds nobody back shows nothing."""
    end = time.monotonic() + _HELD_BACK_S
    while time.monotonic() < end and not rows_by_outcome(record).keys() >= HELD_BACK:
        time.sleep(_LOOK_S)


def _reload_all(
    gateway: GatewayProcess,
    kafka: LocalKafka,
    first_port: int,
    plan: Reloads,
    drawn: random.Random,
) -> int:
    """How many of them found a fault."""
    faulty = 0
    for number in range(plan.count):
        time.sleep(plan.between_s)
        if number % 10 == 9:
            faulty += 1
            gateway.reload(
                '[[quota]]\nclient_id_default = true\nproducer_byte_rate = "1 furlong"\n'
            )
        elif drawn.random() < 0.1:
            gateway.reload(_NO_QUOTA, _config(kafka, first_port, drawn))
        else:
            limits = (drawn.randint(*plan.limits), drawn.randint(*plan.limits))
            gateway.reload(_quotas(*limits), _config(kafka, first_port, drawn))
    time.sleep(plan.between_s)
    return faulty


def _config(kafka: LocalKafka, first_port: int, drawn: random.Random | None) -> str:
    """Each quota type by one of the algorithms, enforced or in shadow mode; where nothing is drawn as a broker does it, enforced."""
    enforce = {kind: drawn is None or drawn.random() < 0.75 for kind in BANDWIDTH}
    return gateway_toml(
        upstream=kafka.bootstrap_servers,
        first_port=first_port,
        node_ids=f"0-{NODES_MAX}",
        enforce=enforce,
        buckets=_buckets(drawn) if drawn else None,
        kafka=_WINDOW,
        record="record",
    )


def _buckets(drawn: random.Random) -> dict[QuotaType, BucketSettings]:
    return {
        kind: BucketSettings(
            burst_ms=drawn.choice([100, 1_000, 3_000]),
            debt_max_ms=drawn.choice([0, 200, 2_000]),
        )
        for kind in BANDWIDTH
        if drawn.random() < 0.5
    }


def _quotas(produced: int, consumed: int) -> str:
    return (
        "[[quota]]\nclient_id_default = true\n"
        f"producer_byte_rate = {produced}\nconsumer_byte_rate = {consumed}\n"
    )


def _wait_until_all_is_seen(
    consumers: dict[str, ClientProcess], logs: dict[str, list[list[str]]]
) -> None:
    """For a while; what is missing then, the judge finds."""
    end = time.monotonic() + _ALL_SEEN_S
    for library, client in consumers.items():
        wanted = set(all_of(logs[library]))
        while time.monotonic() < end and not wanted <= _values(client.lines):
            time.sleep(_LOOK_S)


def _values(lines: Sequence[str]) -> set[str]:
    return {line.removeprefix("got ") for line in lines if line.startswith("got ")}


def _judge_consumed(log: Sequence[str], said: Sequence[str]) -> Findings:
    """Nobody was restarted, so each record is seen once."""
    times = Counter(line.removeprefix("got ") for line in said if line.startswith("got "))
    errors = [line for line in said if line.startswith("error ")]
    missing = set(log) - times.keys()
    again = sum(times.values()) - len(times)
    found = Findings({"seen": len(times), "again": again, "errors": len(errors)})
    found.expect(not missing, f"{len(missing)} were not seen, e.g. {sorted(missing)[:3]}")
    found.expect(not again, f"{again} were seen again")
    found.expect(not errors, f"consumers were told {sorted(set(errors))}")
    return found


def _law(record: Path) -> Findings:
    done = subprocess.run(
        [sys.executable, "-m", "kvota.app.cli.main", "replay", "--law", "--events", str(record)],
        capture_output=True,
        text=True,
        timeout=_LAW_S,
        check=False,
    )
    said = [line for line in done.stdout.splitlines() if "rows" in line]
    found = Findings({"said": said})
    found.expect(done.returncode == 0, f"the law: {done.stdout}{done.stderr}")
    return found
