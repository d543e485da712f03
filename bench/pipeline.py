"""Usage, the law and replay from a record's files, against a plain Spark scan of the same files.

    ./run bench pipeline [--events 5000000] [--rounds 3] [--counters 15000] [--hot 0.8] [--rows-per-file 1000000]

All contestants run in turn within each round, on the same lawful events: Zipf 1.1 over the counters, throttle
times from the kernel of the law. The first round warms up and is not counted; the ratio of a round is what counts,
its median is told. *scan*: Spark reads all columns and throws them away. *one thread*: the same work without
Spark, in this process. CPU is that of the whole process tree.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kvota.model.decision_sink import OUTCOMES
from kvota.model.quota_type import FACTS, QuotaType
from kvota.pipeline import (
    LAW_COLUMNS,
    USAGE_COLUMNS,
    chunks_of_files,
    end_session,
    find_events,
    law,
    read_files,
    replay,
    session,
    usage_total,
)
from kvota.pipeline.chunk_schema import COUNTER_COLUMNS
from kvota.pipeline.grid import Grid, GridRun
from kvota.pipeline.kernels.law_kernel import STATE_SIZE, law_rows
from kvota.pipeline.pack import pack
from kvota.pipeline.packing_choice import Packing
from kvota.pipeline.unpack import unpack
from kvota.record.event_schema import EVENT_SCHEMA

BROKERS = 3
START_US = 1_900_000_000_000_000
LIMIT = 200_000.0
RESULTS = Path(__file__).parent / "results"
QUOTAS = tuple(np.geomspace(2_000, 2_000_000, 20).tolist())


def write_events(folder: Path, args: argparse.Namespace) -> None:
    """PRODUCE charges in shadow mode on three brokers, about 10,000 a second; sizes are log-normal."""
    rng = np.random.default_rng(1)
    rows, users = args.events, -(-args.counters // BROKERS)
    weight = 1 / np.arange(1, users + 1) ** 1.1
    user = rng.choice(users, rows, p=weight / weight.sum()).astype(np.int32)
    node = rng.integers(0, BROKERS, rows).astype(np.int32)
    if args.hot:
        is_hot = rng.random(rows) < args.hot
        user[is_hot], node[is_hot] = 0, 0
    ts_us = START_US + np.cumsum(rng.exponential(100, rows)).astype(np.int64)
    value = np.round(rng.lognormal(7, 1.5, rows))
    throttle_ms, outcome = lawful(user.astype(np.int64) * BROKERS + node, ts_us, value)
    names = pa.array([f"user-{number}" for number in range(users)])
    tags = pa.array([f"client-id=,user=user-{number}" for number in range(users)])
    for first in range(0, rows, args.rows_per_file):
        part = slice(first, min(first + args.rows_per_file, rows))
        length = part.stop - first
        codes = pa.array(user[part])
        outcomes = pa.array(outcome[part].astype(np.int32))
        columns = {
            "ts_us": ts_us[part],
            "seq": np.arange(first, part.stop),
            "gateway": _same("gateway-1", length),
            "run_id": _same("run-1", length),
            "node_id": node[part],
            "quota_type": _same("PRODUCE", length),
            "connection": codes.cast(pa.int64()),
            "user": pa.DictionaryArray.from_arrays(codes, names),
            "client_id": _same("app", length),
            "tags": pa.DictionaryArray.from_arrays(codes, tags),
            "api_key": np.zeros(length, np.int16),
            "api_version": np.full(length, 11, np.int16),
            "value": value[part],
            "limit": np.full(length, LIMIT),
            "samples": np.full(length, 11, np.int16),
            "sample_ms": np.full(length, 1000, np.int32),
            "algorithm": _same("sampled_rate", length),
            "outcome": pa.DictionaryArray.from_arrays(
                outcomes, pa.array([o.value for o in OUTCOMES])
            ),
            "enforced": pa.array(np.zeros(length, np.bool_)),
            "throttle_ms": throttle_ms[part],
            "upstream_throttle_ms": np.zeros(length, np.int32),
            "owed_ms": pa.nulls(length, pa.int64()),
            "producer_id": pa.nulls(length, pa.int64()),
        }
        table = pa.table(
            [pa.array(columns[name]).cast(EVENT_SCHEMA.field(name).type) for name in columns],
            schema=EVENT_SCHEMA,
        )
        pq.write_table(table, folder / f"events-{first:012}.parquet", compression="zstd")


def lawful(
    counter: np.ndarray, ts_us: np.ndarray, value: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The throttle times and outcomes that a gateway would have recorded."""
    rows = len(counter)
    order = np.argsort(counter, kind="stable")
    sorted_counter = counter[order]
    first = np.ones(rows, np.bool_)
    first[1:] = sorted_counter[1:] != sorted_counter[:-1]
    no, yes = np.zeros(rows, np.bool_), np.ones(rows, np.bool_)
    throttle_ms, outcome = np.empty(rows, np.int32), np.empty(rows, np.int8)
    law_rows(
        first,
        yes,
        *(no,) * 3,
        yes,
        no,
        ts_us[order],
        value[order],
        np.full(rows, LIMIT),
        np.full(rows, FACTS[QuotaType.PRODUCE].floor),
        np.full(rows, 11),
        np.full(rows, 1000),
        np.zeros(STATE_SIZE, np.int64),
        np.zeros(1),
        np.zeros(12, np.int64),
        np.zeros(12, np.int64),
        np.zeros(12),
        throttle_ms,
        outcome,
        np.empty(rows, np.bool_),
    )
    back = np.empty(rows, np.int64)
    back[order] = np.arange(rows)
    return throttle_ms[back], outcome[back]


def _same(text: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))


def one_thread(folder: Path) -> None:
    """Replay without Spark: the same reading, packing and kernels, with one sort in between."""
    found = find_events([folder])
    runs = {(run.gateway, run.run_id): (rank, True) for rank, run in enumerate(found.runs)}
    packing = Packing(by="counter", runs=runs)
    chunks = [
        pack(pq.read_table(file, columns=packing.columns(), use_threads=False), packing)
        for file in found.good
    ]
    table = pa.Table.from_batches(chunks).combine_chunks()
    names = [*COUNTER_COLUMNS, "first"]
    order = pa.compute.sort_indices(table, [(name, "ascending") for name in names])
    table = table.take(order)
    keys = [
        table[name].combine_chunks().dictionary_encode().indices.to_numpy() for name in names[:-1]
    ]
    is_new = np.zeros(len(table), np.int64)
    for key in keys:
        is_new[1:] |= key[1:] != key[:-1]
    table = table.append_column("counter_id", pa.array(np.cumsum(is_new)))
    run = GridRun(Grid(quotas=QUOTAS))
    for rows in unpack(table.to_batches(10_000), as_recorded=True):
        run.replay(rows)


def cpu_s() -> float:
    """CPU seconds of this process and all below it, those that have ended included."""
    tick = os.sysconf("SC_CLK_TCK")
    ours = {os.getpid()}
    total = 0.0
    stats = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            stats[int(entry.name)] = (int(fields[1]), sum(map(int, fields[11:15])) / tick)
    grown = True
    while grown:
        below = {pid for pid, (parent, _) in stats.items() if parent in ours} - ours
        ours |= below
        grown = bool(below)
    for pid in ours:
        total += stats.get(pid, (0, 0.0))[1]
    return total


def measure(folder: Path, args: argparse.Namespace) -> dict[str, object]:
    spark = session(memory=args.memory)
    found = find_events([folder])

    def noop(table: object) -> None:
        table.write.format("noop").mode("overwrite").save()  # type: ignore[attr-defined]

    def judged() -> None:
        result = law(chunks_of_files(spark, found, further=LAW_COLUMNS))
        assert result.holds, str(result)
        assert result.rows == args.events

    def used() -> None:
        noop(usage_total(chunks_of_files(spark, found, "user", further=USAGE_COLUMNS)))

    def replayed(quotas: tuple[float, ...], mode: str = "open") -> None:
        noop(replay(chunks_of_files(spark, found), quotas, mode=mode))  # type: ignore[arg-type]

    contestants: dict[str, Callable[[], None]] = {
        "scan": lambda: noop(read_files(spark, found.good)),
        "usage": used,
        "law": judged,
        "replay, 1 quota": lambda: replayed(QUOTAS[:1]),
        "replay, 20 quotas": lambda: replayed(QUOTAS),
        "replay backlog, 20 quotas": lambda: replayed(QUOTAS, "backlog"),
        "one thread, replay, 20 quotas": lambda: one_thread(folder),
    }
    wall: dict[str, list[float]] = {name: [] for name in contestants}
    cpu: dict[str, list[float]] = {name: [] for name in contestants}
    load = os.getloadavg()[0]
    for number in range(args.rounds + 1):
        for name, work in contestants.items():
            cpu_before, started = cpu_s(), time.perf_counter()
            work()
            wall[name].append(time.perf_counter() - started)
            cpu[name].append(cpu_s() - cpu_before)
            print(
                f"round {number} {name}: {wall[name][-1]:.2f} s, {cpu[name][-1]:.2f} CPU-s",
                file=sys.stderr,
            )
    end_session(spark)
    return {
        "events": args.events,
        "counters": args.counters,
        "hot": args.hot,
        "rows_per_file": args.rows_per_file,
        "rounds": args.rounds,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "load_at_start_and_end": [round(load, 1), round(os.getloadavg()[0], 1)],
        "peak_driver_python_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "contestants": {
            name: {
                "seconds": [round(taken, 3) for taken in wall[name][1:]],
                "cpu_seconds": [round(taken, 3) for taken in cpu[name][1:]],
                "events_per_s": round(args.events / statistics.median(wall[name][1:])),
                "times_the_scan": _ratio(wall[name], wall["scan"]),
                "times_the_scans_cpu": _ratio(cpu[name], cpu["scan"]),
            }
            for name in contestants
        },
    }


def _ratio(ours: list[float], theirs: list[float]) -> float:
    ratios = [a / b for a, b in zip(ours[1:], theirs[1:], strict=True)]
    return round(statistics.median(ratios), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--counters", type=int, default=15_000)
    parser.add_argument("--hot", type=float, default=0.0, help="share of one counter")
    parser.add_argument("--rows-per-file", type=int, default=1_000_000)
    parser.add_argument("--memory", default="1g", help="of the driver's JVM")
    parser.add_argument("--name", default="pipeline", help="of the file with the results")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(f"writing {args.events:,} events", file=sys.stderr)
        write_events(Path(folder), args)
        result = measure(Path(folder), args)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{args.name}.json").write_text(json.dumps(result, indent=2) + "\n")
    print(f"{'':32} {'events/s':>12} {'x scan':>8} {'x its CPU':>10}")
    contestants: dict[str, dict[str, float]] = result["contestants"]  # type: ignore[assignment]
    for name, row in contestants.items():
        print(
            f"{name:32} {row['events_per_s']:>12,.0f} {row['times_the_scan']:>8} "
            f"{row['times_the_scans_cpu']:>10}"
        )
    print(f"load: {result['load_at_start_and_end']}")


if __name__ == "__main__":
    main()
