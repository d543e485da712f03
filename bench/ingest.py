"""How fast a topic of Arrow blocks becomes a record, and that each event is in it once.

    ./run bench ingest [--events 8000000] [--kills 3]

A cluster of one broker on this machine, a topic of two partitions, blocks as a gateway's record writes them. What is
measured, in one run:

* what a worker does for an event, in CPU time, which other work on the machine hardly changes;
* the rate of ``kvota ingest`` once it is warm: all batches but the first (a batch has 4 million events at most);
* beside it, what Spark takes to read the same rows out of the files that came of it (a scan of all columns to nothing);
* with ``--kills N``, another run that is killed so often (``kill -9`` of the whole process group, at random moments),
  then left to finish: every event must be there once.
"""

import argparse
import asyncio
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from kvota.client import Cluster
from kvota.client.record_batches import encode_batch
from kvota.client.topic_log import TopicLog
from kvota.localkafka import LocalKafka
from kvota.pipeline import end_session, session
from kvota.pipeline.events import read_events
from kvota.pipeline.ingest.take_pieces import Task
from kvota.record.check import check
from kvota.record.event_block import block_bytes
from kvota.record.event_table import event_table
from kvota.record.found_events import find_events
from kvota.record.ingested import FOLDER
from kvota.record.ledger import Ledger
from kvota.record.row_batch import RowBatch
from kvota.record.topic_sender import BLOCK_ROWS
from record_cost import ROWS, fill, make_charges, make_memos

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
            await log.append(partition, encode_batch([(None, block)], now_ms=0))


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


def warm_rate(servers: str, into: Path) -> tuple[float, float, int]:
    """Events per second of all batches but the first; and of the whole run, from its cold start."""
    began = time.perf_counter()
    seen: list[tuple[float, int]] = []
    with subprocess.Popen(command(servers, into), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            found = re.match(r"kvota: batch \d+: ([\d,]+) decisions", line)
            if found:
                seen.append((time.perf_counter(), int(found[1].replace(",", ""))))
            elif "kvota:" in line:
                print(line, end="")
    whole_s = time.perf_counter() - began
    events = sum(rows for _, rows in seen)
    warm = sum(rows for _, rows in seen[1:])
    return warm / (seen[-1][0] - seen[0][0]), events / whole_s, len(seen)


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


def kill_and_finish(servers: str, into: Path, kills: int, seed: int) -> float:
    """Kill it in the midst of its work, then let it finish; returns how long that took."""
    rng = random.Random(seed)
    began = time.perf_counter()
    for _ in range(kills):
        process = subprocess.Popen(
            command(servers, into), stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("kvota: batch"):
                break
        time.sleep(rng.uniform(0.0, 1.5))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stderr.close()
    subprocess.run(command(servers, into), check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def sound(into: Path, events: int) -> str:
    checked = check(find_events([into]))
    assert checked.is_sound, checked
    assert checked.rows == events, checked
    return f"{checked.rows:,} events in {checked.files} files, each once"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=8_000_000)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    events = args.events // (PARTITIONS * ROWS) * PARTITIONS * ROWS
    blocks = make_blocks(fill(make_charges(make_memos()))[1], events)
    size = np.mean([len(block) for block in blocks]) / BLOCK_ROWS
    with tempfile.TemporaryDirectory() as folder, LocalKafka() as kafka:
        print(f"{events:,} events in {len(blocks)} blocks, {size:.1f} bytes an event")
        own_ns = task_ns(blocks, Path(folder, "task"))
        print(
            f"a worker's work    {1e9 / own_ns:>12,.0f} events/s of one core's CPU time ({own_ns:.0f} ns)"
        )
        kafka.create_topic(TOPIC, partitions=PARTITIONS)
        asyncio.run(send(kafka.bootstrap_servers, blocks))
        once = Path(folder, "once")
        warm, cold, batches = warm_rate(kafka.bootstrap_servers, once)
        print(f"ingest, warm       {warm:>12,.0f} events/s ({batches} batches)")
        print(f"ingest, from cold  {cold:>12,.0f} events/s")
        print(f"                   {sound(once, events)}")
        scan = events / scan_s(once)
        print(f"scan by Spark      {scan:>12,.0f} events/s   ingest is {warm / scan:.2f} x")
        if args.kills:
            killed = Path(folder, "killed")
            took = kill_and_finish(kafka.bootstrap_servers, killed, args.kills, args.seed)
            print(f"{args.kills} kills            {sound(killed, events)} ({took:.0f} s)")


if __name__ == "__main__":
    main()
