"""The REQUEST quota: whether it holds a client that takes nearly all of the gateway's thread, and what it costs.

    ./run bench request_time [--seconds 34] [--rounds 7]

On a real broker, recording on. Held: one client has the gateway describe 500 quotas again and again, on four connections; others send
Produce requests of 1 KB at a steady rate; compared are the same quota of 10 % in shadow mode and enforced: the
client's share of the thread (from the record's rows, behind the first 11 s) and the others' p99. By Kafka's law a client
spends what a window allows at once and then waits for the window to pass, so its share is the mean of all windows of 11 s,
wherever they begin: over any other time it depends on how many of these bursts fall into it. Cost: CPU per
request of 1 KB, with a quota that nobody reaches and without any, in pairs of neighbouring rounds.
"""

import argparse
import json
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from frames import produce_frame
from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka import LocalKafka
from kvota.testing.frames import request
from kvota.wire.apis import DESCRIBE_CLIENT_QUOTAS
from processes import cpu_ns

HERE = Path(__file__).parent
TOPIC = "bench"
HOG = "hog"
PERCENT, TOLERANCE = 10.0, 1.0
HOG_CONNECTIONS, ENTITIES = 4, 500
OTHERS, OTHERS_PER_S = 8, 200
WINDOW_S = 11.0
X_CPU_MAX = 1.10
TENANTS = "".join(
    f'[[quota]]\nclient_id = "tenant-{n}"\nproducer_byte_rate = "1GB/s"\n' for n in range(ENTITIES)
)
HELD = TENANTS + f'[[quota]]\nclient_id = "{HOG}"\nrequest_percentage = "{PERCENT:g}%"\n'
UNREACHED = '[[quota]]\nuser_default = true\nrequest_percentage = "100000%"\n'
# In both rounds of a pair somebody has a quota on bytes.
ALWAYS = '[[quota]]\nuser = "nobody"\nproducer_byte_rate = "1GB/s"\n\n'


def hog(port: int, seconds: float) -> None:
    """Has the gateway describe all quotas, on each connection again as soon as that is answered."""
    frame = request(DESCRIBE_CLIENT_QUOTAS, 1, client=HOG, components=(), strict=False)
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(HOG_CONNECTIONS)]
    for one in sockets:
        one.sendall(frame)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for one in select.select(sockets, [], [], 1.0)[0]:
            left = int.from_bytes(one.recv(4, socket.MSG_WAITALL), "big")
            while left:
                left -= len(one.recv(min(left, 1 << 18)))
            one.sendall(frame)


def load(port: int, seconds: float, rate: float, frames: bytes) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, HERE / "load.py", str(port), str(OTHERS), str(seconds), str(rate)],
        input=frames,
        stdout=subprocess.PIPE,
        check=True,
        timeout=seconds * 6 + 60,
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def gateway_of(folder: Path, upstream: str, quotas: str, *, enforced: bool) -> GatewayProcess:
    first = free_port_range(3)
    config = gateway_toml(
        upstream=upstream,
        first_port=first,
        node_ids="0-1",
        enforce={"REQUEST": enforced},
        record="record",
    )
    return GatewayProcess(folder, config=config, quotas=quotas)


def port_of(gateway: GatewayProcess) -> int:
    return int(gateway.bootstrap_servers.rpartition(":")[2])


def held(folder: Path, upstream: str, seconds: float, *, enforced: bool) -> dict[str, float]:
    """The share of the thread that the hog got, and what others saw meanwhile."""
    gateway = gateway_of(folder, upstream, HELD, enforced=enforced)
    with gateway:
        port = port_of(gateway)
        command = [sys.executable, __file__, "--hog", str(port), "--seconds", str(seconds + 3)]
        with subprocess.Popen(command) as process:
            time.sleep(1)
            before, begin = cpu_ns(gateway.pid), time.time()
            seen = load(port, seconds, OTHERS_PER_S, produce_frame(TOPIC, 1_000))
            end = time.time()
            cpu_share = (cpu_ns(gateway.pid) - before) / (end - begin) / 1e7
            process.kill()
        gateway.stop()
    columns = ["ts_us", "client_id", "quota_type", "value"]
    rows = pq.read_table(folder / "record", columns=columns).to_pylist()
    rows = [one for one in rows if (one["quota_type"], one["client_id"]) == ("REQUEST", HOG)]
    at_s = np.array([one["ts_us"] / 1e6 for one in rows])
    return {
        "share": share_of(at_s, np.array([one["value"] for one in rows]), begin, end),
        "cpu_share": cpu_share,
        "p50_ms": seen["latency_p50_ms"],
        "p99_ms": seen["latency_p99_ms"],
    }


def share_of(at_s: np.ndarray, spent: np.ndarray, begin: float, end: float) -> float:
    """Percent of the thread: the mean of all windows behind the first one."""
    starts = np.arange(begin + WINDOW_S, end - WINDOW_S, 0.1)
    sums = [spent[(start <= at_s) & (at_s < start + WINDOW_S)].sum() for start in starts]
    return float(np.mean(sums)) / WINDOW_S


def cpu_us(gateway: GatewayProcess, frames: bytes) -> float:
    before = cpu_ns(gateway.pid)
    seen = load(port_of(gateway), 2.0, 0.0, frames)
    return (cpu_ns(gateway.pid) - before) / seen["requests"] / 1000


def costs(folder: Path, upstream: str, rounds: int) -> list[tuple[float, float]]:
    """CPU per request without any REQUEST quota and with one, in pairs."""
    frames = produce_frame(TOPIC, 1_000)
    with gateway_of(folder, upstream, ALWAYS, enforced=True) as gateway:
        cpu_us(gateway, frames)
        pairs = []
        for number in range(rounds):
            pair = {}
            for is_on in (True, False) if number % 2 else (False, True):
                gateway.reload(ALWAYS + (UNREACHED if is_on else ""))
                pair[is_on] = cpu_us(gateway, frames)
            pairs.append((pair[False], pair[True]))
    return pairs


def main() -> int:
    options = argparse.ArgumentParser(description="the REQUEST quota: holding and cost")
    options.add_argument("--seconds", type=float, default=34.0)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--hog", type=int, help=argparse.SUPPRESS)
    args = options.parse_args()
    if args.hog:
        hog(args.hog, args.seconds)
        return 0
    missed = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvota-bench-")))
        kafka = stack.enter_context(LocalKafka(nodes=1, host="127.0.0.1"))
        kafka.create_topic(TOPIC)
        upstream = kafka.bootstrap_servers
        seen = {
            enforced: held(folder / str(enforced), upstream, args.seconds, enforced=enforced)
            for enforced in (False, True)
        }
        for enforced, one in seen.items():
            print(
                f"{'enforced' if enforced else 'shadow':9} the hog took {one['share']:5.1f} % of the thread "
                f"(quota {PERCENT:g} %), the gateway's CPU {one['cpu_share']:5.1f} %; "
                f"others p50 {one['p50_ms']:6.2f} ms, p99 {one['p99_ms']:6.2f} ms"
            )
        if abs(seen[True]["share"] - PERCENT) > TOLERANCE:
            missed.append(f"{seen[True]['share']:.1f} % is not {PERCENT:g} % ± {TOLERANCE:g}")
        if seen[True]["p99_ms"] > seen[False]["p99_ms"] / 2:
            missed.append("the others' p99 has not halved")
        pairs = costs(folder / "costs", upstream, args.rounds)
    ratios = sorted(on / off for off, on in pairs)
    off_us = statistics.median(off for off, _ in pairs)
    middle = statistics.median(ratios)
    print(
        f"CPU per request of 1 KB: {off_us:.1f} µs without, with / without {middle:.3f} "
        f"({ratios[0]:.3f} to {ratios[-1]:.3f})"
    )
    if middle > X_CPU_MAX:
        missed.append(f"cpu: {middle:.3f} x is above {X_CPU_MAX}")
    for line in missed:
        print(line, file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
