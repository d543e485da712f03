"""Usage, the law, replay, recommend and compact, against a plain Spark scan of the same uncompacted files.

    ./run bench pipeline [--events 5000000] [--rounds 3] [--counters 15000] [--hot 0.8] [--rows-per-file 1000000]
                         [--only "scan;usage;law"] [--data FOLDER] [--split 20000]

All contestants run in turn within each round, on the same lawful events. The first round warms up and is not
counted; the ratio of a round is what counts, its median is told. *scan*: Spark reads all columns of the files as a
gateway wrote them and throws them away. *DuckDB*, *Polars*: the same usage from the same files on the same cores;
``times_duckdb`` and ``times_polars`` say how long ours took beside theirs, and ``left_out`` which of them are not
there. *one thread*: the same work without Spark, in this process. *compacted*:
from the record as ``kvota record compact`` leaves it. *split*: from the same rows in files of ``--split`` rows
each. CPU is that of the whole process tree, memory the peak of
the JVM, of this process and of the largest worker. ``--data`` keeps the events for the next time.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_type import Algorithm, QuotaType
from kvota.pipeline import (
    LAW_COLUMNS,
    USAGE_COLUMNS,
    Counted,
    chunks_of_files,
    end_session,
    find_events,
    law,
    read_files,
    recommend,
    replay,
    session,
    usage_total,
)
from kvota.pipeline.chunk_schema import COUNTER_COLUMNS
from kvota.pipeline.event_columns import Events
from kvota.pipeline.grid import Grid, GridRun
from kvota.pipeline.pack import pack
from kvota.pipeline.packing_choice import Packing
from kvota.pipeline.unpack import unpack
from kvota.pipeline.usage_tables import span_s
from kvota.record.compact import compact
from kvota.record.found_events import FoundEvents
from pipeline_events import Traffic, write_events
from pipeline_peers import PEERS, Result, lacking, peer_of, spark_usage
from process_peaks import cpu_s, forget_peaks, peaks_mb

RESULTS = Path(__file__).parent / "results"
QUOTAS = tuple(np.geomspace(2_000, 2_000_000, 20).tolist())
BUCKET = Counted(algorithm=Algorithm.TOKEN_BUCKET)
RATE = Counted(algorithm=Algorithm.SAMPLED_RATE)

# Two sums of the same numbers in another order differ by so much.
CLOSE = 1e-9


class Contest:
    """The contestants, by name; each does its work once."""

    def __init__(self, folder: Path, traffic: Traffic, memory: str) -> None:
        self.spark = session(memory=memory)
        self._folder = folder
        self._events = traffic.events
        self._raw = find_events([folder])
        self._copies = 0
        self._merged: FoundEvents | None = None
        self._traffic = traffic
        self._small: FoundEvents | None = None

    def all(self) -> dict[str, Callable[[], None]]:
        contestants: dict[str, Callable[[], None]] = {
            "scan": lambda: _noop(read_files(self.spark, self._raw.good)),
            "usage": lambda: self._usage(self._raw),
            **self._peers("usage", lambda: self._raw),
            "usage, Spark SQL": self._spark_usage,
            "law": lambda: self._law(self._raw),
            "replay, 1 quota": lambda: self._replay(self._raw, quotas=QUOTAS[:1]),
            "replay": lambda: self._replay(self._raw),
            "replay, token bucket": lambda: self._replay(self._raw, counted=BUCKET),
            "backlog, token bucket": lambda: self._replay(self._raw, "backlog", BUCKET),
            "backlog, sampled rate": lambda: self._replay(self._raw, "backlog", RATE),
            "one thread, replay": lambda: one_thread(self._raw),
            "recommend": self._recommend,
            "compact": self._compact,
            "compacted: scan": lambda: _noop(read_files(self.spark, self._compacted().good)),
            "compacted: usage": lambda: self._usage(self._compacted()),
            **self._peers("compacted: usage", self._compacted),
            "compacted: law": lambda: self._law(self._compacted()),
            "compacted: replay": lambda: self._replay(self._compacted()),
        }
        if self._traffic.rows_per_file_split:
            contestants |= {
                "split: usage": lambda: self._usage(self._split()),
                "split: replay": lambda: self._replay(self._split()),
            }
        return contestants

    def check(self, names: list[str]) -> None:
        """Hold the peers to our result, before anything is measured."""
        ours = self._our_usage()
        for name in names:
            theirs = None
            peer = peer_of(name)
            if peer:
                found = self._compacted() if name.startswith("compacted") else self._raw
                theirs = PEERS[peer](found.good, self._window_s())
            elif name == "usage, Spark SQL":
                theirs = spark_usage(read_files(self.spark, self._raw.good), self._window_s())
            if theirs is not None:
                differences = different(ours, theirs)
                assert not differences, f"{name}: {differences[:3]}"
                print(f"{name}: the same {len(theirs):,} rows", file=sys.stderr)

    def prepare(self, names: list[str]) -> None:
        """Make what no contestant is to be charged for."""
        if any(name.startswith("compacted") for name in names):
            self._compacted()
        if any(name.startswith("split") for name in names):
            self._split()

    def _split(self) -> FoundEvents:
        if self._small is None:
            folder = self._folder.with_name(f"{self._folder.name}-split")
            folder.mkdir()
            rows_per_file = self._traffic.rows_per_file_split
            write_events(folder, replace(self._traffic, rows_per_file=rows_per_file))
            self._small = find_events([folder])
        return self._small

    def _compacted(self) -> FoundEvents:
        if self._merged is None:
            self._compact()
        assert self._merged is not None
        return self._merged

    def _compact(self) -> None:
        self._copies += 1
        copy = self._folder.with_name(f"{self._folder.name}-compacted-{self._copies}")
        copy.mkdir()
        for file in self._raw.good:
            os.link(file, copy / Path(file).name)
        compact(copy, now_us=time.time_ns() // 1000, every_hour=True)
        if self._merged is None:
            self._merged = find_events([copy])
        else:
            shutil.rmtree(copy)

    def close(self) -> None:
        for kind in ("compacted-*", "split"):
            for copy in self._folder.parent.glob(f"{self._folder.name}-{kind}"):
                shutil.rmtree(copy)
        end_session(self.spark)

    def _law(self, found: FoundEvents) -> None:
        result = law(chunks_of_files(self.spark, found, further=LAW_COLUMNS))
        assert result.holds, str(result)
        assert result.rows == self._events

    def _usage(self, found: FoundEvents) -> None:
        _noop(usage_total(chunks_of_files(self.spark, found, "user", further=USAGE_COLUMNS)))

    def _replay(
        self,
        found: FoundEvents,
        mode: Any = "open",
        counted: Counted | None = None,
        *,
        quotas: tuple[float, ...] = QUOTAS,
    ) -> None:
        chunks = chunks_of_files(self.spark, found)
        _noop(replay(chunks, quotas, mode=mode, counted=counted or Counted()))

    def _recommend(self) -> None:
        types = [QuotaType.PRODUCE.value]
        chunks = chunks_of_files(
            self.spark,
            self._raw,
            "user",
            further=USAGE_COLUMNS,
            quota_types=types,
            gateways_apart=True,
        )
        clients = read_files(self.spark, self._raw.good)
        recommend(chunks, clients, ConfiguredQuotas(), {QuotaType.PRODUCE: 50e6})

    def _window_s(self) -> int:
        return span_s(chunks_of_files(self.spark, self._raw, "user"))[1]

    def _peers(self, what: str, found: Callable[[], FoundEvents]) -> dict[str, Callable[[], None]]:
        def work(peer: str) -> None:
            PEERS[peer](found().good, self._window_s())

        here = [peer for peer in PEERS if not lacking(peer)]
        return {f"{what}, {peer}": lambda peer=peer: work(peer) for peer in here}

    def _spark_usage(self) -> None:
        spark_usage(read_files(self.spark, self._raw.good), self._window_s())

    def _our_usage(self) -> Result:
        chunks = chunks_of_files(self.spark, self._raw, "user", further=USAGE_COLUMNS)
        columns = ("events", "value_sum", "throttled", "rate_p50", "rate_p95", "rate_p99")
        rows = usage_total(chunks).select("node_id", "user", *columns, "rate_max", "rate_10s_max")
        return {
            (row[0], row[1]): tuple(float(value) for value in row[2:]) for row in rows.collect()
        }


def _noop(table: Any) -> None:
    table.write.format("noop").mode("overwrite").save()


def different(ours: Result, theirs: Result) -> list[str]:
    """The rows in which two results are not the same, but for the last bits of a sum."""
    found = [str(key) for key in ours.keys() ^ theirs.keys()]
    found += [
        f"{key}: {ours[key]} is {theirs[key]}"
        for key in ours.keys() & theirs.keys()
        if not np.allclose(ours[key], theirs[key], rtol=CLOSE, atol=0)
    ]
    return found


def one_thread(found: FoundEvents) -> None:
    """Replay without Spark: the same reading, packing and kernels, with one sort in between."""
    runs = {(run.gateway, run.run_id): (rank, True) for rank, run in enumerate(found.runs)}
    packing = Packing(by="counter", runs=runs)
    chunks = [
        pack(Events(pq.read_table(file, columns=packing.columns(), use_threads=False)), packing)
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


def measure(folder: Path, traffic: Traffic, args: argparse.Namespace) -> dict[str, object]:
    began = time.perf_counter()
    contest = Contest(folder, traffic, args.memory)
    print(f"session: {time.perf_counter() - began:.1f} s", file=sys.stderr)
    try:
        return _measured(contest, traffic, args)
    finally:
        contest.close()


def _measured(contest: Contest, traffic: Traffic, args: argparse.Namespace) -> dict[str, object]:
    every = contest.all()
    names = args.only.split(";") if args.only else list(every)
    left_out = [peer for peer in PEERS if lacking(peer)]
    for peer in left_out:
        print(f"{peer}: left out, there is no such package", file=sys.stderr)
    names = [name for name in names if peer_of(name) not in left_out]
    unknown = [name for name in names if name not in every]
    if unknown:
        sys.exit(f"there is no contestant {unknown[0]!r}; known are {'; '.join(every)}")
    contestants = {name: every[name] for name in names}
    contest.prepare(names)
    if not args.no_check:
        contest.check(names)
    wall: dict[str, list[float]] = {name: [] for name in contestants}
    cpu: dict[str, list[float]] = {name: [] for name in contestants}
    peaks: dict[str, dict[str, int]] = {}
    load = os.getloadavg()[0]
    for number in range(args.rounds + 1):
        for name, work in contestants.items():
            forget_peaks()
            cpu_before, started = cpu_s(), time.perf_counter()
            work()
            wall[name].append(time.perf_counter() - started)
            cpu[name].append(cpu_s() - cpu_before)
            here = peaks_mb()
            before = peaks.get(name, here)
            peaks[name] = {part: max(mb, before.get(part, 0)) for part, mb in here.items()}
            print(
                f"round {number} {name}: {wall[name][-1]:.2f} s, {cpu[name][-1]:.2f} CPU-s, "
                f"peaks {here} MB",
                file=sys.stderr,
            )
    return {
        "events": traffic.events,
        "counters": traffic.counters,
        "hot": traffic.hot,
        "rows_per_file": traffic.rows_per_file,
        "rows_per_file_split": traffic.rows_per_file_split,
        "rounds": args.rounds,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "load_at_start_and_end": [round(load, 1), round(os.getloadavg()[0], 1)],
        "left_out": left_out,
        "contestants": {
            name: {
                "seconds": [round(taken, 3) for taken in wall[name][1:]],
                "cpu_seconds": [round(taken, 3) for taken in cpu[name][1:]],
                "events_per_s": round(traffic.events / statistics.median(wall[name][1:])),
                "times_the_scan": _ratio(wall[name], wall["scan"]),
                "times_the_scans_cpu": _ratio(cpu[name], cpu["scan"]),
                **_times_peers(name, wall),
                "peak_mb": peaks[name],
            }
            for name in contestants
        },
    }


def _times_peers(name: str, wall: dict[str, list[float]]) -> dict[str, float]:
    """How long ours took beside each peer that did the same in the same round."""
    return {
        f"times_{peer.lower()}": _ratio(wall[name], wall[f"{name}, {peer}"])
        for peer in PEERS
        if f"{name}, {peer}" in wall
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
    parser.add_argument("--split", type=int, default=0, help="rows per file of the split record")
    parser.add_argument("--memory", default="1g", help="of the driver's JVM")
    parser.add_argument("--only", help='contestants with ";" between them; scan has to be there')
    parser.add_argument("--no-check", action="store_true", help="peers' results are not compared")
    parser.add_argument("--data", type=Path, help="folder for the events, kept and used again")
    parser.add_argument("--name", default="pipeline", help="of the file with the results")
    args = parser.parse_args()
    traffic = Traffic(
        args.events, args.counters, args.hot, args.rows_per_file, rows_per_file_split=args.split
    )
    with tempfile.TemporaryDirectory() as own:
        folder = args.data or Path(own) / "record"
        if not folder.is_dir():
            print(f"writing {args.events:,} events", file=sys.stderr)
            folder.mkdir(parents=True)
            write_events(folder, traffic)
        result = measure(folder, traffic, args)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{args.name}.json").write_text(json.dumps(result, indent=2) + "\n")
    print(f"{'':26} {'events/s':>12} {'x scan':>7} {'x its CPU':>10}  peak MB: jvm, driver, worker")
    contestants: dict[str, dict[str, Any]] = result["contestants"]  # type: ignore[assignment]
    for name, row in contestants.items():
        peak = row["peak_mb"]
        print(
            f"{name:26} {row['events_per_s']:>12,.0f} {row['times_the_scan']:>7} "
            f"{row['times_the_scans_cpu']:>10}  {peak['jvm']:>5} {peak['driver']:>5} {peak['worker']:>5}"
            f"{''.join(f'  {row[key]} x {peer}' for peer in PEERS if (key := f'times_{peer.lower()}') in row)}"
        )
    print(f"load: {result['load_at_start_and_end']}")


if __name__ == "__main__":
    main()
