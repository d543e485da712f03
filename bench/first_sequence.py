"""What clients make of a first batch that a broker answers with an error while it takes the second one. No gateway.

    ./run bench first_sequence [--libraries librdkafka java kafka-python aiokafka] [--producers 5]

A broker that has just begun may answer the first batch of a producer with an error upon which clients send it again, and take
the second one that was sent behind it: it takes any first sequence number of a producer that it does not know. Here a relay before a
plain broker sees to that: it does not pass the first batch of each producer (sequence 0) on, and answers it with error 6
(NOT_LEADER_OR_FOLLOWER), right before the answer to the next one. Each producer is idempotent and new, has five requests in flight
where its library can, and sends ten records in a batch each to one partition. Told is what the broker answers to the second batch and to
the first one when it comes again, and how many records are reported as delivered that are not in the log: Kafka's own measure for
what stands behind a gateway.
"""

import argparse
import asyncio
import struct
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from kio.schema.errors import ErrorCode  # noqa: E402
from tests.endurance.client_process import ClientProcess, java_client, python_client  # noqa: E402
from tests.endurance.topic_log import all_of, read_log  # noqa: E402

from kvota.localkafka import LocalKafka  # noqa: E402
from kvota.testing.producer_frames import errors_of  # noqa: E402
from kvota.wire.apis import PRODUCE  # noqa: E402
from kvota.wire.headers import is_flexible, request_body_offset  # noqa: E402
from kvota.wire.produce_parts import RefusedPartition, refusal_in_steps  # noqa: E402
from kvota.wire.producer_ids import BatchProducer, producers  # noqa: E402
from kvota.wire.steps import at_once  # noqa: E402
from relay import commit  # noqa: E402
from verdict import judged  # noqa: E402

RESULT = HERE / "results" / "first_sequence.json"
# Of the same length: a broker's address is replaced in what it says of itself.
BROKER, RELAY = "127.0.0.2", "127.0.0.3"
LIBRARIES = ("librdkafka", "java", "kafka-python", "aiokafka")
RECORDS = 10
# Who sends nothing behind its first batch is answered after so long; else nobody would ever go on.
ALONE_S = 1.0
SWALLOWED_WITHIN_S = 60.0
# Longer than the clients' own patience with a record.
END_S = 330.0


@dataclass
class Request:
    """One that has not been answered.

    Attributes:
        key, version: of its API.
        batch: of a Produce with one batch, else None.
        refusal: what it is answered instead of being passed on; empty: it has gone up.
    """

    key: int
    version: int
    batch: BatchProducer | None = None
    refusal: bytes = b""


@dataclass
class Seen:
    """What passed of all producers.

    Attributes:
        refused: how many first batches were not passed on.
        overtaken: how many of them were answered behind a later one had been taken.
        codes: what the broker has answered, by what it was asked.
        first_ones: ids whose first batch has come.
    """

    refused: int = 0
    overtaken: int = 0
    codes: dict[str, Counter[str]] = field(default_factory=dict)
    first_ones: set[int] = field(default_factory=set)

    def answered(self, batch: BatchProducer, code: int) -> None:
        """The broker has."""
        what = "first batch, again" if batch.base_sequence == 0 else "a later batch"
        self.codes.setdefault(what, Counter())[f"{ErrorCode(code).name} ({code})"] += 1


class Relay:
    """Between clients and a broker, on the broker's own port at another address."""

    def __init__(self, port: int) -> None:
        self.seen = Seen()
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        listening = asyncio.start_server(self._serve, RELAY, self._port)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(20)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        broker, to_broker = await asyncio.open_connection(BROKER, self._port)
        due: deque[Request] = deque()
        ways = (
            asyncio.create_task(self._requests(client, to_broker, to_client, due)),
            asyncio.create_task(self._answers(broker, to_client, due)),
        )
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for writer in (to_client, to_broker):
                writer.close()
            self._tasks.discard(task)

    async def _requests(
        self,
        client: asyncio.StreamReader,
        to_broker: asyncio.StreamWriter,
        to_client: asyncio.StreamWriter,
        due: deque[Request],
    ) -> None:
        with suppress(OSError, EOFError):
            while True:
                frame = await _frame(client)
                request = self._read(frame)
                due.append(request)
                if request.refusal:
                    self._loop.call_later(ALONE_S, _refuse_first, due, request, to_client)
                else:
                    to_broker.write(frame)

    def _read(self, frame: bytes) -> Request:
        key, version, correlation, client_id_bytes = struct.unpack_from(">hhih", frame, 4)
        if key != PRODUCE:
            return Request(key, version)
        header_version = 2 if is_flexible(PRODUCE, version) else 1
        body = request_body_offset(frame, 0, len(frame), client_id_bytes, header_version)
        assert body is not None
        (batch,) = producers(frame, body, version)  # clients were told to make no more
        request = Request(key, version, batch)
        if batch.base_sequence == 0 and batch.producer_id not in self.seen.first_ones:
            self.seen.first_ones.add(batch.producer_id)
            self.seen.refused += 1
            refused = RefusedPartition(
                batch.place, ErrorCode.not_leader_or_follower, "by the relay"
            )
            request.refusal = at_once(refusal_in_steps(correlation, version, [refused], 0))
        return request

    async def _answers(
        self, broker: asyncio.StreamReader, to_client: asyncio.StreamWriter, due: deque[Request]
    ) -> None:
        with suppress(OSError, EOFError):
            while True:
                frame = await _frame(broker)
                while due[0].refusal:
                    self.seen.overtaken += 1
                    to_client.write(due.popleft().refusal)
                request = due.popleft()
                if request.batch is not None:
                    (code,) = errors_of(frame, request.version).values()
                    self.seen.answered(request.batch, code)
                to_client.write(frame.replace(BROKER.encode(), RELAY.encode()))


def _refuse_first(due: deque[Request], request: Request, to_client: asyncio.StreamWriter) -> None:
    """Nothing came behind it."""
    if due and due[0] is request:
        to_client.write(due.popleft().refusal)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size, "big"))


def run(kafka: LocalKafka, folder: Path, library: str, count: int) -> dict[str, object]:
    """So many producers of a library at once; what became of their records."""
    kafka.create_topic(library, partitions=1)
    port = int(kafka.sasl_bootstrap_servers.rpartition(":")[2])
    command = java_client("Storming") if library == "java" else python_client("storming", library)
    arguments = (f"{RELAY}:{port}", "tenant", "secret", library, 1, count, RECORDS)
    with (
        Relay(port) as relay,
        ClientProcess(folder, library, [*command, *map(str, arguments)], end_s=END_S) as client,
    ):
        until_s = time.monotonic() + SWALLOWED_WITHIN_S
        while relay.seen.refused < count and time.monotonic() < until_s:
            time.sleep(0.02)
        client.ask_to_end()
        said = client.result()
    sent: set[str] = set()
    for line in said:
        if line.startswith("sent "):
            _, producer, number, _ = line.split()
            sent |= {f"{producer}-{record}" for record in range(int(number))}
    failed = {line.split()[1] for line in said if line.startswith("failed ")}
    times = Counter(all_of(read_log(kafka.bootstrap_servers, library, 1)))
    delivered = sent - failed
    return {
        "first batches refused": relay.seen.refused,
        "overtaken by a later one": relay.seen.overtaken,
        "the broker's answers": relay.seen.codes,
        "delivered": len(delivered),
        "failed": len(failed),
        "delivered and not in the log": len(delivered - times.keys()),
        "twice": sum(number > 1 for number in times.values()),
    }


def main() -> int:
    options = argparse.ArgumentParser(description="first batches that are refused once")
    options.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=LIBRARIES)
    options.add_argument("--producers", type=int, default=5)
    args = options.parse_args()
    found = {}
    with (
        tempfile.TemporaryDirectory(prefix="kvota-bench-") as folder,
        LocalKafka(nodes=1, host=BROKER, users={"tenant": "secret"}) as kafka,
    ):
        for library in args.libraries:
            found[library] = run(kafka, Path(folder), library, args.producers)
            print(library)
            for what, number in found[library].items():
                print(f"  {what}: {number}")
    kept = {
        "command": f"./run bench first_sequence --libraries {' '.join(args.libraries)} --producers {args.producers}",
        "commit": commit(),
        **found,
    }
    return judged(RESULT, kept, [])


if __name__ == "__main__":
    sys.exit(main())
