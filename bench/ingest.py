"""How fast a topic of Arrow blocks becomes a record, and that each event is in it once.

    ./run bench ingest [--events 24000000] [--kills 3]

A cluster of one broker on this machine, a topic of two partitions, blocks as a gateway's record writes them. What is
measured, in one run:

* what a worker does for an event, in CPU time, which other work on the machine hardly changes;
* the rate of ``kvota ingest`` once it is warm: all batches but the first (a batch has 4 million events at most);
* beside it, what Spark takes to read the same rows out of the files that came of it (a scan of all columns to nothing);
* another run that is killed so often (``kill -9`` of the whole process group, at a random moment after a batch was begun),
  then left to finish: every event must be there once. It fails where a kill has met nothing that was still at work.

Bars: 500,000 events per second once warm, and each event in the record once.
"""

import argparse
import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from kvota.app.system_clock import SystemClock
from kvota.client import Cluster
from kvota.client.record_batches import encode_batch
from kvota.client.topic_log import TopicLog
from kvota.localkafka import LocalKafka
from kvota.pipeline import end_session, session
from kvota.pipeline.events import read_events
from kvota.pipeline.ingest.take_pieces import Task
from kvota.pipeline.ingest.topic_source import BLOCKS_MAX
from kvota.record.check import check
from kvota.record.event_block import block_bytes
from kvota.record.event_table import event_table
from kvota.record.found_events import find_events
from kvota.record.ingested import FOLDER, read_progress
from kvota.record.ledger import Ledger
from kvota.record.row_batch import RowBatch
from kvota.record.topic_sender import BLOCK_ROWS
from record_cost import ROWS, fill, make_charges, make_memos
from verdict import judged

RESULT = Path(__file__).parent / "results" / "ingest.json"
BAR_PER_S = 500_000
BATCH_ROWS = BLOCKS_MAX * BLOCK_ROWS
BEGUN_S = 120.0
TOPIC = "events"
PARTITIONS = 2


def make_blocks(batch: RowBatch, events: int) -> list[bytes]:
    """Blocks of two gateways, each with seqs of its own."""
    packed = batch.columns(0, batch.offset)
    blocks = []
    for number in range(events // ROWS):
        rows = packed.copy()
        rows["seq"] += number // PARTITIONS * ROWS
        rows["ts_us"] += number // PARTITIONS * 2_000_000
        table = event_table(rows, batch.memos, gateway=f"gw-{number % PARTITIONS}", run_id="run")
        blocks += [block_bytes(table.slice(at, BLOCK_ROWS)) for at in range(0, ROWS, BLOCK_ROWS)]
    return blocks


async def send(servers: str, blocks: list[bytes]) -> None:
    async with Cluster([servers]) as cluster:
        log = TopicLog(TOPIC, cluster)
        await log.find()
        per_gateway = ROWS // BLOCK_ROWS
        for number, block in enumerate(blocks):
            partition = number // per_gateway % PARTITIONS
            # Of today: the topic's retention goes by these times.
            now_ms = SystemClock().now_us() // 1000
            await log.append(partition, encode_batch([(None, block)], now_ms=now_ms))


def task_ns(blocks: list[bytes], folder: Path) -> float:
    """CPU for an event of what a worker does: unpack, leave out what was taken, write whole files."""
    (folder / FOLDER).mkdir(parents=True)
    task = Task(folder, "events-ingest-bench-000000000000", 0, Ledger())
    pieces = [
        {"source": TOPIC, "offset": number, "value": block, "fault": None}
        for number, block in enumerate(blocks)
    ]
    began_ns = time.process_time_ns()
    for piece in pieces:
        task.take(piece)
    task.write()
    return (time.process_time_ns() - began_ns) / (len(blocks) * BLOCK_ROWS)


def command(servers: str, into: Path, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "kvota.app.cli.main", "ingest", "--topic", TOPIC),
        *("--bootstrap-server", servers, "--into", str(into), "--master", "local[2]", *more),
    ]


@dataclass(frozen=True, slots=True)
class Rates:
    """Of one run that nobody disturbs: events per second, once warm and from its cold start."""

    warm_per_s: float
    cold_per_s: float
    batches: int
    batch_s: float  # the mean of the warm ones


def measured(servers: str, into: Path) -> Rates:
    began = time.perf_counter()
    seen: list[tuple[float, int]] = []
    with subprocess.Popen(
        command(servers, into), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            found = re.match(r"kvota: batch \d+: ([\d,]+) decisions", line)
            if found:
                seen.append((time.perf_counter(), int(found[1].replace(",", ""))))
            elif "kvota:" in line:
                print(line, end="")
    whole_s = time.perf_counter() - began
    warm_s = seen[-1][0] - seen[0][0]
    return Rates(
        warm_per_s=sum(rows for _, rows in seen[1:]) / warm_s,
        cold_per_s=sum(rows for _, rows in seen) / whole_s,
        batches=len(seen),
        batch_s=warm_s / (len(seen) - 1),
    )


def scan_s(into: Path) -> float:
    """What Spark itself takes to read the files: the second time, of a session that is warm."""
    spark = session("local[2]")
    events = read_events(spark, into)
    taken = []
    for _ in range(3):
        began = time.perf_counter()
        events.write.format("noop").mode("overwrite").save()
        taken.append(time.perf_counter() - began)
    end_session(spark)
    return min(taken[1:])


@dataclass(frozen=True, slots=True)
class Kill:
    """Where one hit.

    Attributes:
        batch: the last one that had been begun.
        is_within: it was not over.
        after_s: so long after this process began its first batch.
        taken: events that were in the record by then.
    """

    batch: int
    is_within: bool
    after_s: float
    taken: int


def begun_and_over(into: Path) -> tuple[set[int], set[int]]:
    """Which batches Spark has begun, and which are over."""
    checkpoint = into / FOLDER / f"checkpoint-{TOPIC}"
    begun, over = (
        {int(path.name) for path in (checkpoint / name).glob("[0-9]*")}
        for name in ("offsets", "commits")
    )
    return begun, over


def at_work(into: Path) -> set[object]:
    """What shows that a batch was begun: a number, or, where it is one that was begun before, what workers write anew."""
    return {*begun_and_over(into)[0], *(into / FOLDER).glob("*.ready")}


def killed(servers: str, into: Path, events: int, within_s: float) -> Kill:
    """Run it, and kill all of it so long after it has begun a batch.

    Raises:
        RuntimeError: there was nothing to kill, or nothing left to do.
    """
    before = at_work(into)
    log = into.with_suffix(".log")
    with log.open("w") as stderr:
        process = subprocess.Popen(
            command(servers, into), stdout=stderr, stderr=stderr, start_new_session=True
        )
    try:
        end = time.monotonic() + BEGUN_S
        while not at_work(into) - before:
            if process.poll() is not None or time.monotonic() > end:
                msg = f"no batch was begun: {log.read_text()}"
                raise RuntimeError(msg)
            time.sleep(0.01)
        time.sleep(within_s)
        ended = process.poll()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    begun, over = begun_and_over(into)
    taken = read_progress(into).rows
    if ended is not None or taken == events:
        msg = f"it was through with {taken:,} events before it was killed (code {ended}): take more --events"
        raise RuntimeError(msg)
    return Kill(max(begun), max(begun) not in over, within_s, taken)


def kill_and_finish(
    servers: str, into: Path, *, kills: int, seed: int, events: int, batch_s: float
) -> list[Kill]:
    """Kill it at random moments, then let it finish."""
    rng = random.Random(seed)
    hits = []
    for number in range(kills):
        hit = killed(servers, into, events, rng.uniform(0.0, batch_s))
        hits.append(hit)
        where = "in" if hit.is_within else "behind"
        print(
            f"kill {number + 1}             {where} batch {hit.batch}, {hit.after_s:.2f} s after a batch was begun; "
            f"{hit.taken:,} events had been taken"
        )
    subprocess.run(command(servers, into), check=True, capture_output=True)
    return hits


def sound(into: Path, events: int) -> list[str]:
    """What is wrong with the record."""
    checked = check(find_events([into]))
    told = f"{checked.rows:,} events in {checked.files} files"
    if checked.is_sound and checked.rows == events:
        print(f"                   {told}, each once")
        return []
    return [
        f"{into.name}: {told} of {events:,}; {checked.missing:,} missing, {checked.repeated:,} repeated, {len(checked.bad)} bad"
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=24_000_000)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    events = args.events // (PARTITIONS * ROWS) * PARTITIONS * ROWS
    if events < (args.kills + 1) * BATCH_ROWS:
        parser.error(
            f"--events {args.events}: {args.kills} kills need {args.kills + 1} batches of {BATCH_ROWS:,}"
        )
    blocks = make_blocks(fill(make_charges(make_memos()))[1], events)
    size = float(np.mean([len(block) for block in blocks])) / BLOCK_ROWS
    with tempfile.TemporaryDirectory() as folder, LocalKafka() as kafka:
        print(f"{events:,} events in {len(blocks)} blocks, {size:.1f} bytes an event")
        own_ns = task_ns(blocks[:BLOCKS_MAX], Path(folder, "task"))
        print(
            f"a worker's work    {1e9 / own_ns:>12,.0f} events/s of one core's CPU time ({own_ns:.0f} ns)"
        )
        kafka.create_topic(TOPIC, partitions=PARTITIONS)
        servers = kafka.bootstrap_servers
        asyncio.run(send(servers, blocks))
        once = Path(folder, "once")
        rates = measured(servers, once)
        print(f"ingest, warm       {rates.warm_per_s:>12,.0f} events/s ({rates.batches} batches)")
        print(f"ingest, from cold  {rates.cold_per_s:>12,.0f} events/s")
        missed = sound(once, events)
        scan_per_s = events / scan_s(once)
        print(
            f"scan by Spark      {scan_per_s:>12,.0f} events/s   ingest is {rates.warm_per_s / scan_per_s:.2f} x"
        )
        again = Path(folder, "killed")
        again.mkdir()
        hits = kill_and_finish(
            servers,
            again,
            kills=args.kills,
            seed=args.seed,
            events=events,
            batch_s=rates.batch_s,
        )
        missed += sound(again, events)
    if rates.warm_per_s < BAR_PER_S:
        missed.append(f"{rates.warm_per_s:,.0f} events/s once warm, below {BAR_PER_S:,}")
    kept = {
        "events": events,
        "bytes_per_event": size,
        "worker_ns_per_event": own_ns,
        **asdict(rates),
        "scan_per_s": scan_per_s,
        "kills": [asdict(hit) for hit in hits],
    }
    return judged(RESULT, kept, missed)


if __name__ == "__main__":
    sys.exit(main())
