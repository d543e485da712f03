"""What the gateway costs: CPU and latency per request, CPU per gigabyte, on a real broker.

    ./run bench relay [--rounds 5] [--seconds 3]

Compared in interleaved rounds within one run: the broker reached directly, a relay that knows nothing
(``bare_relay.py``), HAProxy in TCP mode with one thread where it is installed, and the gateway with
quotas in force (not reached) and recording on. CPU is that of the proxy's process, all its threads,
from the kernel's scheduler statistics. Trust the ratios; the machine's own speed drifts.
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
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from frames import fetch_frame, produce_frame
from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka import LocalKafka

HERE = Path(__file__).parent
RESULTS = HERE / "results"
TOPIC, FETCH_TOPIC = "bench", "bench-fetch"

# At most so many times HAProxy's CPU.
BARS = {
    "produce 1 KB, 8 connections": 1.5,
    "produce 64 KB": 1.6,
    "produce 1 MB": 1.3,
    "fetch 1 MB": 1.3,
}

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


@dataclass
class Target:
    name: str
    port: int
    pid: int | None  # None: nothing of ours in between


def cpu_ns(pid: int) -> int:
    """Time on a CPU of all threads of a process, ns."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total


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


def start_gateway(stack: ExitStack, folder: Path, host: str, port: int) -> Target:
    first = free_port_range(3)
    gateway = GatewayProcess(
        folder / "gateway",
        config=gateway_toml(
            upstream=f"{host}:{port}",
            first_port=first,
            node_ids="0-1",
            enforce={"PRODUCE": True, "FETCH": True, "CONTROLLER_MUTATION": True},
            record="record",
        ).replace('flush_interval = "500ms"', 'flush_interval = "5s"'),
        quotas=QUOTAS,
        first_port=first,
    )
    stack.enter_context(gateway)
    return Target("kvota", first, gateway.pid)


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
        ],
        input=load.frame,
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
    }


def loads() -> list[Load]:
    small = produce_frame(TOPIC, 1_000)
    return [
        Load("produce 1 KB, 1 connection", small, 1, "request"),
        Load("produce 1 KB, 8 connections", small, 8, "request"),
        Load("produce 1 KB, 1,000/s", small, 8, "request", rate=1_000),
        Load("produce 64 KB", produce_frame(TOPIC, 65_000), 2, "GB"),
        Load("produce 1 MB", produce_frame(TOPIC, 1_000_000), 2, "GB"),
        Load("fetch 1 MB", fetch_frame(FETCH_TOPIC, 1_000_000), 2, "GB"),
    ]


def _ratio(rounds: list[dict], reference: list[dict] | None) -> float | None:
    """The median over rounds, each against the same round of the other."""
    if not reference:
        return None
    return statistics.median(r["cpu"] / h["cpu"] for r, h in zip(rounds, reference, strict=True))


def _shown(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def missed_bars(summary: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    """Where the gateway costs more than its bar, as a multiple of HAProxy's CPU."""
    missed = []
    for load, most in BARS.items():
        ratio = summary.get(load, {}).get("kvota", {}).get("times_haproxy")
        if ratio is not None and ratio > most:
            missed.append(f"{load}: {ratio:.2f} x HAProxy is above {most}")
    return missed


def main() -> int:
    options = argparse.ArgumentParser(description="relay cost against HAProxy")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=2.0)
    options.add_argument("--only", help="a part of the load's name")
    args = options.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvota-bench-")))
        kafka = stack.enter_context(LocalKafka(nodes=1, host="127.0.0.1"))
        host, port = kafka.bootstrap_servers.split(":")
        for topic in (TOPIC, FETCH_TOPIC):
            kafka.create_topic(topic)
        direct = Target("direct", int(port), None)
        # What the fetches read: batches of 100 KB.
        measure(direct, Load("preload", produce_frame(FETCH_TOPIC, 100_000), 1, "GB"), 1.0)
        targets = [
            direct,
            start_bare_relay(stack, host, int(port)),
            start_haproxy(stack, folder, host, int(port)),
            start_gateway(stack, folder, host, int(port)),
        ]
        results = run_rounds([t for t in targets if t is not None], args)
    return report(results, args)


def run_rounds(targets: list[Target], args: argparse.Namespace) -> dict[str, dict[str, list]]:
    results: dict[str, dict[str, list]] = {}
    chosen = [load for load in loads() if not args.only or args.only in load.name]
    for round_number in range(args.rounds + 1):
        for load in chosen:
            for target in targets:
                seen = measure(target, load, args.seconds)
                if round_number:  # the first round warms everything up
                    results.setdefault(load.name, {}).setdefault(target.name, []).append(seen)
        print(f"round {round_number} of {args.rounds}", file=sys.stderr)
    return results


def report(results: dict[str, dict[str, list]], args: argparse.Namespace) -> int:
    lines = []
    summary: dict[str, dict[str, dict[str, float]]] = {}
    for load, by_target in results.items():
        unit = "µs/request" if "KB" in load and "64" not in load else "s/GB"
        lines.append(
            f"\n{load}\n  {'':<12}{unit:>12}{'x HAProxy':>12}{'x bare':>9}{'p50 ms':>9}{'p99 ms':>9}{'/s':>9}"
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
                    for key in ("p50_ms", "p99_ms", "per_s")
                },
            }
            summary.setdefault(load, {})[name] = row
            lines.append(
                f"  {name:<12}{cpu:>12.2f}{_shown(ratio):>12}{_shown(times_bare):>9}{row['p50_ms']:>9.2f}"
                f"{row['p99_ms']:>9.2f}{row['per_s']:>9.0f}"
            )
    print("\n".join(lines))
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "relay.json"
    path.write_text(
        json.dumps(
            {
                "command": f"./run bench relay --rounds {args.rounds} --seconds {args.seconds}",
                "python": sys.version.split()[0],
                "cores": os.cpu_count(),
                "medians": summary,
                "rounds": results,
            },
            indent=1,
        )
        + "\n"
    )
    missed = missed_bars(summary)
    judged = any("HAProxy" in targets for targets in results.values())
    verdict = "all bars hold" if judged else "no bar was judged: HAProxy is not installed"
    print("\n" + ("\n".join(missed) or verdict) + f"\nkept in {path}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
