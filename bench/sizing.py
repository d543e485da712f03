"""What one gateway takes: memory at rest and per idle connection, connections a second, bytes per decision.

    ./run bench sizing [--connections 1000] [--rounds 3]

On a real broker, with quotas that are not reached and with recording. Each connection asks for the brokers' versions once, so that its
broker is dialled, and then is idle; the same number is opened to the broker itself for comparison. Memory is PSS of
the gateway and all its children, CPU theirs together. Decisions are those of Produce requests of 1 KB from 8
connections and 8 client ids. What requests and bytes cost is ``./run bench relay``.
"""

import argparse
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet as pq

from frames import current_produce_frame
from kvota.localkafka import LocalKafka
from kvota.testing.frames import API_VERSIONS, request
from processes import cpu_ns, pss_bytes
from relay import PLAIN, TOPIC, Load, Target, commit, measure, start_gateway, topic_ids

RESULT = Path(__file__).parent / "results" / "sizing.json"
# So many seconds of Produce requests as fast as they go are some 30,000 decisions.
_LOAD_S = 10.0
ASK = request(API_VERSIONS, 3, client="bench")


def opened(port: int, count: int) -> tuple[list[socket.socket], float]:
    """Open connections one after the other, each with one answer; return them, and how many a second."""
    began = time.perf_counter()
    sockets = []
    for _ in range(count):
        one = socket.create_connection(("127.0.0.1", port))
        one.sendall(ASK)
        left = int.from_bytes(one.recv(4, socket.MSG_WAITALL), "big")
        one.recv(left, socket.MSG_WAITALL)
        sockets.append(one)
    return sockets, count / (time.perf_counter() - began)


def connections(direct: Target, gateway: Target, count: int) -> dict[str, float]:
    assert gateway.pid is not None
    fresh = pss_bytes(gateway.pid)
    own, direct_per_s = opened(direct.port, count)
    first, _ = opened(gateway.port, 20)  # what the first ones cost is no connection's
    at_rest, cpu_before = pss_bytes(gateway.pid), cpu_ns(gateway.pid)
    through, per_s = opened(gateway.port, count)
    cpu = cpu_ns(gateway.pid) - cpu_before
    held = pss_bytes(gateway.pid)
    for one in (*own, *first, *through):
        one.close()
    return {
        "fresh_bytes": fresh,
        "per_connection_bytes": (held - at_rest) / count,
        "cpu_us_per_connection": cpu / count / 1000,
        "opened_per_s": per_s,
        "opened_per_s_direct": direct_per_s,
    }


def decisions(folder: Path) -> dict[str, float]:
    """What a record takes on the disk; its gateway has ended, so all of it is there."""
    files = list(folder.glob("*.parquet"))
    rows = sum(pq.read_metadata(file).num_rows for file in files)
    return {
        "decisions": rows,
        "bytes_per_decision": sum(file.stat().st_size for file in files) / rows,
    }


def main() -> int:
    options = argparse.ArgumentParser(description="what one gateway takes")
    options.add_argument("--connections", type=int, default=1_000)
    options.add_argument("--rounds", type=int, default=3)
    args = options.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvota-bench-")))
        kafka = stack.enter_context(LocalKafka(nodes=1, host="127.0.0.1"))
        topics = topic_ids(kafka)
        host, port = kafka.bootstrap_servers.split(":")
        direct = Target("direct", int(port), None)
        rounds = []
        for number in range(args.rounds):
            with ExitStack() as running:
                # A fresh one each time: what the last round has freed would be used again.
                (one := folder / f"round-{number}").mkdir()
                gateway = start_gateway(running, one, host, int(port))
                rounds.append(connections(direct, gateway, args.connections))
        with ExitStack() as running:
            gateway = start_gateway(running, folder, host, int(port))
            frames = b"".join(
                current_produce_frame(topics[TOPIC], 1_000, client_id=f"client-{number}")
                for number in range(8)
            )
            measure(gateway, Load("", frames, 8, "request", listener=PLAIN), _LOAD_S)
        recorded = decisions(folder / "gateway" / "record")
    found = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    found |= {"rounds": len(rounds)} | recorded
    print(
        f"memory of a gateway that has just started   {found['fresh_bytes'] / 1e6:8.1f} MB\n"
        f"  of each idle connection                   {found['per_connection_bytes'] / 1e3:8.1f} KB\n"
        f"a new connection                            {found['cpu_us_per_connection']:8.0f} µs of CPU\n"
        f"  opened one after the other                {found['opened_per_s']:8.0f} a second\n"
        f"  without the gateway                       {found['opened_per_s_direct']:8.0f} a second\n"
        f"a decision in the record                    {found['bytes_per_decision']:8.1f} B"
        f"  ({found['decisions']:,} of them)"
    )
    RESULT.write_text(
        json.dumps(
            {
                "command": f"./run bench sizing --connections {args.connections} --rounds {args.rounds}",
                "commit": commit(),
                "python": sys.version.split()[0],
                "cores": os.cpu_count(),
                "medians": found,
            },
            indent=1,
        )
        + "\n"
    )
    print(f"kept in {RESULT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
