"""2,000 idle and 200 busy connections on one process: what a request waits, and what an idle connection takes, beside HAProxy.

    ./run bench connections [--idle 2000] [--busy 200] [--rate 5000] [--seconds 6] [--rounds 5] [--haproxy PATH]

Each proxy is a process of its own before one stub of a broker that answers at once: the gateway with TLS at its listener and
without, and HAProxy (one thread) with the same certificate, where it is installed. Idle connections have asked once, so each
leads to the broker. The busy ones share so many Produces of 1 KB a second, sent at fixed times whether or not earlier ones
are answered; a wait counts from the time at which its request was due. Added is what the 99th percentile is above that of the
same load straight at the stub in the same round. Trust what is compared within one round; the machine's own speed drifts.

The bar, without TLS and with it: what the gateway adds to the 99th percentile, in the median of the rounds, is at most what HAProxy adds
and 20 %. The quartiles are printed beside it.
"""

import argparse
import multiprocessing
import os
import resource
import select
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.queues import Queue
from pathlib import Path

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka.cluster.certificates import Authority
from kvota.testing.frames import produce
from processes import cpu_ns, pss_bytes
from relay import commit
from tls import HOST, QUOTAS, connected, serve_stub
from verdict import judged

RESULT = Path(__file__).parent / "results" / "connections.json"
FRAME = produce(records=b"r" * 1_000)
STUB_HOST = "127.0.0.2"
# Of what HAProxy adds to the 99th percentile, the gateway may add so much.
X_ADDED_MAX = 1.2
# Behind the first requests: caches are warm, and keys have been agreed on.
_WARM_S = 1.0
_TLS = '[gateway.tls]\ncertfile = "{keystore}"\n'


@dataclass(frozen=True)
class Target:
    """A way to the broker; without ``pid`` nothing is in between."""

    name: str
    host: str
    port: int
    pid: int | None
    cafile: str = ""


def ask(connection: socket.socket) -> None:
    """One request and its answer."""
    connection.sendall(FRAME)
    receive(connection)


def receive(connection: socket.socket) -> None:
    left = int.from_bytes(exactly(connection, 4), "big")
    exactly(connection, left)


def exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("closed by the proxy")
        data += more
    return data


def opened(target: Target, count: int) -> list[socket.socket]:
    """So many connections that have asked once."""
    connections = []
    for _ in range(count):
        connection = connected(target.port, target.cafile, target.host)
        ask(connection)
        connections.append(connection)
    return connections


def drive(target: Target, asked: argparse.Namespace, told: "Queue[dict[str, float]]") -> None:
    """The busy connections, in a process of their own."""
    connections = opened(target, asked.busy)
    by_fd = {connection.fileno(): connection for connection in connections}
    poll = select.epoll()
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    idle = deque(connections)
    due_at: dict[int, float] = {}
    waits: list[float] = []
    start = time.perf_counter()
    counted_from, end = start + _WARM_S, start + _WARM_S + asked.seconds
    due = start
    before_ns = 0
    while due < end or due_at:
        now = time.perf_counter()
        if not before_ns and now >= counted_from and target.pid:
            before_ns = cpu_ns(target.pid)
        while idle and due <= now and due < end:
            connection = idle.popleft()
            connection.sendall(FRAME)
            due_at[connection.fileno()] = due
            due += 1 / asked.rate
        # An epoll waits in whole milliseconds; a select of it does not.
        patience_s = max(0.0, due - time.perf_counter()) if idle and due < end else 1.0
        if select.select([poll], [], [], patience_s)[0]:
            for fd, _ in poll.poll(0):
                receive(by_fd[fd])
                was_due = due_at.pop(fd)
                idle.append(by_fd[fd])
                if was_due >= counted_from:
                    waits.append(time.perf_counter() - was_due)
    spent_ns = cpu_ns(target.pid) - before_ns if target.pid else 0
    waits.sort()
    told.put(
        {
            "requests": len(waits),
            "p50_ms": waits[len(waits) // 2] * 1e3,
            "p99_ms": waits[int(len(waits) * 0.99)] * 1e3,
            "p999_ms": waits[int(len(waits) * 0.999)] * 1e3,
            "cpu_us": spent_ns / 1e3 / len(waits),
        }
    )


def driven(target: Target, asked: argparse.Namespace) -> dict[str, float]:
    # A new process has none of the thousands of idle connections, and a select takes small numbers only.
    context = multiprocessing.get_context("spawn")
    told: Queue[dict[str, float]] = context.Queue()
    process = context.Process(target=drive, args=(target, asked, told))
    process.start()
    found = told.get(timeout=asked.seconds + 60)
    process.join()
    return found


def start_gateway(
    stack: ExitStack, folder: Path, broker: int, asked: argparse.Namespace, keystore: Path | None
) -> tuple[int, int]:
    first = free_port_range(4)
    config = gateway_toml(
        upstream=f"{STUB_HOST}:{broker}",
        first_port=first,
        node_ids="0-1",
        enforce={"PRODUCE": True, "FETCH": True},
        limits={"connections_max": asked.idle + asked.busy + 100},
    )
    if keystore is not None:
        config += _TLS.format(keystore=keystore)
    gateway = stack.enter_context(GatewayProcess(folder, config=config, quotas=QUOTAS))
    return gateway.pid, first


def start_haproxy(
    stack: ExitStack, folder: Path, broker: int, asked: argparse.Namespace, keystore: Path | None
) -> tuple[int, int]:
    port = free_port_range(1)
    folder.mkdir()
    encrypted = f" ssl crt {keystore}" if keystore else ""
    (folder / "haproxy.cfg").write_text(
        f"global\n  nbthread 1\n  maxconn {asked.idle + asked.busy + 100}\n"
        "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 900s\n  timeout server 900s\n"
        f"listen kafka\n  bind {HOST}:{port}{encrypted}\n  server broker {STUB_HOST}:{broker}\n"
    )
    process = subprocess.Popen([asked.haproxy, "-db", "-f", folder / "haproxy.cfg"])
    stack.callback(process.wait)
    stack.callback(process.kill)
    time.sleep(0.7)
    return process.pid, port


def start_targets(
    stack: ExitStack, folder: Path, broker: int, asked: argparse.Namespace
) -> list[Target]:
    authority = Authority(folder)
    keystore = authority.issue("server", hosts=[HOST]).keystore
    targets = [Target("direct", STUB_HOST, broker, None)]
    ways = [("kvota", start_gateway)] + [("HAProxy", start_haproxy)] * bool(asked.haproxy)
    for name, start in ways:
        pid, port = start(stack, folder / name, broker, asked, None)
        targets.append(Target(name, HOST, port, pid))
    for name, start in ways:
        pid, port = start(stack, folder / f"{name}-tls", broker, asked, keystore)
        targets.append(Target(f"{name}, TLS", HOST, port, pid, str(authority.certificate)))
    return targets


def idle_memory(target: Target, count: int) -> tuple[float, list[socket.socket]]:
    """KiB of each of so many idle connections, which stay open."""
    assert target.pid is not None
    before = pss_bytes(target.pid)
    connections = opened(target, count)
    time.sleep(1)
    return (pss_bytes(target.pid) - before) / count / 1024, connections


def report(rounds: dict[str, list[dict[str, float]]], memory: dict[str, float]) -> dict:
    print(f"\n{'':<14}{'idle KiB':>9}{'µs CPU':>8}{'p50 ms':>8}{'p99 ms':>8}{'p99.9':>8}  p99 added, ms")  # fmt: skip
    found = {}
    for name, seen in rounds.items():
        row = {key: statistics.median(one[key] for one in seen) for key in seen[0]}
        pairs = zip(seen, rounds["direct"], strict=True)
        added = [one["p99_ms"] - straight["p99_ms"] for one, straight in pairs]
        low, middle, high = (
            statistics.quantiles(added, n=4, method="inclusive") if len(added) > 1 else added * 3
        )
        found[name] = {
            **row,
            "p99_added_ms": [low, middle, high],
            "idle_kib": memory.get(name),
            "rounds": seen,
        }
        shown = f"{memory[name]:.1f}" if name in memory else "-"
        print(
            f"{name:<14}{shown:>9}{row['cpu_us']:>8.1f}{row['p50_ms']:>8.2f}{row['p99_ms']:>8.2f}{row['p999_ms']:>8.2f}"
            f"  {middle:.2f} ({low:.2f} to {high:.2f})"
        )
    return found


def main() -> int:
    options = argparse.ArgumentParser(description="idle and busy connections beside HAProxy")
    options.add_argument("--idle", type=int, default=2_000)
    options.add_argument("--busy", type=int, default=200)
    options.add_argument("--rate", type=float, default=5_000)
    options.add_argument("--seconds", type=float, default=6)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--haproxy", default=shutil.which("haproxy"))
    asked = options.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    load_before = os.getloadavg()[0]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvota-bench-")))
        broker = free_port_range(1, STUB_HOST)
        stub = multiprocessing.Process(target=serve_stub, args=(broker,), daemon=True)
        stub.start()
        stack.callback(stub.kill)
        targets = start_targets(stack, folder, broker, asked)
        memory, open_ones = {}, []
        for target in targets[1:]:
            memory[target.name], connections = idle_memory(target, asked.idle)
            open_ones += connections
        rounds: dict[str, list[dict[str, float]]] = {target.name: [] for target in targets}
        for _ in range(asked.rounds):
            for target in targets:
                rounds[target.name].append(driven(target, asked))
        print(
            f"{asked.idle} idle and {asked.busy} busy connections each, {asked.rate:g} requests/s"
        )
        found = report(rounds, memory)
        for connection in open_ones:
            connection.close()
    missed = missed_bars(found)
    kept = {
        "commit": commit(),
        "load_before": load_before,
        "options": {**vars(asked), "haproxy": bool(asked.haproxy)},
        "results": found,
        "missed": missed,
    }
    return judged(RESULT, kept, missed)


def missed_bars(found: dict[str, dict]) -> list[str]:
    """Where more is added than may be; without HAProxy nothing is judged, which is a miss, too."""
    if "HAProxy" not in found:
        return ["no bar was judged: HAProxy is not installed"]
    missed = []
    for name, beside in (("kvota", "HAProxy"), ("kvota, TLS", "HAProxy, TLS")):
        (low, middle, high), (_, known, _) = (found[one]["p99_added_ms"] for one in (name, beside))
        most = X_ADDED_MAX * known
        print(
            f"{name}: adds {middle:.2f} ms to p99 ({low:.2f} to {high:.2f}), at most {most:.2f} is the bar"
        )
        if middle > most:
            missed.append(
                f"{name}: {middle:.2f} ms added to p99 is above {X_ADDED_MAX:g} x {beside}'s {known:.2f}, by {middle - most:.2f}"
            )
    return missed


if __name__ == "__main__":
    raise SystemExit(main())
