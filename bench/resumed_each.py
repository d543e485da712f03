"""How long after there is room again until each of many producers is served; a part of ``./run bench volumes``.

50 producers of three kinds send 20 KB a second each. Somebody else's file takes a disk below the hard limit, and is removed after so many seconds. Beside
it what Kafka itself has for that: the same producers straight at the brokers, where everybody's produce quota is set to 1 byte/s (so Strimzi's plug-in
stops producers at a full disk), and removed after as long.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import chain
from math import inf, isfinite
from pathlib import Path
from typing import Any

from tests.endurance.client_process import ClientProcess
from tests.integration.test_volumes import ends

from kvota.admin import AdminClient, ClientQuotaAlteration, QuotaEntity
from kvota.java.find import java_command
from kvota.localkafka import LocalKafka
from kvota.localkafka.jars.class_path import kafka_classpath
from kvota.localkafka.jars.compile_java import compile_java
from kvota.model.quota_entity import DEFAULT

HERE = Path(__file__).parent
KINDS = ("librdkafka", "aiokafka", "java")
# So long it is waited for the last one.
PATIENCE_S = 60.0


def command(kind: str, servers: str, topic: str, producers: int) -> list[str]:
    if kind != "java":
        return [sys.executable, str(HERE / "resuming.py"), servers, topic, str(producers), kind]
    classes = compile_java([HERE / "java" / "Resuming.java"], classpath=kafka_classpath())
    path = f"{classes}:{kafka_classpath()}"
    return [str(java_command()), "-Xmx512m", "-XX:+UseSerialGC", "-cp", path, "Resuming", servers, topic, str(producers)]  # fmt: skip


class Producers:
    """All kinds of them, at one address."""

    def __init__(
        self, folder: Path, servers: str, topic: str, count: int, stack: ExitStack
    ) -> None:
        self._mark = 0
        self.counts = {kind: count // 3 + (number < count % 3) for number, kind in enumerate(KINDS)}
        self._clients = {
            kind: stack.enter_context(
                ClientProcess(folder, f"{kind}-each", command(kind, servers, topic, producers))
            )
            for kind, producers in self.counts.items()
        }
        self.served(PATIENCE_S * 2)

    def mark(self) -> None:
        """From now on it is asked who is served anew."""
        self._mark += 1
        for client in self._clients.values():
            client.say("mark")

    def served(self, patience_s: float) -> dict[str, dict[int, float]]:
        """By kind and producer: after how many seconds it was served; those that were not in this time are missing."""
        start = time.monotonic()
        after: dict[str, dict[int, float]] = {kind: {} for kind in KINDS}
        while (elapsed_s := time.monotonic() - start) < patience_s:
            for kind, client in self._clients.items():
                for line in client.lines:
                    words = line.split()
                    if words[0] == "served" and int(words[1]) == self._mark:
                        after[kind].setdefault(int(words[2]), elapsed_s)
            if all(len(after[kind]) == count for kind, count in self.counts.items()):
                break
            time.sleep(0.01)
        return after

    @property
    def failed(self) -> list[str]:
        """What has come to no record."""
        lines = (line for client in self._clients.values() for line in client.lines)
        return [line for line in lines if line.startswith("failed")]

    @property
    def acknowledged_since(self) -> int:
        """How many were served since the mark."""
        return sum(
            line.startswith(f"served {self._mark} ")
            for client in self._clients.values()
            for line in client.lines
        )


def resumed_each(  # noqa: PLR0913  (all by name but the four of the stage)
    kafka: LocalKafka,
    folder: Path,
    servers: str,
    stop: Callable[[], Callable[[], None]],
    *,
    count: int,
    held_s: float,
    rounds: int,
) -> dict[str, Any]:
    """Stop all of them for so long by ``stop``, and let them go on by what that returns, so many times.

    Returns:
        For each kind after how many seconds half of its producers were served again, and all, of all rounds
        together; None: not within a minute, and then it is the last round.
    """
    kafka.create_topic(folder.name, 3, 3)
    folder.mkdir()
    after_s: dict[str, list[float]] = {kind: [] for kind in KINDS}
    early = done = 0
    with ExitStack() as stack:
        producers = Producers(folder, servers, folder.name, count, stack)
        while done < rounds and all(map(isfinite, chain(*after_s.values()))):
            time.sleep(
                2 + done / rounds
            )  # looks come every second: each round begins elsewhere between two
            go_on = stop()
            settle(kafka, folder.name)
            producers.mark()
            time.sleep(held_s)
            early += producers.acknowledged_since
            producers.mark()
            go_on()
            for kind, found in producers.served(PATIENCE_S).items():
                missing = producers.counts[kind] - len(found)
                after_s[kind] += [*found.values(), *[inf] * missing]
            done += 1
        failed = producers.failed
    result: dict[str, Any] = {"held_s": held_s, "rounds": done, "served_while_stopped": early}
    result["failed_records"] = len(failed)
    for kind, found_s in after_s.items():
        ordered = sorted(found_s)
        result[kind] = {
            "producers": producers.counts[kind],
            "served": sum(map(isfinite, ordered)),
            "p50_s": _told(ordered[(len(ordered) - 1) // 2]),
            "p100_s": _told(ordered[-1]),
        }
    print(f"{folder.name:14} {json.dumps(result)}", flush=True)
    return result


def settle(kafka: LocalKafka, topic: str) -> None:
    """Wait until the brokers have taken what had been passed on: librdkafka has any number of requests under way."""
    end, before = time.monotonic() + PATIENCE_S / 4, -1
    while (taken := ends(kafka, topic)) != before and time.monotonic() < end:
        before = taken
        time.sleep(2)


def _told(seconds: float) -> float | None:
    return round(seconds, 2) if isfinite(seconds) else None


def stopped_by_brokers(servers: str) -> Callable[[], None]:
    """Everybody's produce quota is 1 byte/s, until what is returned is called."""
    _set_quota(servers, 1.0)
    return lambda: _set_quota(servers, None)


def _set_quota(servers: str, limit: float | None) -> None:
    async def set_it() -> None:
        async with AdminClient(servers) as admin:
            everybody = QuotaEntity(client_id=DEFAULT)
            alteration = ClientQuotaAlteration(everybody, {"producer_byte_rate": limit})
            (await admin.alter_client_quotas([alteration])).all()

    asyncio.run(set_it())
