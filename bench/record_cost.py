"""What recording costs: one append, one flush of 20,000 rows, one row on the disk.

    ./run bench record_cost [--rounds 30]

Compared in one run: the recorder's append against a tuple put into a deque, the cheapest thing Python can
keep (it would cost 200 ns more a row at the flush, with the interpreter held). Times are CPU time of one
thread, the best of all rounds: other work on the machine only ever adds.
"""

import argparse
import random
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from kvota.files.whole_file import write_whole
from kvota.model.decision_sink import ChargeMemo
from kvota.model.quota_type import Algorithm, QuotaType
from kvota.record.event_parquet import parquet_bytes, run_in, warm_up
from kvota.record.event_table import event_table
from kvota.record.row_appender import RowAppender
from kvota.record.row_batch import RowBatch

ROWS = 20_000
CONNECTIONS = 16
START_US = 1_790_000_000_000_000


def make_memos() -> list[ChargeMemo]:
    return [
        ChargeMemo(
            node_id=number % 3,
            quota_type=QuotaType.PRODUCE if number % 2 else QuotaType.FETCH,
            connection=number,
            user=f"user-{number}",
            client_id=f"client-{number}",
            tags=f"client-id=,user=user-{number}",
            api_key=number % 2,
            api_version=9 + number % 2,
            limit=8e6,
            samples=11,
            sample_ms=1000,
            algorithm=Algorithm.SAMPLED_RATE,
            enforced=True,
        )
        for number in range(CONNECTIONS)
    ]


def make_charges(
    memos: list[ChargeMemo],
) -> list[tuple[ChargeMemo, int, int, float, int, int, int]]:
    """Rows as a gateway sees them: 10,000 a second, mixed sizes, a fifth throttled."""
    rng = random.Random(1)
    now_us = START_US
    charges = []
    for seq in range(ROWS):
        now_us += rng.randrange(20, 180)
        throttle_ms = rng.randrange(1, 9000) if rng.random() < 0.2 else 0
        value = float(rng.choice((1136, rng.randrange(100, 200_000))))
        charges.append(
            (rng.choice(memos), seq, now_us, value, throttle_ms, 0, 1 if throttle_ms else 0)
        )
    return charges


def best(rounds: int, measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(rounds))


def ns_per_call(charges: list[tuple[object, ...]], call: Callable[..., object]) -> float:
    start_ns = time.thread_time_ns()
    for memo, seq, ts_us, value, throttle_ms, upstream_ms, outcome in charges:
        call(memo, seq, ts_us, value, throttle_ms, upstream_ms, outcome)
    return (time.thread_time_ns() - start_ns) / len(charges)


def fill(charges: list[tuple[object, ...]]) -> tuple[float, RowBatch]:
    appender = RowAppender(batches=2, rows_max=ROWS)
    taken_ns = ns_per_call(charges, appender.append)
    assert appender.rows_refused == 0
    return taken_ns, appender.batch


def drop(charges: list[tuple[object, ...]]) -> float:
    appender = RowAppender(batches=2, rows_max=1)
    taken_ns = ns_per_call(charges, appender.append)
    assert appender.rows_refused == ROWS - 2
    return taken_ns


def keep_tuples(charges: list[tuple[object, ...]]) -> float:
    append = deque(maxlen=ROWS).append
    return ns_per_call(charges, lambda *row: append(row))


def do_nothing(charges: list[tuple[object, ...]]) -> float:
    def nothing(*_row: object) -> None:
        return

    return ns_per_call(charges, nothing)


def flush_ms(batch: RowBatch, folder: Path) -> tuple[float, float, float, int]:
    """CPU of rows → table, table → Parquet; wall clock of the file with its fsync; bytes."""
    cpu_ns = time.thread_time_ns
    begin = cpu_ns()
    table = event_table(batch.columns(0, batch.offset), batch.memos, gateway="gw", run_id="run")
    joined = cpu_ns()
    content = parquet_bytes(table, [run_in(table, gateway="gw", run_id="run")])
    encoded = cpu_ns()
    wall_ns = time.perf_counter_ns()
    write_whole(folder / "events.parquet", memoryview(content))
    written_ms = (time.perf_counter_ns() - wall_ns) / 1e6
    return (joined - begin) / 1e6, (encoded - joined) / 1e6, written_ms, content.size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    warm_up()
    charges = make_charges(make_memos())
    loop_ns = best(rounds, lambda: do_nothing(charges))
    append_ns = best(rounds, lambda: fill(charges)[0])
    drop_ns = best(rounds, lambda: drop(charges))
    tuple_ns = best(rounds, lambda: keep_tuples(charges))
    batch = fill(charges)[1]
    with tempfile.TemporaryDirectory() as folder:
        flushes = [flush_ms(batch, Path(folder)) for _ in range(rounds)]
    join_ms, encode_ms, write_ms, size_bytes = (
        min(column) for column in zip(*flushes, strict=True)
    )
    print(f"append, call included          {append_ns:6.0f} ns   (an empty call: {loop_ns:.0f} ns)")
    print(
        f"a tuple into a deque           {tuple_ns:6.0f} ns   append is {append_ns / tuple_ns:.2f} x"
    )
    print(f"append when nothing is free    {drop_ns:6.0f} ns")
    print(f"flush of {ROWS} rows: join    {join_ms:6.2f} ms CPU")
    print(f"                      Parquet {encode_ms:6.2f} ms CPU")
    print(f"                      file    {write_ms:6.2f} ms wall clock, fsync twice")
    print(f"on the disk                    {size_bytes / ROWS:6.2f} bytes/row")


if __name__ == "__main__":
    main()
