"""What does a factor cost that changes every second? And does the law hold across every change?

    ./run bench factor_changes [--pairs 8] [--seconds 5] [--connections 200] [--keep]

Two gateways in front of one broker look at the disks of this machine every second. For one of them the factor of produce limits is
another one at each look (a file in /dev/shm grows and shrinks); for the other it stays 1. Each pair loads the one and then
the other with 200 connections that send 1 KB without a pause, far below their quota. Compared are the CPU times per request,
pair by pair. Then the record of the changing one is replayed.

It exits 1 where the median of the pairs is above 1.05, or the law does not hold.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.files.log_dirs import observe_local
from kvota.localkafka import LocalKafka
from kvota.volumes.settings import CHECK_INTERVAL, HARD_USED, LOG_DIRS, SOFT_USED
from relay import (
    PLAIN,
    QUOTAS,
    TOPIC,
    Load,
    Target,
    commit,
    current_produce_frame,
    measure,
    topic_ids,
)

HERE = Path(__file__).parent
SHARED = Path("/dev/shm")  # noqa: S108  (a file system of its own, on every Linux)
MIB = 2**20
SIZES = (64 * MIB, 96 * MIB, 128 * MIB)
# Of so much the file is a few percent: the factor moves between 0.99 and 0.98.
BAND = 8_000 * MIB
RATIO_MAX = 1.05


def gateway(kafka: LocalKafka, folder: Path, *, changes: bool) -> tuple[GatewayProcess, Target]:
    disk = SHARED if changes else Path("/")
    used = observe_local([str(disk)]).volumes[0].used_bytes
    soft = used if changes else used + 2**50
    config = gateway_toml(
        upstream=kafka.bootstrap_servers,
        node_ids="1-1",
        enforce={"PRODUCE": True},
        record="record",
        kafka={CHECK_INTERVAL: 1, LOG_DIRS: str(disk), SOFT_USED: soft, HARD_USED: soft + BAND},
    )
    one = GatewayProcess(folder, config=config, quotas=QUOTAS)
    one.start()
    return one, Target("changes" if changes else "stays", one.first_port + 2, one.pid)


@contextmanager
def changing_disk() -> Iterator[None]:
    """A file that is another size every second."""
    file = SHARED / f"kvota-bench-{os.getpid()}"
    ended = threading.Event()

    def change() -> None:
        for size in cycle(SIZES):
            with file.open("wb") as out:
                for _ in range(size // MIB):
                    out.write(bytes(MIB))
            if ended.wait(1.0):
                return

    thread = threading.Thread(target=change, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(10)
        file.unlink(missing_ok=True)


def law_of(record: Path) -> dict[str, object]:
    command = [sys.executable, "-m", "kvota.app.cli.main", "replay", "--law", "--output", "json"]
    done = subprocess.run(
        [*command, "--events", str(record)], capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    return {key: found[key] for key in ("holds", "rows", "differing_rows", "missing_rows")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument(
        "--keep", action="store_true", help="write bench/results/factor_changes.json"
    )
    args = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvota-bench-")))
        kafka = stack.enter_context(LocalKafka(host="127.0.0.1"))
        frame = current_produce_frame(topic_ids(kafka)[TOPIC], 1_000)
        load = Load("produce 1 KB", frame, args.connections, "request", listener=PLAIN)
        (changing, changes), (steady, stays) = (
            gateway(kafka, folder / name, changes=name == "changes")
            for name in ("changes", "stays")
        )
        stack.callback(changing.stop)
        stack.callback(steady.stop)
        ratios = []
        with changing_disk():
            for target in (changes, stays):
                measure(target, load, 1.0)
            for number in range(args.pairs):
                order = (changes, stays) if number % 2 else (stays, changes)
                us = {one.name: measure(one, load, args.seconds)["cpu"] for one in order}
                ratios.append(us["changes"] / us["stays"])
                print(f"{us['changes']:.2f} against {us['stays']:.2f} us/request", flush=True)
        changing.stop()
        # Each look changes it, so rows have as many limits in turn.
        law = law_of(changing.folder / "record")
    ratio = statistics.median(ratios)
    result = {
        "commit": commit(),
        "connections": args.connections,
        "pairs": [round(each, 3) for each in ratios],
        "ratio": round(ratio, 3),
        "law": law,
    }
    print(json.dumps(result))
    if args.keep:
        path = HERE / "results" / "factor_changes.json"
        path.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if ratio <= RATIO_MAX and law["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
