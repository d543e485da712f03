"""Events per second of usage, the law and replay, against a plain Spark scan and a single-thread Numba loop.

    ./run bench replay [--events 5000000] [--rounds 3]

All contestants run in turn within each round, on the same synthetic events (5,000 users, Zipf 1.1);
the first round warms up and is not counted; the ratio of a round is what counts, its median is told.
"""

import argparse
import itertools
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from kvota.model.quota_type import FACTS, QuotaType
from kvota.pipeline import end_session, read_events, replay, replay_rows, session, usage_total
from kvota.pipeline.grid_run import CounterRun, Grid
from kvota.record.event_schema import EVENT_SCHEMA

USERS = 5_000
START_US = 1_900_000_000_000_000
ROWS_PER_FILE = 1_000_000
RESULTS = Path(__file__).parent / "results"
QUOTAS = tuple(np.geomspace(2_000, 2_000_000, 20).tolist())


def write_events(folder: Path, count: int) -> None:
    """PRODUCE charges on three brokers, about 10,000 a second; sizes are log-normal."""
    rng = np.random.default_rng(1)
    weight = 1 / np.arange(1, USERS + 1) ** 1.1
    names = pa.array([f"user-{number}" for number in range(USERS)])
    tags = pa.array([f"client-id=,user=user-{number}" for number in range(USERS)])
    for first in range(0, count, ROWS_PER_FILE):
        rows = min(ROWS_PER_FILE, count - first)
        user = pa.array(rng.choice(USERS, rows, p=weight / weight.sum()).astype(np.int32))
        step_us = rng.exponential(100, rows)
        ts_us = START_US + (first * 100 + np.cumsum(step_us)).astype(np.int64)
        columns = {
            "ts_us": ts_us,
            "seq": np.arange(first, first + rows),
            "gateway": _same("gateway-1", rows),
            "run_id": _same("run-1", rows),
            "node_id": rng.integers(0, 3, rows).astype(np.int32),
            "quota_type": _same("PRODUCE", rows),
            "connection": user.cast(pa.int64()),
            "user": pa.DictionaryArray.from_arrays(user, names),
            "client_id": _same("app", rows),
            "tags": pa.DictionaryArray.from_arrays(user, tags),
            "api_key": np.zeros(rows, np.int16),
            "api_version": np.full(rows, 11, np.int16),
            "value": np.round(rng.lognormal(7, 1.5, rows)),
            "limit": np.full(rows, 50_000.0),
            "samples": np.full(rows, 11, np.int16),
            "sample_ms": np.full(rows, 1000, np.int32),
            "algorithm": _same("sampled_rate", rows),
            "outcome": _same("admitted", rows),
            "enforced": pa.array(np.zeros(rows, np.bool_)),
            "throttle_ms": np.zeros(rows, np.int32),
            "upstream_throttle_ms": np.zeros(rows, np.int32),
        }
        table = pa.table(
            [pa.array(columns[name]).cast(EVENT_SCHEMA.field(name).type) for name in columns],
            schema=EVENT_SCHEMA,
        )
        pq.write_table(table, folder / f"events-{first:012}.parquet", compression="zstd")


def _same(text: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))


def numba_loop(folder: Path, quotas: tuple[float, ...]) -> tuple[float, float, int]:
    """One thread: load, sort, then the same kernel. Returns both times and the size of the state."""
    started = time.perf_counter()
    names = ["node_id", "tags", "seq", "ts_us", "value", "limit", "samples", "sample_ms"]
    table = ds.dataset(folder).to_table(columns=names, use_threads=False)
    codes = table["tags"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    counter = codes * 3 + table["node_id"].to_numpy()
    order = np.lexsort((table["seq"].to_numpy(), counter))
    column = {name: table[name].to_numpy()[order] for name in names[3:]}
    for name in ("samples", "sample_ms"):
        column[name] = column[name].astype(np.int64)
    column["strict"] = np.zeros(len(order), np.bool_)
    column["complete"] = np.ones(len(order), np.bool_)
    column["bucket"] = column["debt"] = np.zeros(len(order), np.bool_)
    column["debt_max_ms"] = np.full(len(order), np.inf)
    column["floor"] = np.full(len(order), FACTS[QuotaType.PRODUCE].floor)
    cuts = [0, *(np.flatnonzero(np.diff(counter[order])) + 1).tolist(), len(order)]
    loaded = time.perf_counter()
    grid, state_bytes = Grid(quotas=quotas), 0
    for start, end in itertools.pairwise(cuts):
        run = CounterRun(start, grid)
        run.feed({name: values[start:end] for name, values in column.items()})
        run.result()
        state_bytes = run.state_bytes
    return loaded - started, time.perf_counter() - loaded, state_bytes


def measure(folder: Path, count: int, rounds: int) -> dict[str, object]:
    spark = session()
    events = read_events(spark, folder)

    def noop(table: object) -> None:
        table.write.format("noop").mode("overwrite").save()  # type: ignore[attr-defined]

    spark_work: dict[str, Callable[[], None]] = {
        "scan": lambda: noop(events),
        "usage": lambda: noop(usage_total(events)),
        "law": lambda: noop(replay_rows(events)),
        "replay, 1 quota": lambda: noop(replay(events, QUOTAS[:1])),
        "replay, 20 quotas": lambda: noop(replay(events, QUOTAS)),
        "replay backlog, 20 quotas": lambda: noop(replay(events, QUOTAS, mode="backlog")),
    }
    seconds: dict[str, list[float]] = {name: [] for name in spark_work}
    loop = ("one thread: load and sort", "one thread: kernel, 20 quotas")
    seconds |= {name: [] for name in loop}
    state_bytes = 0
    for number in range(rounds + 1):
        for name, work in spark_work.items():
            started = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - started)
            print(f"round {number} {name}: {seconds[name][-1]:.2f} s", file=sys.stderr)
        load_s, kernel_s, state_bytes = numba_loop(folder, QUOTAS)
        for name, took_s in zip(loop, (load_s, kernel_s), strict=True):
            seconds[name].append(took_s)
            print(f"round {number} {name}: {took_s:.2f} s", file=sys.stderr)
    end_session(spark)
    counted = {name: taken[1:] for name, taken in seconds.items()}
    thread_s = [a + b for a, b in zip(counted[loop[0]], counted[loop[1]], strict=True)]
    return {
        "events": count,
        "rounds": rounds,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "state_bytes_per_counter_20_quotas": state_bytes,
        "contestants": {
            name: {
                "seconds": [round(taken, 3) for taken in counted[name]],
                "events_per_s": round(count / statistics.median(counted[name])),
                "times_the_scan": _ratio(counted[name], counted["scan"]),
                "times_one_thread": _ratio(counted[name], thread_s),
            }
            for name in counted
        },
    }


def _ratio(ours: list[float], theirs: list[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(ours, theirs, strict=True)), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(f"writing {args.events:,} events", file=sys.stderr)
        write_events(Path(folder), args.events)
        result = measure(Path(folder), args.events, args.rounds)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "replay.json").write_text(json.dumps(result, indent=2) + "\n")
    print(f"{'':28} {'events/s':>12} {'x scan':>8} {'x one thread':>13}")
    contestants: dict[str, dict[str, float]] = result["contestants"]  # type: ignore[assignment]
    for name, row in contestants.items():
        print(
            f"{name:28} {row['events_per_s']:>12,.0f} {row['times_the_scan']:>8} {row['times_one_thread']:>13}"
        )
    print(f"state per counter, 20 quotas: {result['state_bytes_per_counter_20_quotas']:,} bytes")


if __name__ == "__main__":
    main()
