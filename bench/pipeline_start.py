"""How long a command over a record takes until a worker has read its first rows, and to its end.

    ./run bench pipeline_start [--rounds 5] [--events 200000] [--against /path/to/another/checkout]

``kvota replay --law`` is run as a person runs it, by turns with that of another checkout where one is named. The
first round of each fills its caches and is not counted. Beside the seconds: CPU of the whole process tree.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pipeline_events import Traffic, write_events

TREE = Path(__file__).parent.parent
RESULT = Path(__file__).parent / "results" / "pipeline_start.json"
CODE = "import sys; from kvota.app.cli.main import main; sys.exit(main())"
LIMIT_S = 300.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--against", type=Path, help="another checkout")
    args = parser.parse_args()
    trees = {"this": TREE} | ({"other": args.against} if args.against else {})
    found: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record"
        record.mkdir()
        write_events(record, Traffic(args.events, 300, rows_per_file=20_000))
        for number in range(args.rounds + 1):
            for name, tree in trees.items():
                cache = Path(folder) / f"cache-{name}"
                measured = once(tree, record, cache)
                print(f"round {number} {name}: {measured}", file=sys.stderr)
                if number:
                    for key, value in measured.items():
                        found.setdefault(name, {}).setdefault(key, []).append(value)
    result = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "load_at_end": round(os.getloadavg()[0], 1),
        "events": args.events,
        "trees": found,
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    for name, columns in found.items():
        medians = {key: round(statistics.median(values), 2) for key, values in columns.items()}
        print(f"{name:6} {medians}")


def once(tree: Path, record: Path, cache: Path) -> dict[str, float]:
    """Run the command once; seconds from its start."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, "replay", "--law", "--events", str(record)],
        env=os.environ | {"PYTHONPATH": str(tree / "src"), "KVOTA_CACHE": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    first_s = 0.0
    while process.poll() is None and not first_s and time.monotonic() - began < LIMIT_S:
        if any(file.stat().st_size for file in cache.glob("run/spark-*/rows-done/read-*")):
            first_s = time.monotonic() - began
        time.sleep(0.01)
    said = process.communicate(timeout=LIMIT_S)[0]
    total_s = time.monotonic() - began
    assert process.returncode == 0, said.decode()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "first_rows_s": round(first_s, 2),
        "all_s": round(total_s, 2),
        "cpu_s": round(cpu_s, 2),
    }


if __name__ == "__main__":
    main()
