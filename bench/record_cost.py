"""What recording costs: one append, one flush of 20,000 rows, one row on the disk.

    ./run bench record_cost [--rounds 30] [--pairs 9]

Compared in one run: the recorder's append against a tuple put into a deque, the cheapest thing Python can
keep (it would cost 200 ns more a row at the flush, with the interpreter held). Times are CPU time of one
thread, the best of all rounds: other work on the machine only ever adds.

With ``--pairs N`` a real Kafka is started, and the append is measured while its rows go to files, and while they go to a
topic: N pairs that alternate, each of 200,000 rows; the median of their ratios is what a topic costs the hot path.
"""

import argparse
import random
import tempfile
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from kvota.client import Cluster
from kvota.files.whole_file import write_whole
from kvota.localkafka import LocalKafka
from kvota.model.decision_sink import ChargeMemo
from kvota.model.quota_type import Algorithm, QuotaType
from kvota.record.event_block import block_bytes
from kvota.record.event_parquet import parquet_bytes, run_in, warm_up
from kvota.record.event_table import event_table
from kvota.record.record_limits import RecordLimits
from kvota.record.recorder import Recorder
from kvota.record.row_appender import RowAppender
from kvota.record.row_batch import RowBatch
from kvota.record.topic_sender import BLOCK_ROWS, TopicSender

ROWS = 20_000
CONNECTIONS = 16
PAIR_BATCHES = 10
START_US = 1_790_000_000_000_000


def make_memos(count: int = CONNECTIONS) -> list[ChargeMemo]:
    """Of so many tenants, each with a connection of its own."""
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
        for number in range(count)
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


class Clock:
    def now_us(self) -> int:
        return time.time_ns() // 1000


def recorded_ns(charges: list[tuple[object, ...]], recorder: Recorder) -> float:
    """CPU of the deciding thread for a row, while other threads write or send what it has appended."""
    recorder.start()
    taken_ns = 0.0
    for _ in range(PAIR_BATCHES):
        taken_ns += ns_per_call(charges, recorder.append) / PAIR_BATCHES
        time.sleep(0.05)  # some 100,000 rows a second, faster than any gateway decides
    recorder.close()
    status = recorder.status()
    assert status.rows_written == PAIR_BATCHES * ROWS, status
    return taken_ns


def measure_pairs(charges: list[tuple[object, ...]], pairs: int) -> None:
    limits = RecordLimits()
    named = {"gateway": "gw", "limits": limits, "clock": Clock()}
    ratios, files_ns, topic_ns = [], [], []
    with tempfile.TemporaryDirectory() as folder, LocalKafka() as kafka:
        for number in range(pairs + 1):
            files = Recorder(Path(folder, str(number)), run_id=f"f{number}", **named)  # type: ignore[arg-type]
            make_cluster = partial(Cluster, [kafka.bootstrap_servers])
            sender = TopicSender("events", make_cluster, limits=limits, key="gw", clock=Clock())
            topic = Recorder(None, sender, run_id=f"t{number}", **named)  # type: ignore[arg-type]
            order = [files, topic] if number % 2 else [topic, files]
            taken = {id(one): recorded_ns(charges, one) for one in order}
            if number:  # the first pair warms up
                files_ns.append(taken[id(files)])
                topic_ns.append(taken[id(topic)])
                ratios.append(taken[id(topic)] / taken[id(files)])
    print(
        f"append while rows go to files  {median(files_ns):6.0f} ns   to a topic {median(topic_ns):.0f} ns: "
        f"{median(ratios):.3f} x (median of {pairs} pairs, {min(ratios):.2f} to {max(ratios):.2f})"
    )


def block_ms(batch: RowBatch) -> tuple[float, int]:
    """CPU of table → blocks; bytes."""
    table = event_table(batch.columns(0, batch.offset), batch.memos, gateway="gw", run_id="run")
    begin = time.thread_time_ns()
    size = sum(
        len(block_bytes(table.slice(at, BLOCK_ROWS))) for at in range(0, len(table), BLOCK_ROWS)
    )
    return (time.thread_time_ns() - begin) / 1e6, size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--pairs", type=int, default=0)
    args = parser.parse_args()
    rounds = args.rounds
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
    pack_ms, block_size = min(block_ms(batch) for _ in range(rounds))
    print(f"blocks for a topic             {pack_ms:6.2f} ms CPU in place of Parquet")
    print(f"in a topic                     {block_size / ROWS:6.2f} bytes/row")
    if args.pairs:
        measure_pairs(charges, args.pairs)


if __name__ == "__main__":
    main()
