"""What it costs to keep usage by the minute while decisions are ingested, and how fast it is shown.

    ./run bench kept_usage [--events 4000000] [--tenants 16 5000 100000]

Decisions of two gateways, 10,000 a second each, of so many tenants (Zipf 1.1), in files of 500,000 as a worker of
``kvota ingest`` writes them, in batches of 4 million at most. For each number of tenants:

* CPU time of a worker for an event: for its file of events as before, and for the sums beside it;
* CPU time of the driver for an event: a batch is published, minutes are closed;
* what a minute takes on the disk for each tenant that was there (three lines: user, client, both);
* how long ``kvota usage --minutes --last 15m`` takes, from its start to its end.

Bar: a worker does 500,000 events a second with one core.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from kvota.model.decision_sink import ADMITTED
from kvota.record import usage_store
from kvota.record.event_table import event_table
from kvota.record.ingested import IngestFolder, write_ready
from kvota.record.kept_usage import usage_minutes
from kvota.record.places import USAGE_FOLDER
from kvota.record.row_batch import ROW_COLUMNS
from record_cost import make_memos
from verdict import judged

RESULT = Path(__file__).parent / "results" / "kept_usage.json"
BAR_PER_S = 500_000
FILE_ROWS = 500_000
BATCH_FILES = 8
GATEWAYS = 2
PER_S = 10_000
START_US = 1_790_000_000_000_000


def tables(events: int, tenants: int) -> Iterator[pa.Table]:
    """Files of one gateway after the other."""
    rng = np.random.default_rng(1)
    memos = make_memos(tenants)
    weights = 1.0 / np.arange(1, tenants + 1) ** 1.1
    for number in range(events // FILE_ROWS):
        part = number // GATEWAYS
        packed = np.zeros(FILE_ROWS, ROW_COLUMNS)
        packed["seq"] = np.arange(FILE_ROWS) + part * FILE_ROWS
        packed["ts_us"] = START_US + packed["seq"] * (1_000_000 // PER_S)
        packed["value"] = rng.integers(100, 200_000, FILE_ROWS)
        packed["outcome"] = ADMITTED
        packed["memo"] = rng.choice(tenants, FILE_ROWS, p=weights / weights.sum())
        yield event_table(packed, memos, gateway=f"gw-{number % GATEWAYS}", run_id="run")


def measured(events: int, tenants: int, into: Path) -> dict[str, float]:
    folder = IngestFolder.open(into)
    file_ns = sums_ns = publish_ns = 0
    waiting = []
    for number, rows in enumerate(tables(events, tenants)):
        began = time.process_time_ns()
        usage_store.write_seconds(into, f"tried-{number}", rows)
        sums_ns += time.process_time_ns() - began
        began = time.process_time_ns()
        waiting.append(write_ready(into, f"events-ingest-bench-{number:06d}.parquet", rows))
        file_ns += time.process_time_ns() - began
        if len(waiting) == BATCH_FILES or (number + 1) * FILE_ROWS >= events:
            began = time.process_time_ns()
            folder.publish("bench", number, waiting, repeated=0)
            publish_ns += time.process_time_ns() - began
            waiting = []
    folder.close()
    began_s = time.perf_counter()
    command = [sys.executable, "-m", "kvota.app.cli.main", "usage", "--events", str(into)]
    subprocess.run([*command, "--minutes", "--last", "15m"], check=True, stdout=subprocess.DEVNULL)
    shown_s = time.perf_counter() - began_s
    lines = usage_minutes(into, "user-client").num_rows
    closed = list((into / USAGE_FOLDER).glob("*.parquet"))
    closed_lines = sum(file.rows for file in folder.progress.usage.minutes)
    size = sum(path.stat().st_size for path in closed)
    return {
        "events": events,
        "file_ns": (file_ns - sums_ns) / events,
        "sums_ns": sums_ns / events,
        "publish_ns": publish_ns / events,
        "tenant_minutes": lines,
        "bytes_a_tenant_minute": 3 * size / max(1, closed_lines),
        "shown_s": shown_s,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--tenants", type=int, nargs="+", default=[16, 5_000, 100_000])
    args = parser.parse_args()
    found = {}
    missed = []
    for tenants in args.tenants:
        with tempfile.TemporaryDirectory() as folder:
            of_them = measured(args.events, tenants, Path(folder, "into"))
        found[str(tenants)] = of_them
        worker_ns = of_them["file_ns"] + of_them["sums_ns"]
        print(
            f"{tenants:>7,} tenants: a worker {of_them['file_ns']:.0f} ns an event and {of_them['sums_ns']:.0f} for the sums, the "
            f"driver {of_them['publish_ns']:.0f}; {of_them['tenant_minutes']:,.0f} minutes of tenants, "
            f"{of_them['bytes_a_tenant_minute']:.1f} bytes each; shown in {of_them['shown_s']:.2f} s"
        )
        if worker_ns > 1e9 / BAR_PER_S:
            missed.append(f"{tenants} tenants: a worker takes {worker_ns:.0f} ns for an event")
    return judged(RESULT, found, missed)


if __name__ == "__main__":
    raise SystemExit(main())
