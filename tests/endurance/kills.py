"""Producers and transactions while the broker, and then the gateway, is killed and started again.

Every record that a client reports as delivered is in the broker's log exactly once, in the order of its producer;
every transaction that it reports as committed is whole and visible once, every aborted one invisible.
"""

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.endurance.client_process import ClientProcess, java_client, python_client
from tests.endurance.findings import Findings
from tests.endurance.gated_kafka import UNREACHED, Quota, gateway_before
from tests.endurance.judging import judge_copy, judge_log, judge_numbers, judge_transactions
from tests.endurance.recorded import rows_by_outcome
from tests.endurance.topic_log import all_of, read_log

from kvota.app.gateway_process import GatewayProcess
from kvota.localkafka import LocalKafka
from kvota.model.quota_type import Algorithm

PARTITIONS = 3
CONSOLE = "console"
CONSOLE_RECORDS_PER_S = 200


@dataclass(frozen=True, kw_only=True)
class Kills:
    """How often, and under what load.

    Attributes:
        of_broker, of_gateway: kills; one of the gateway behind each second one of the broker.
        between_s: between one that has been started again and the next kill.
        producers: of each library, and so many transactional ones.
        records_per_s: of each library.
        limit: of each client id, in bytes per second of Produce.
        with_console: Kafka's console producer, too.
    """

    of_broker: int
    of_gateway: int
    between_s: float
    producers: int
    records_per_s: int
    limit: float
    with_console: bool

    @property
    def victims(self) -> list[str]:
        """Who is killed, one after the other."""
        brokers, gateways = self.of_broker, self.of_gateway
        order: list[str] = []
        while brokers or gateways:
            for name, count in (("broker", min(2, brokers)), ("gateway", min(1, gateways))):
                order += [name] * count
            brokers, gateways = max(0, brokers - 2), max(0, gateways - 1)
        return order


def run_kills(kafka: LocalKafka, folder: Path, algorithm: Algorithm, plan: Kills) -> Findings:
    """All clients at once; what they say stays in the folder."""
    topics = {
        name: f"{algorithm}-{name}".replace("_", "-")
        for name in ("librdkafka", "java", CONSOLE, "transactions", "copy")
    }
    for topic in topics.values():
        kafka.create_topic(topic, partitions=PARTITIONS)
    quota = Quota(plan.limit, 1e12)
    with ExitStack() as stack:
        gateway = stack.enter_context(gateway_before(kafka, folder / "gateway", algorithm, quota))
        started = {
            client.name: stack.enter_context(client)
            for client in _clients(folder, gateway.bootstrap_servers, topics, plan)
        }
        if plan.with_console:
            console = stack.enter_context(_console(kafka, folder, gateway, topics[CONSOLE]))
        for client in started.values():
            client.wait_until_it_began()
        begin = time.monotonic()
        _kill_all(kafka, gateway, plan)
        killed_s = time.monotonic() - begin
        # What was kept back is not waited for.
        gateway.reload(UNREACHED.toml)
        for name, client in started.items():
            if name != "copy":
                client.ask_to_end()
        fed = console.end() if plan.with_console else []
        said = {name: client.result() for name, client in started.items() if name != "copy"}
        started["copy"].ask_to_end()
        said["copy"] = started["copy"].result()
        found = Findings({"kills": plan.victims, "seconds": round(killed_s, 1)})
        logs = {
            name: read_log(kafka.bootstrap_servers, topic, PARTITIONS)
            for name, topic in topics.items()
        }
        visible = {
            name: read_log(kafka.bootstrap_servers, topics[name], PARTITIONS, is_committed=True)
            for name in ("transactions", "copy")
        }
        found.expect("Traceback" not in gateway.log, "the gateway's log has a stack trace")
    found.figures["rows"] = rows_by_outcome(folder / "gateway" / "record")
    for name in ("librdkafka", "java"):
        found.add(name, judge_numbers(logs[name], said[name]))
    if plan.with_console:
        found.add(CONSOLE, judge_log(logs[CONSOLE], sent=set(fed), delivered=set(fed)))
    outcomes = said["transactions-librdkafka"] + said["transactions-java"]
    seen = all_of(visible["transactions"]), all_of(logs["transactions"])
    found.add("transactions", judge_transactions(outcomes, *seen))
    found.add("copy", judge_copy(logs["librdkafka"], visible["copy"]))
    return found


def _kill_all(kafka: LocalKafka, gateway: GatewayProcess, plan: Kills) -> None:
    for victim in plan.victims:
        time.sleep(plan.between_s)
        if victim == "broker":
            kafka.kill(1)
            kafka.start_node(1)
        else:
            gateway.kill()
            gateway.start()
    time.sleep(plan.between_s)


def _clients(
    folder: Path, bootstrap: str, topics: dict[str, str], plan: Kills
) -> list[ClientProcess]:
    produce = (PARTITIONS, plan.producers, plan.records_per_s)

    def numbers(library: str) -> tuple[object, ...]:
        return (bootstrap, topics[library], PARTITIONS, library, *produce[1:])

    def transactions(library: str) -> tuple[object, ...]:
        name = f"transactions-{library}"
        return (bootstrap, topics["transactions"], PARTITIONS, name, plan.producers, 0.01)

    commands = {
        "librdkafka": python_client("producing", *numbers("librdkafka")),
        "java": java_client("Producing", *numbers("java")),
        "transactions-librdkafka": python_client("transacting", *transactions("librdkafka")),
        "transactions-java": java_client("Transacting", *transactions("java")),
        "copy": java_client(
            "Copying", bootstrap, topics["librdkafka"], topics["copy"], "copy", "classic"
        ),
    }
    return [ClientProcess(folder, name, command) for name, command in commands.items()]


# ------------------------------------------------------------------ Kafka's console producer


class _Console:
    """Kafka's console producer, fed with numbers by a thread until ``end``."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._client = ClientProcess(folder, CONSOLE, command)
        self._ending = threading.Event()
        self._fed: list[str] = []
        self._thread = threading.Thread(target=self._feed, daemon=True)

    def __enter__(self) -> Self:
        self._client.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ending.set()
        self._thread.join()
        self._client.__exit__(None, None, None)

    def end(self) -> list[str]:
        """What it was fed, when it has ended in order: it says what it could not deliver."""
        self._ending.set()
        self._thread.join()
        self._client.ask_to_end()
        self._client.result()
        assert "ERROR" not in self._client.errors, self._client.errors
        return self._fed

    def _feed(self) -> None:
        while not self._ending.wait(1 / CONSOLE_RECORDS_PER_S):
            value = f"0-{len(self._fed)}"
            try:
                self._client.say(value)
            except BrokenPipeError:  # it has ended, and ``end`` says how
                return
            self._fed.append(value)


def _console(kafka: LocalKafka, folder: Path, gateway: GatewayProcess, topic: str) -> _Console:
    patience = ("retries=2147483647", "delivery.timeout.ms=300000", "request.timeout.ms=30000")
    properties = [part for one in patience for part in ("--command-property", one)]
    command = kafka.java_command_line(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", gateway.bootstrap_servers, "--topic", topic, *properties),
    )
    return _Console(command, folder)
