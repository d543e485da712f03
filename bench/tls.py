"""What TLS costs at a gateway's listener: CPU per request and per gigabyte, and memory of idle connections.

    ./run bench tls [--seconds 3] [--rounds 5] [--idle 2000] [--haproxy PATH]

Compared in interleaved rounds of one run, before a stub of a broker that answers at once: the gateway with TLS and without, and HAProxy
(one thread) that terminates TLS with the same certificate, and without, where it is installed. CPU and memory (PSS) are those of the proxy's
process. Trust the ratios; the machine's own speed drifts. The client says which cipher was agreed on: it has to be the same.

The bar: with TLS, Produces and Fetches of 1 MB take at most 1.3 times HAProxy's CPU per GB, in the median of the rounds. Produces are known
to miss it.
"""

import argparse
import asyncio
import multiprocessing
import os
import shutil
import socket
import ssl
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import uvloop

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka.cluster.certificates import Authority
from kvota.testing.frames import (
    METADATA,
    fetch,
    fetch_answer,
    metadata_answer,
    produce,
    produce_answer,
)
from processes import cpu_ns, pss_bytes
from relay import commit
from verdict import judged

RESULT = Path(__file__).parent / "results" / "tls.json"
HOST, LARGE = "127.0.0.1", 1_000_000
# What is per GB, at most so many times what HAProxy takes.
X_HAPROXY_MAX = 1.3
QUOTAS = """
[[quota]]
user_default = true
producer_byte_rate = "100GB/s"
consumer_byte_rate = "100GB/s"
"""
# Name, request, connections, what the CPU is divided by.
LOADS = [
    ("produce 1 KB", produce(records=b"r" * 1_000), 8, "request"),
    ("produce 1 MB", produce(records=b"r" * LARGE), 2, "GB"),
    ("fetch 1 MB", fetch(), 2, "GB"),
]


class StubBroker(asyncio.Protocol):
    """Answers what it is asked here at once."""

    def __init__(self, port: int) -> None:
        self._answers = {
            0: produce_answer(9),
            1: fetch_answer(records=b"f" * LARGE),
        }
        self._port = port
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= 4:
            size = 4 + int.from_bytes(buffer[:4], "big")
            if len(buffer) < size:
                return
            key, version, correlation = buffer[5], buffer[7], bytes(buffer[8:12])
            del buffer[:size]
            if key == METADATA:
                brokers = [(1, "127.0.0.2", self._port)]
                answer = metadata_answer(
                    version, correlation=int.from_bytes(correlation, "big"), brokers=brokers
                )
            else:
                whole = self._answers[key]
                answer = whole[:4] + correlation + whole[8:]
            self._transport.write(answer)  # type: ignore[attr-defined]


def serve_stub(port: int) -> None:
    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: StubBroker(port), "127.0.0.2", port)
        await server.serve_forever()

    uvloop.run(serve())


def client(port: int, cafile: str, frame: bytes, seconds: float, told: object) -> None:
    """One connection, one request after the other."""
    connection = connected(port, cafile)
    buffer = bytearray(1 << 20)
    requests = size = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        connection.sendall(frame)
        head = b""
        while len(head) < 4:
            head += connection.recv(4 - len(head))
        left = int.from_bytes(head, "big")
        size += len(frame) + left
        while left:
            left -= connection.recv_into(buffer, min(left, len(buffer)))
        requests += 1
    cipher = connection.cipher() if isinstance(connection, ssl.SSLSocket) else None
    told.put((requests, size, cipher))  # type: ignore[attr-defined]


def connected(port: int, cafile: str, host: str = HOST) -> socket.socket:
    connection = socket.create_connection((host, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not cafile:
        return connection
    return client_context(cafile).wrap_socket(connection, server_hostname=host)


@cache
def client_context(cafile: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=cafile)


def measure(pid: int, port: int, cafile: str, load: tuple, seconds: float) -> tuple[float, object]:
    _, frame, connections, per = load
    told: multiprocessing.Queue = multiprocessing.Queue()
    before = cpu_ns(pid)
    clients = [
        multiprocessing.Process(target=client, args=(port, cafile, frame, seconds, told))
        for _ in range(connections)
    ]
    for one in clients:
        one.start()
    results = [told.get(timeout=seconds + 60) for _ in clients]
    for one in clients:
        one.join()
    spent_ns = cpu_ns(pid) - before
    if per == "request":
        return spent_ns / 1e3 / sum(r[0] for r in results), results[0][2]
    return spent_ns / sum(r[1] for r in results), results[0][2]


def memory_of_idle(pid: int, port: int, cafile: str, count: int) -> float:
    """KiB for each of so many connections that have shaken hands and asked nothing."""
    before = pss_bytes(pid)
    opened = [connected(port, cafile) for _ in range(count)]
    time.sleep(1)
    each = (pss_bytes(pid) - before) / count / 1024
    for one in opened:
        one.close()
    time.sleep(1)
    return each


def start_haproxy(
    stack: ExitStack, folder: Path, program: str, broker: int
) -> tuple[int, int, int]:
    plain, by_tls = free_port_range(1), free_port_range(1)
    (folder / "haproxy.cfg").write_text(
        "global\n  nbthread 1\n  maxconn 5000\n"
        "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n"
        f"listen plain\n  bind {HOST}:{plain}\n  server broker 127.0.0.2:{broker}\n"
        f"listen tls\n  bind {HOST}:{by_tls} ssl crt {folder}/server-keystore.pem\n  server broker 127.0.0.2:{broker}\n"
    )
    process = subprocess.Popen([program, "-db", "-f", folder / "haproxy.cfg"])
    stack.callback(process.wait)
    stack.callback(process.kill)
    time.sleep(0.7)
    return process.pid, plain, by_tls


def compare(load: tuple, targets: list[tuple], asked: argparse.Namespace) -> dict:
    """Interleaved rounds of one load; the first one warms up."""
    rounds: dict[str, list[float]] = {name: [] for name, *_ in targets}
    ciphers = set()
    for number in range(-1, asked.rounds):
        for name, pid, port, trusted in targets:
            seconds = asked.seconds if number >= 0 else 0.5
            cost, cipher = measure(pid, port, trusted, load, seconds)
            if cipher:
                ciphers.add(tuple(cipher))
            if number >= 0:
                rounds[name].append(cost)
    unit = "µs/request" if load[3] == "request" else "s/GB"
    print(f"\n{load[0]}, {unit}; {', '.join(str(one[0]) for one in ciphers)}")
    found = {}
    for name, costs in rounds.items():
        beside = rounds.get(name.replace("kvota", "HAProxy"), costs)
        ratio = statistics.median(c / h for c, h in zip(costs, beside, strict=True))
        print(f"  {name:<14}{statistics.median(costs):8.2f}   x HAProxy {ratio:.2f}")
        known = ratio if "HAProxy" in rounds else None
        found[name] = {"cpu": costs, "unit": unit, "times_haproxy": known}
    return found


def main() -> int:
    options = argparse.ArgumentParser(description="TLS beside HAProxy")
    options.add_argument("--seconds", type=float, default=3)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--idle", type=int, default=2_000)
    options.add_argument("--haproxy", default=shutil.which("haproxy"))
    asked = options.parse_args()
    load_before = os.getloadavg()[0]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        authority = Authority(folder)
        authority.issue("server", hosts=[HOST])
        cafile = str(authority.certificate)
        broker = free_port_range(1, "127.0.0.2")
        stub = multiprocessing.Process(target=serve_stub, args=(broker,), daemon=True)
        stub.start()
        stack.callback(stub.kill)
        first = free_port_range(8)
        config = gateway_toml(
            upstream=f"127.0.0.2:{broker}",
            first_port=first,
            node_ids="0-1",
            enforce={"PRODUCE": True, "FETCH": True},
            limits={"connections_max": max(2_000, 2 * asked.idle)},
        )
        config += f"""
[listeners.outside]
bootstrap_port = {first + 4}
node_port_base = {first + 5}
tls = {{ certfile = "server-keystore.pem" }}
"""
        gateway = stack.enter_context(GatewayProcess(folder, config=config, quotas=QUOTAS))
        targets = [
            ("kvota", gateway.pid, first, ""),
            ("kvota, TLS", gateway.pid, first + 4, cafile),
        ]
        if asked.haproxy:
            pid, plain, by_tls = start_haproxy(stack, folder, asked.haproxy, broker)
            targets += [("HAProxy", pid, plain, ""), ("HAProxy, TLS", pid, by_tls, cafile)]
        found = {load[0]: compare(load, targets, asked) for load in LOADS}
        print(f"\n{asked.idle} idle connections, KiB each")
        found["idle"] = {}
        for name, pid, port, trusted in targets:
            found["idle"][name] = memory_of_idle(pid, port, trusted, asked.idle)
            print(f"  {name:<14}{found['idle'][name]:8.1f}")
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
    """What costs more than it may; without HAProxy nothing is judged, which is a miss, too."""
    missed = []
    for name, _, _, per in LOADS:
        ratio = found[name]["kvota, TLS"]["times_haproxy"]
        if ratio is None:
            return ["no bar was judged: HAProxy is not installed"]
        if per == "GB" and ratio > X_HAPROXY_MAX:
            words = f"with TLS {ratio:.2f} x HAProxy's CPU is above {X_HAPROXY_MAX:g}"
            missed.append(f"{name}: {words}, by {ratio - X_HAPROXY_MAX:.2f}")
    return missed


if __name__ == "__main__":
    raise SystemExit(main())
