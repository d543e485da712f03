"""What the quota on producer ids costs a gateway for each Produce, on a real broker.

    ./run bench id_requests [--rounds 9] [--seconds 2]

CPU of the gateway's process per request, 1 KB over eight connections and 64 KB over two, each of an idempotent
producer of its own whose id is known. Compared in interleaved rounds within one run, each to a gateway without such a
quota: another one without (what the machine does to the figures), one with, and one with where an id of the same user was refused
and has not come again, which must make requests of other ids no dearer. Trust the ratios, which are medians over
rounds. It exits 1 where the quota costs more than its bar.
"""

import argparse
import os
import socket
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from frames import current_produce_frame
from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka import LocalKafka
from relay import TOPIC, Load, Target, commit, measure, topic_ids
from verdict import judged

RESULT = Path(__file__).parent / "results" / "id_requests.json"
WITHOUT, AGAIN, WITH, REFUSED = "without", "without, again", "with", "with, one refused"
MOST = 1.15
CONNECTIONS = {1_000: 8, 65_000: 2}
FIRST_ID = {1_000: 1_000, 65_000: 2_000}
KNOWN_IDS = sum(CONNECTIONS.values())


def gateway(stack: ExitStack, folder: Path, kafka: LocalKafka, rate: float | None) -> Target:
    first = free_port_range(3)
    quotas = 'user_default = true\nproducer_byte_rate = "100GB/s"\n'
    if rate is not None:
        quotas += f"producer_ids_rate = {rate}\n"
    process = GatewayProcess(
        folder,
        config=gateway_toml(
            upstream=kafka.bootstrap_servers,
            first_port=first,
            node_ids="0-1",
            enforce={"PRODUCE": True, "PRODUCER_ID": True},
            record="record",
        ).replace('flush_interval = "500ms"', 'flush_interval = "5s"'),
        quotas=f"[[quota]]\n{quotas}",
    )
    stack.enter_context(process)
    return Target(folder.name, first, process.pid)


def refuse(target: Target, frame: bytes) -> None:
    """An id beyond the quota; its refusal is remembered."""
    with socket.create_connection(("127.0.0.1", target.port)) as client:
        client.sendall(frame)
        answer = client.recv(1 << 16)
    assert b"producer id quota" in answer, answer


def main() -> int:
    options = argparse.ArgumentParser(description="cost of the quota on producer ids")
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--seconds", type=float, default=2.0)
    args = options.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvota-bench-")))
        kafka = stack.enter_context(LocalKafka(nodes=1, host="127.0.0.1"))
        topic = topic_ids(kafka)[TOPIC]
        rates = {WITHOUT: None, AGAIN: None, WITH: 1_000.0, REFUSED: float(KNOWN_IDS)}
        targets = {
            name: gateway(stack, folder / name.replace(", ", "-").replace(" ", "-"), kafka, rate)
            for name, rate in rates.items()
        }
        loads = [
            Load(
                f"produce {size // 1_000} KB, {count} connections",
                b"".join(
                    current_produce_frame(topic, size, producer_id=FIRST_ID[size] + number)
                    for number in range(count)
                ),
                count,
                "request",
            )
            for size, count in CONNECTIONS.items()
        ]
        found: dict[str, dict[str, list[float]]] = {}
        for round_number in range(args.rounds + 1):
            for load in loads:
                for name, target in targets.items():
                    cpu_us = measure(target, load, args.seconds)["cpu"]
                    if round_number:  # in the first one all ids become known
                        found.setdefault(load.name, {}).setdefault(name, []).append(cpu_us)
            if not round_number:
                refuse(targets[REFUSED], current_produce_frame(topic, 1_000, producer_id=9_999))
                time.sleep(1)
            print(f"round {round_number} of {args.rounds}", file=sys.stderr)
    return report(found, args)


def report(found: dict[str, dict[str, list[float]]], args: argparse.Namespace) -> int:
    kept: dict[str, object] = {
        "command": f"./run bench id_requests --rounds {args.rounds} --seconds {args.seconds:g}",
        "commit": commit(),
        "python": sys.version.split()[0],
        "cores": os.cpu_count(),
    }
    missed = []
    for load, by_name in found.items():
        print(load)
        kept[load] = of_load = {}
        for name, each in by_name.items():
            pairs = zip(each, by_name[WITHOUT], strict=True)
            low, ratio, high = statistics.quantiles((a / b for a, b in pairs), n=4)
            us = statistics.median(each)
            print(f"  {name:<20}{us:>8.2f} µs  x {ratio:.3f} ({low:.3f} to {high:.3f})")
            of_load[name] = {"us": us, "x without": [low, ratio, high], "rounds": each}
            if name == WITH and ratio > MOST:
                missed.append(f"{load}: {ratio:.2f} times the CPU; the bar is {MOST}")
    return judged(RESULT, kept, missed)


if __name__ == "__main__":
    sys.exit(main())
