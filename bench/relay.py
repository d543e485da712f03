"""What the gateway costs: CPU and latency per request, CPU per gigabyte, on a real broker.

    ./run bench relay [--rounds 5] [--seconds 3] [--only "1 KB"]

Compared in interleaved rounds within one run: the broker reached directly, a relay that knows nothing
(``bare_relay.py``), HAProxy in TCP mode with one thread where it is installed, and the gateway with
quotas in force (not reached), once with recording and once without; nobody has a quota on REQUEST, whose cost
``request_time`` measures. CPU and memory (PSS) are those of the proxy's process, all its threads
and children, from the kernel's statistics. Trust the ratios, which are medians over rounds (of the latency's also the
quartiles); the machine's own speed drifts.

Judged is the gateway that records, by ``GOALS``: each is said with what it came to, by how much it is missed, and what was
kept of the run before. Known to be missed are those of CPU at 8 connections, at 1,000 requests/s, and for Produces of 64 KB and 1 MB;
p99.9 is judged from 23 rounds on (``--rounds 23 --only "1 KB, 8 connections"``).

Requests are of the versions that today's clients speak (``frames``), at a PLAINTEXT listener and, where the load's
name says so, on connections that have logged in (SASL_PLAINTEXT). Each load's result is kept with its command and the
commit; loads that were not measured this time keep theirs.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from kio.schema.metadata.v12 import MetadataRequest, MetadataResponse
from kio.schema.metadata.v12.request import MetadataRequestTopic
from kio.schema.types import TopicName

from frames import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    current_fetch_frame,
    current_produce_frame,
    login_frames,
)
from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka import LocalKafka
from kvota.localkafka.cluster.ask import ask
from processes import cpu_ns, pss_bytes

HERE = Path(__file__).parent
RESULT = HERE / "results" / "relay.json"
# The first is produced to; the others are read, and have batches of such sizes.
TOPIC, FETCH_TOPIC, FETCH_TOPIC_64 = "bench", "bench-fetch", "bench-fetch-64"
USER, PASSWORD = "bench", "bench-secret"
Listener = str
PLAIN, SASL = "PLAINTEXT", "SASL_PLAINTEXT"

LOGIN = login_frames(USER, PASSWORD)

GATEWAY, UNRECORDED = "kvota", "kvota, no record"

QUOTAS = """
[[quota]]
user_default = true
producer_byte_rate = "100GB/s"
consumer_byte_rate = "100GB/s"
"""


@dataclass(frozen=True)
class Load:
    """One kind of traffic; ``per`` is what the CPU time is divided by."""

    name: str
    frame: bytes
    connections: int
    per: str  # "request" or "GB"
    rate: float = 0.0
    listener: Listener = PLAIN


@dataclass
class Target:
    name: str
    port: int
    pid: int | None  # None: nothing of ours in between


@dataclass(frozen=True)
class Goal:
    """At most so many times what HAProxy takes, in the median of the rounds.

    Attributes:
        load: the name of one.
        what: is compared, "CPU" or "p99.9".
        rounds_min: fewer say nothing.
    """

    load: str
    what: str
    most: float
    rounds_min: int = 1

    def judge(self, row: dict, rounds: int, before: dict) -> tuple[bool, str]:
        """Whether it is missed, and words for what it came to.

        Args:
            row: what the gateway came to.
            rounds: how many there were.
            before: what was kept of it earlier, if anything.
        """
        came_to, earlier = (self._of(one) for one in (row, before))
        words = (
            f"{self.load}: {self.what} {came_to:.2f} x HAProxy, at most {self.most:g} is the goal: "
        )
        if rounds < self.rounds_min:
            return False, f"{words}not judged, {rounds} rounds of {self.rounds_min}"
        is_missed = came_to > self.most
        words += f"MISSED by {came_to - self.most:.2f}" if is_missed else "reached"
        return is_missed, words + (f" (before: {earlier:.2f})" if earlier is not None else "")

    def _of(self, row: dict) -> float | None:
        if self.what == "CPU":
            return row.get("times_haproxy")
        quartiles = row.get("p999_times_haproxy")
        return quartiles[1] if quartiles else None


GOALS = (
    Goal("produce 1 KB, 8 connections", "CPU", 1.2),
    Goal("produce 1 KB, 8 connections", "p99.9", 1.15, rounds_min=23),
    Goal("produce 1 KB, 1,000/s", "CPU", 1.25),
    Goal("produce 64 KB", "CPU", 1.6),
    Goal("produce 1 MB", "CPU", 1.3),
    Goal("fetch 1 MB", "CPU", 1.3),
)


def start_bare_relay(stack: ExitStack, host: str, port: int) -> Target:
    own = free_port_range(1)
    process = subprocess.Popen(
        [sys.executable, HERE / "bare_relay.py", str(own), host, str(port)], stdout=subprocess.PIPE
    )
    stack.callback(process.wait)
    stack.callback(process.kill)
    assert process.stdout is not None
    process.stdout.readline()
    return Target("bare relay", own, process.pid)


def start_haproxy(stack: ExitStack, folder: Path, host: str, port: int) -> Target | None:
    program = shutil.which("haproxy")
    if program is None:
        return None
    own = free_port_range(1)
    config = folder / "haproxy.cfg"
    config.write_text(
        "global\n  nbthread 1\n  maxconn 1000\n"
        "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n"
        f"listen kafka\n  bind 127.0.0.1:{own}\n  server broker {host}:{port}\n"
    )
    process = subprocess.Popen([program, "-db", "-f", str(config)], stderr=subprocess.DEVNULL)
    stack.callback(process.wait)
    stack.callback(process.kill)
    time.sleep(0.5)
    return Target("HAProxy", own, process.pid)


def start_gateway(
    stack: ExitStack, folder: Path, host: str, port: int, *, record: bool = True
) -> Target:
    first = free_port_range(3)
    gateway = GatewayProcess(
        folder / ("gateway" if record else "gateway-without-record"),
        config=gateway_toml(
            upstream=f"{host}:{port}",
            first_port=first,
            node_ids="0-1",
            enforce={"PRODUCE": True, "FETCH": True, "CONTROLLER_MUTATION": True},
            record="record" if record else None,
        ).replace('flush_interval = "500ms"', 'flush_interval = "5s"'),
        quotas=QUOTAS,
    )
    stack.enter_context(gateway)
    return Target(GATEWAY if record else UNRECORDED, first, gateway.pid)


def measure(target: Target, load: Load, seconds: float) -> dict[str, float]:
    before = cpu_ns(target.pid) if target.pid else 0
    done = subprocess.run(
        [
            sys.executable,
            HERE / "load.py",
            str(target.port),
            str(load.connections),
            str(seconds),
            str(load.rate),
            str(len(LOGIN) if load.listener == SASL else 0),
        ],
        input=b"".join(LOGIN if load.listener == SASL else []) + load.frame,
        stdout=subprocess.PIPE,
        check=True,
        timeout=seconds * 4 + 60,
    )
    seen = json.loads(done.stdout)
    spent_ns = (cpu_ns(target.pid) - before) if target.pid else 0
    amount = (
        seen["requests"]
        if load.per == "request"
        else (seen["sent_bytes"] + seen["received_bytes"]) / 1e9
    )
    return {
        "cpu": spent_ns / amount / (1e3 if load.per == "request" else 1e9),
        "per_s": seen["requests_per_s"],
        "p50_ms": seen["latency_p50_ms"],
        "p99_ms": seen["latency_p99_ms"],
        "p999_ms": seen["latency_p999_ms"],
        "mb_per_s": (seen["sent_bytes"] + seen["received_bytes"]) / seen["elapsed_s"] / 1e6,
        "memory_bytes": pss_bytes(target.pid) if target.pid else 0,
    }


def loads(topics: dict[str, uuid.UUID]) -> list[Load]:
    one, small, large = (
        current_produce_frame(topics[TOPIC], size) for size in (1_000, 65_000, 1_000_000)
    )
    fetch_small = current_fetch_frame(topics[FETCH_TOPIC_64], 65_000)
    fetch_large = current_fetch_frame(topics[FETCH_TOPIC], 1_000_000)
    return [
        Load("produce 1 KB, 1 connection", one, 1, "request"),
        Load("produce 1 KB, 8 connections", one, 8, "request"),
        Load("produce 1 KB, 1,000/s", one, 8, "request", rate=1_000),
        Load("produce 64 KB", small, 2, "GB"),
        Load("produce 1 MB", large, 2, "GB"),
        Load("fetch 64 KB", fetch_small, 2, "GB"),
        Load("fetch 1 MB", fetch_large, 2, "GB"),
        Load("produce 1 KB, 8 connections, SASL", one, 8, "request", listener=SASL),
        Load("produce 64 KB, SASL", small, 2, "GB", listener=SASL),
        Load("produce 1 MB, SASL", large, 2, "GB", listener=SASL),
        Load("fetch 64 KB, SASL", fetch_small, 2, "GB", listener=SASL),
        Load("fetch 1 MB, SASL", fetch_large, 2, "GB", listener=SASL),
    ]


def topic_ids(kafka: LocalKafka) -> dict[str, uuid.UUID]:
    found = {}
    for name in (TOPIC, FETCH_TOPIC, FETCH_TOPIC_64):
        kafka.create_topic(name)
        question = MetadataRequest(
            topics=(MetadataRequestTopic(topic_id=None, name=TopicName(name)),),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        (topic,) = ask(kafka.nodes[0].address, question, MetadataResponse).topics
        assert topic.topic_id is not None
        found[name] = topic.topic_id
    return found


def start_targets(stack: ExitStack, folder: Path, servers: str) -> list[Target]:
    """All ways to one listener of the broker."""
    host, port = servers.split(":")
    folder.mkdir()
    targets = [
        Target("direct", int(port), None),
        start_bare_relay(stack, host, int(port)),
        start_haproxy(stack, folder, host, int(port)),
        start_gateway(stack, folder, host, int(port)),
        start_gateway(stack, folder, host, int(port), record=False),
    ]
    return [target for target in targets if target is not None]


def _ratios(rounds: list[dict], reference: list[dict], key: str) -> list[float]:
    """The lower quartile, the median and the upper one over rounds, each against the same round of the other."""
    each = [r[key] / h[key] for r, h in zip(rounds, reference, strict=True) if h[key]]
    if len(each) < 2:
        return each * 3
    return statistics.quantiles(each, n=4, method="inclusive")


def _ratio(rounds: list[dict], reference: list[dict] | None) -> float | None:
    """The median of the CPU's ratios."""
    return _ratios(rounds, reference, "cpu")[1] if reference else None


def _shown(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _shown_range(quartiles: list[float] | None) -> str:
    """E.g. ``1.20 (1.05-1.41)``: the median, and between which half of the rounds were."""
    return "-" if not quartiles else f"{quartiles[1]:.2f} ({quartiles[0]:.2f}-{quartiles[2]:.2f})"


def judged_goals(
    summary: dict[str, dict[str, dict]], results: dict[str, dict[str, list]], before: dict
) -> tuple[list[str], int]:
    """What each goal of a measured load came to, and how many are missed."""
    lines, missed = [], 0
    for goal in GOALS:
        if "HAProxy" not in (rows := summary.get(goal.load, {})):
            continue
        earlier = before.get(goal.load, {}).get("medians", {}).get(GATEWAY, {})
        is_missed, words = goal.judge(rows[GATEWAY], len(results[goal.load][GATEWAY]), earlier)
        lines.append(words)
        missed += is_missed
    return lines, missed


def kept_before() -> dict:
    """By load, what earlier runs have left."""
    return json.loads(RESULT.read_text())["loads"] if RESULT.exists() else {}


def keep(summary: dict, results: dict, args: argparse.Namespace) -> None:
    """Write what was measured; loads that were not keep what they had."""
    kept = kept_before()
    only = f' --only "{args.only}"' if args.only else ""
    for load, rounds in results.items():
        kept[load] = {
            "command": f"./run bench relay --rounds {args.rounds} --seconds {args.seconds}{only}",
            "commit": commit(),
            "python": sys.version.split()[0],
            "cores": os.cpu_count(),
            "versions": {"Produce": PRODUCE_VERSION, "Fetch": FETCH_VERSION},
            "medians": summary[load],
            "rounds": rounds,
        }
    RESULT.write_text(json.dumps({"loads": kept}, indent=1) + "\n")


def commit() -> str:
    """What was measured; a plus sign: and changes that are not committed."""
    commands = (["git", "rev-parse", "--short", "HEAD"], ["git", "status", "--porcelain", "src"])
    name, changed = (
        subprocess.run(
            command, cwd=HERE, capture_output=True, text=True, check=False
        ).stdout.strip()
        for command in commands
    )
    return f"{name}+" if changed else name


def main() -> int:
    options = argparse.ArgumentParser(description="relay cost against HAProxy")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=2.0)
    options.add_argument("--only", default="", help="a load's name, or a part of it")
    args = options.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvota-bench-")))
        kafka = stack.enter_context(LocalKafka(nodes=1, host="127.0.0.1", users={USER: PASSWORD}))
        topics = topic_ids(kafka)
        targets = {
            PLAIN: start_targets(stack, folder / "plain", kafka.bootstrap_servers),
            SASL: start_targets(stack, folder / "sasl", kafka.sasl_bootstrap_servers),
        }
        direct = targets[PLAIN][0]
        # What the fetches read: batches that a client of such fetches would be sent.
        for topic, size in ((FETCH_TOPIC, 100_000), (FETCH_TOPIC_64, 60_000)):
            frame = current_produce_frame(topics[topic], size)
            measure(direct, Load("preload", frame, 1, "GB"), 1.0)
        every = loads(topics)
        chosen = [load for load in every if load.name == args.only] or [
            load for load in every if args.only in load.name
        ]
        results = run_rounds(targets, chosen, args)
    return report(results, args)


def run_rounds(
    targets: dict[Listener, list[Target]], chosen: list[Load], args: argparse.Namespace
) -> dict[str, dict[str, list]]:
    results: dict[str, dict[str, list]] = {}
    for round_number in range(args.rounds + 1):
        for load in chosen:
            for target in targets[load.listener]:
                seen = measure(target, load, args.seconds)
                if round_number:  # the first round warms everything up
                    results.setdefault(load.name, {}).setdefault(target.name, []).append(seen)
        print(f"round {round_number} of {args.rounds}", file=sys.stderr)
    return results


def report(results: dict[str, dict[str, list]], args: argparse.Namespace) -> int:
    lines = []
    summary: dict[str, dict[str, dict[str, float]]] = {}
    for load, by_target in results.items():
        unit = "µs/request" if "1 KB" in load else "s/GB"
        lines.append(
            f"\n{load}\n  {'':<16}{unit:>11}{'x HAProxy':>10}{'x bare':>7}{'p50 ms':>8}{'p99.9 ms':>9}"
            f"{'x HAProxy':>18}{'/s':>7}{'MB/s':>6}{'MB':>5}"
        )
        reference, bare = by_target.get("HAProxy"), by_target.get("bare relay")
        for name, rounds in by_target.items():
            cpu = statistics.median(r["cpu"] for r in rounds)
            ratio = _ratio(rounds, reference) if cpu else None
            times_bare = _ratio(rounds, bare) if cpu else None
            row = {
                "cpu": cpu,
                "times_haproxy": ratio,
                "times_bare_relay": times_bare,
                **{
                    key: statistics.median(r[key] for r in rounds)
                    for key in ("p50_ms", "p99_ms", "p999_ms", "per_s", "mb_per_s", "memory_bytes")
                },
                "p999_times_haproxy": _ratios(rounds, reference, "p999_ms") if reference else None,
            }
            summary.setdefault(load, {})[name] = row
            tail = row["p999_times_haproxy"]
            lines.append(
                f"  {name:<16}{cpu:>11.2f}{_shown(ratio):>10}{_shown(times_bare):>7}{row['p50_ms']:>8.2f}"
                f"{row['p999_ms']:>9.2f}{_shown_range(tail):>18}"
                f"{row['per_s']:>7.0f}{row['mb_per_s']:>6.0f}{row['memory_bytes'] / 1e6:>5.0f}"
            )
        recording = _ratios(by_target[GATEWAY], by_target[UNRECORDED], "cpu")
        summary[load][GATEWAY]["times_unrecorded"] = recording
        lines.append(f"  with recording {_shown_range(recording)} times the CPU without")
    goals, missed = judged_goals(summary, results, kept_before())
    keep(summary, results, args)
    without = "no goal was judged: " + (
        "HAProxy is not installed" if not shutil.which("haproxy") else "these loads have none"
    )
    print("\n".join([*lines, "", *(goals or [without]), f"kept in {RESULT}"]))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
