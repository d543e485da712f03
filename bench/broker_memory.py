"""What a storm of new producer ids leaves in a broker's memory, with the quota on them and without.

    ./run bench broker_memory [--seconds 60]

Eight clients crash-loop: each connects, writes one record to each of four partitions under a producer id that nobody had,
and is gone. Once through a gateway with the quota in shadow mode, once enforced (100 new ids an hour), each time before
a new broker. What the broker holds is asked of itself (DescribeProducers), its heap of its JVM behind a full garbage
collection (``jmap -histo:live``; it needs a JDK). It exits 1 where the quota let more ids in than it says.
"""

import argparse
import asyncio
import math
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

from kafka.record import MemoryRecordsBuilder

from kvota.admin import AdminClient, TopicPartition
from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.engine import Layering
from kvota.localkafka import LocalKafka
from relay import commit
from verdict import judged

RESULT = Path(__file__).parent / "results" / "broker_memory.json"
TOPIC, PARTITIONS, CLIENTS = "storm", 4, 8
RATE, WINDOW_S = 100, 3_600
ENTRY = "ProducerStateEntry"
_IDS = count(1_000)


def produce(producer_id: int) -> bytes:
    """Produce v8: the first record of a producer in each partition."""
    builder = MemoryRecordsBuilder(2, 0, 1_000)
    builder.set_producer_state(producer_id, 0, 0, is_transactional=False)
    builder.append(timestamp=int(time.time() * 1000), key=None, value=b"crash")
    builder.close()
    records = bytes(builder.buffer())
    body = struct.pack(">hhii", -1, -1, 5_000, 1) + _text(TOPIC) + struct.pack(">i", PARTITIONS)
    for partition in range(PARTITIONS):
        body += struct.pack(">ii", partition, len(records)) + records
    head = struct.pack(">hhi", 0, 8, 1) + _text("crashloop")
    return struct.pack(">i", len(head) + len(body)) + head + body


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


async def storm(address: tuple[str, int], seconds: float) -> tuple[int, int]:
    """How many producers there were, and how many of them had an answer."""
    made = answered = 0
    end = time.monotonic() + seconds

    async def crash_loop() -> None:
        nonlocal made, answered
        while time.monotonic() < end:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(produce(next(_IDS)))
            made += 1
            try:
                await reader.readexactly(4)
                answered += 1
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.transport.abort()

    await asyncio.gather(*(crash_loop() for _ in range(CLIENTS)))
    return made, answered


async def held(kafka: LocalKafka) -> tuple[int, int]:
    """How many ids the broker holds, and how many entries these are, one in each partition."""
    async with AdminClient(kafka.bootstrap_servers) as admin:
        wanted = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        states = (await admin.describe_producers(wanted)).all().values()
    return len({state.producer_id for one in states for state in one}), sum(map(len, states))


def heap(pid: int) -> tuple[int, int]:
    """Bytes that live on the heap of a JVM behind a full collection, and how many entries of producers."""
    jmap = shutil.which("jmap")
    assert jmap is not None
    command = [jmap, "-histo:live", str(pid)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line.split() for line in ran.stdout.splitlines()]
    (total,) = (int(words[2]) for words in lines if words[:1] == ["Total"])
    entries = [int(words[1]) for words in lines if len(words) > 3 and words[3].endswith(ENTRY)]
    return total, sum(entries)


def uncounted_max(tried: int) -> float:
    """Of those that are tried a few look like known ones: their mean, and four of its deviations."""
    mean = tried * Layering().false_positive_rate
    return mean + 4 * math.sqrt(mean)


def run(folder: Path, seconds: float, *, enforced: bool) -> dict[str, float]:
    """What a storm has left behind."""
    config = {"producer.id.quota.window.size.seconds": WINDOW_S}
    with LocalKafka(heap_mb=1_024) as kafka:
        kafka.create_topic(TOPIC, partitions=PARTITIONS)
        toml = gateway_toml(
            upstream=kafka.bootstrap_servers,
            node_ids="0-1",
            enforce={"PRODUCER_ID": enforced},
            record="record",
            kafka=config,
        )
        quotas = f"[[quota]]\nuser_default = true\nproducer_ids_rate = {RATE}\n"
        with GatewayProcess(folder, config=toml, quotas=quotas) as gateway:
            host, port = gateway.bootstrap_servers.split(":")
            before_bytes, _ = heap(kafka.nodes[0].pid)
            began_s = time.monotonic()
            made, answered = asyncio.run(storm((host, int(port)), seconds))
            elapsed_s = time.monotonic() - began_s
            after_bytes, on_heap = heap(kafka.nodes[0].pid)
            ids, entries = asyncio.run(held(kafka))
    return {
        "producers": made,
        "of them answered": answered,
        "ids at the broker": ids,
        "entries of ids and partitions": entries,
        "of them on the heap": on_heap,
        "heap before, bytes": before_bytes,
        "heap after, bytes": after_bytes,
        # Of those that are tried a few look like known ones.
        "allowed ids": RATE * (1 + elapsed_s / WINDOW_S)
        + 2 * made * Layering().false_positive_rate,
    }


def main() -> int:
    options = argparse.ArgumentParser(description="a storm of producer ids in a broker's memory")
    options.add_argument("--seconds", type=float, default=60.0)
    args = options.parse_args()
    if shutil.which("jmap") is None:
        print("there is no jmap here: install a JDK and put its bin on the PATH", file=sys.stderr)
        return 2
    found = {}
    with tempfile.TemporaryDirectory(prefix="kvota-bench-") as folder:
        for name, enforced in (("without", False), ("with", True)):
            found[name] = run(Path(folder) / name, args.seconds, enforced=enforced)
    print(f"{'':<32}{'without':>14}{'with':>14}")
    for name in found["with"]:
        print(f"{name:<32}" + "".join(f"{found[way][name]:>14,.0f}" for way in found))
    missed = []
    if found["with"]["ids at the broker"] > found["with"]["allowed ids"]:
        missed.append("the quota let more ids in than it says")
    if found["without"]["ids at the broker"] <= RATE:
        missed.append("it was no storm: the quota would have let all of it in")
    kept = {
        "command": f"./run bench broker_memory --seconds {args.seconds:g}",
        "commit": commit(),
        **found,
    }
    return judged(RESULT, kept, missed)


if __name__ == "__main__":
    sys.exit(main())
