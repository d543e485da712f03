"""From the answer to an alteration until requests are counted by it, while 200 busy connections are over their limits.

    ./run bench changes [--changes 30]

A quota is lowered and raised in turn: at a broker, and at gateways that keep their quotas in a file and in a topic. At the gateway
with the file the same for other ways to change a limit, of which a broker knows none without a restart: the class of the quota
callback, its properties, and a quota that a callback of a user's own is told of. Behind each answer one request after the
other comes, each on a new connection, so that none waits for an earlier one; its throttle time says by which limit it was counted.
``counted by it`` is from the alteration's answer to the answer of the first such request, so it has the round trip of that request in it;
``old`` is how many requests that began behind the alteration's answer were still counted by the limit before. Exits with 1
where a gateway has taken more than 1 s, or a client of the 200 has seen an error.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # what it sends is the tests'

from tests.endurance.alterations import wait_until_it_takes_them  # noqa: E402
from tests.endurance.gated_kafka import HOST  # noqa: E402
from tests.integration.bandwidth_frames import produce_frame, produce_result  # noqa: E402
from tests.integration.raw_client import RawClient  # noqa: E402
from tests.integration.settings_client import (  # noqa: E402
    ALLOWED,
    CLASS,
    LIMIT,
    MINE,
    MODULE,
    OF_EVERY_TEAM,
    Settings,
    alter,
)
from tests.integration.test_client_quotas import address, asked  # noqa: E402
from tests.unit.quota_api.written import Entity, alteration, altered  # noqa: E402

from kvota.app.gateway_process import (  # noqa: E402
    GatewayProcess,
    gateway_toml,
)
from kvota.localkafka import LocalKafka  # noqa: E402
from relay import commit  # noqa: E402

RESULT = HERE / "results" / "changes.json"
TOPIC = "changes"
KEY = "producer_byte_rate"
# 200 connections ask for 1 MB/s as 20 client ids, so 50 KB/s each.
OF_CROWD = 20e3
# What is asked for is over the lowered limit with the second request, whatever was forgotten of the first.
BYTES = 20_000
LOWERED, RAISED = 1_000.0, 1e12
EFFECT_S_MAX = 1.0
GIVE_UP_S = 30.0


@dataclass
class Took:
    """Of all alterations in one direction at one place."""

    altered_ms: list[float] = field(default_factory=list)
    counted_ms: list[float] = field(default_factory=list)
    old: int = 0

    def summary(self) -> dict[str, float]:
        return {
            "altered, median ms": round(statistics.median(self.altered_ms), 2),
            "counted by it, median ms": round(statistics.median(self.counted_ms), 2),
            "counted by it, worst ms": round(max(self.counted_ms), 2),
            "old": self.old,
        }


class Probe:
    """Asks on a new connection each time."""

    def __init__(self, place: tuple[str, int], client_id: str) -> None:
        self._place = place
        self._frame = produce_frame(TOPIC, client_id=client_id, value_bytes=BYTES)

    def is_throttled(self) -> bool:
        with RawClient(self._place) as client:
            client.send(self._frame)
            error, throttle_ms = produce_result(client.frame()[4:], TOPIC)
        assert not error, error
        return throttle_ms > 0


# Puts the lowered or the raised limit in force for a client id.
Alter = Callable[[str, str], None]


def of_quota(client: RawClient, entity: Callable[[str], Entity], *, gone: bool = False) -> Alter:
    """By AlterClientQuotas; ``gone``: raised is removed."""

    def change(client_id: str, direction: str) -> None:
        value = LOWERED if direction == "lowered" else None if gone else RAISED
        told = altered(asked(client, alteration((entity(client_id), {KEY: value}))))
        assert [code for _, code, _ in told] == [0], told

    return change


def of_settings(client: RawClient, lowered: Settings, raised: Settings) -> Alter:
    def change(_client_id: str, direction: str) -> None:
        assert alter(client, lowered if direction == "lowered" else raised) == (0, None)

    return change


def of_class(client: RawClient, mine: Settings) -> Alter:
    """By Kafka's own rules a client is over its lowered limit, by a callback of one's own it is not."""
    known: set[str] = set()

    def change(client_id: str, direction: str) -> None:
        if client_id not in known:
            known.add(client_id)
            of_quota(client, of_client)(client_id, "lowered")
        assert alter(client, dict.fromkeys(mine) if direction == "lowered" else mine) == (0, None)

    return change


def of_client(client_id: str) -> Entity:
    return {"client-id": client_id}


def measured(place: tuple[str, int], name: str, change: Alter, changes: int) -> dict[str, Took]:
    """Lowered and raised, each so often, each time for a client id of its own."""
    took = {"lowered": Took(), "raised": Took()}
    for number in range(changes):
        client_id = f"probed-{name.replace(' ', '-')}-{number}"
        probe = Probe(place, client_id)
        change(client_id, "raised")
        end = time.perf_counter() + GIVE_UP_S
        while probe.is_throttled():
            assert time.perf_counter() < end
        for direction, of_direction in took.items():
            begin = time.perf_counter()
            change(client_id, direction)
            answered = time.perf_counter()
            while probe.is_throttled() is not (direction == "lowered"):
                of_direction.old += 1
                assert time.perf_counter() < answered + GIVE_UP_S
            of_direction.counted_ms.append((time.perf_counter() - answered) * 1e3)
            of_direction.altered_ms.append((answered - begin) * 1e3)
    return took


@contextmanager
def crowded(place: tuple[str, int]) -> Iterator[dict[str, object]]:
    """200 busy connections, there when it is entered; what they have noticed stands in what it returns behind it."""
    command = [*(sys.executable, "-m", "tests.integration.crowd", place[0], str(place[1]), TOPIC)]
    noticed: dict[str, object] = {}
    with subprocess.Popen(
        command, cwd=HERE.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "began\n"
        try:
            yield noticed
            told, _ = process.communicate(timeout=30)
            noticed |= json.loads(told)
        finally:
            process.kill()


def gateway(stack: ExitStack, kafka: LocalKafka, folder: Path, source: str) -> GatewayProcess:
    config = gateway_toml(
        upstream=kafka.bootstrap_servers,
        node_ids="0-2",
        enforce={"PRODUCE": True},
        source=source,
    ).replace("[quotas]", ALLOWED)
    process = GatewayProcess(folder, config=config, quotas="")
    (folder / f"{MINE.partition('.')[0]}.py").write_text(MODULE)
    stack.enter_context(process)
    wait_until_it_takes_them(process)
    return process


def all_of(kafka: LocalKafka, folder: Path, changes: int) -> dict[str, dict[str, object]]:
    """Each way to change a limit at each place that knows it."""
    found: dict[str, dict[str, object]] = {}

    def take(name: str, place: tuple[str, int], change: Alter) -> None:
        with crowded(place) as noticed:
            took = measured(place, name, change, changes)
        found[name] = {direction: one.summary() for direction, one in took.items()} | noticed
        show(name, found[name])

    def limit_crowd(client: RawClient, limit: float | None) -> None:
        asked(client, alteration(({"client-id": None}, {KEY: limit})))

    with ExitStack() as stack:
        (node,) = kafka.nodes
        kafka.create_topic(TOPIC)
        direct = stack.enter_context(RawClient(node.address))
        limit_crowd(direct, OF_CROWD)
        take("a quota of a broker", node.address, of_quota(direct, of_client))
        limit_crowd(direct, None)
        for source in ("file", "topic"):
            process = gateway(stack, kafka, folder / source, source)
            host, port = address(process)
            place = host, port + 1 + node.node_id
            client = stack.enter_context(RawClient((host, port)))
            limit_crowd(client, OF_CROWD)
            take(f"a quota in a {source}", place, of_quota(client, of_client))
            if source == "topic":
                break
            file_client, file_place = client, place
        mine = {CLASS: MINE, LIMIT: str(RAISED)}
        take("the class of the callback", file_place, of_class(file_client, mine))
        assert alter(file_client, mine) == (0, None)
        take(
            "a property of the callback",
            file_place,
            of_settings(file_client, {LIMIT: str(LOWERED)}, {LIMIT: str(RAISED)}),
        )
        take(
            "a quota of a callback of one's own",
            file_place,
            of_quota(file_client, lambda _: {"user": OF_EVERY_TEAM}, gone=True),
        )
    return found


def show(name: str, figures: dict[str, object]) -> None:
    for direction in ("lowered", "raised"):
        of_direction = figures[direction]
        assert isinstance(of_direction, dict)
        line = ", ".join(f"{what} {value:g}" for what, value in of_direction.items())
        print(f"{name:<38}{direction:<9}{line}", flush=True)
    failed = figures["failed"]
    assert isinstance(failed, list)
    print(f"{'':<38}{figures['throttled']} throttled, {len(failed)} errors", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="from an alteration until it counts")
    parser.add_argument("--changes", type=int, default=30)
    changes = parser.parse_args().changes
    with tempfile.TemporaryDirectory(prefix="kvota-changes-") as name:
        folder = Path(name)
        before = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = f"{folder / 'file'}:{folder / 'topic'}:{before}".rstrip(":")
        with LocalKafka(host=HOST) as kafka:
            found = all_of(kafka, folder, changes)
    result = {"command": f"./run bench changes --changes {changes}", "commit": commit(), **found}
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    late = [
        name
        for name, figures in found.items()
        for direction in ("lowered", "raised")
        if name != "a quota of a broker"
        and figures[direction]["counted by it, worst ms"] > EFFECT_S_MAX * 1e3  # type: ignore[index]
    ]
    failed = [name for name, figures in found.items() if figures["failed"]]
    for name in late:
        print(f"{name}: it took more than {EFFECT_S_MAX:g} s until it counted", file=sys.stderr)
    for name in failed:
        print(f"{name}: clients have seen {found[name]['failed']}", file=sys.stderr)  # type: ignore[index]
    return int(bool(late or failed))


if __name__ == "__main__":
    sys.exit(main())
