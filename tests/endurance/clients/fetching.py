"""Consumers that have read all there is: each waits at the broker for the next record of a topic, in a fetch session.

    python fetching.py HOST PORT TOPIC CLIENT_ID CONSUMERS MAX_WAIT_MS[,MAX_WAIT_MS...]

Partition 0, from its end; the first consumers have the further waits, one each, the others the first. Lines on standard output:
"waiting COUNT" whenever all consumers wait, COUNT is how many connections they have made so far; "got CONSUMER OFFSET UNIX_NS"
for each record, when its answer was here; "strange CONSUMER ERROR" for an answer with an error, but for that of a broker
that leads nothing for a moment, as it was not heard for seconds. It ends with its standard input.
"""

import asyncio
import sys
import time
from pathlib import Path
from typing import cast

import uvloop

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.endurance.clients.fetch_frames import (
    FetchAnswer,
    end_offset_of,
    fetch,
    list_offsets,
)

NOT_LEADER = 6
RECONNECT_S = 0.05
# Not at each record: writing would keep those waiting that get it next.
SHOWN_S = 0.1


class Fetching:
    """All consumers of the process."""

    def __init__(self, arguments: list[str]) -> None:
        self.host, port, self.topic, self.client_id, count, waits = arguments
        self.port = int(port)
        first, *others = map(int, waits.split(","))
        self.waits_ms = [*others, *[first] * (int(count) - len(others))]
        self.connections = 0
        self.waiting: set[int] = set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            for number in range(len(self.waits_ms)):
                tasks.create_task(self._consumer(number))
            tasks.create_task(show())
            await loop.run_in_executor(None, sys.stdin.read)
            sys.stdout.flush()
            raise SystemExit

    async def _consumer(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        offset: int | None = None
        while True:
            try:
                _, consumer = await loop.create_connection(
                    lambda offset=offset: Consumer(self, number, offset),  # type: ignore[misc]
                    self.host,
                    self.port,
                )
            except OSError:
                await asyncio.sleep(RECONNECT_S)
                continue
            offset = await consumer.lost
            self.waiting.discard(number)
            await asyncio.sleep(RECONNECT_S)

    def waits(self, number: int) -> None:
        """One more has its Fetch at the broker."""
        if number in self.waiting:
            return
        self.waiting.add(number)
        if len(self.waiting) == len(self.waits_ms):
            say(f"waiting {self.connections}")


class Consumer(asyncio.Protocol):
    """One connection, from an offset, or from the end."""

    def __init__(self, all_of_them: Fetching, number: int, offset: int | None) -> None:
        self._all, self._number, self._offset = all_of_them, number, offset
        self._session_id = self._epoch = 0
        self._received = bytearray()
        self.lost: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._all.connections += 1
        if self._offset is None:
            transport.write(list_offsets(self._all.topic, client_id=self._all.client_id))
        else:
            self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(self._offset)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= 4:
            end = 4 + int.from_bytes(received[:4], "big")
            if len(received) < end:
                return
            frame = bytes(received[:end])
            del received[:end]
            self._answered(frame)

    def _answered(self, frame: bytes) -> None:
        if self._offset is None:
            self._offset = end_offset_of(frame, self._all.topic)
        else:
            self._take(frame, time.time_ns())
        self._ask()

    def _take(self, frame: bytes, now_ns: int) -> None:
        assert self._offset is not None
        answer = FetchAnswer(frame, self._all.topic)
        if answer.error:
            if answer.error != NOT_LEADER:
                say(f"strange {self._number} {answer.error}")
            self._session_id = self._epoch = 0
            return
        self._session_id = answer.session_id
        self._epoch = self._epoch + 1 if self._session_id else 0
        behind = answer.next_offset(self._offset)
        for offset in range(self._offset, behind):
            say(f"got {self._number} {offset} {now_ns}")
        self._offset = behind

    def _ask(self) -> None:
        assert self._offset is not None
        self._transport.write(
            fetch(
                self._all.topic,
                self._offset,
                client_id=self._all.client_id,
                max_wait_ms=self._all.waits_ms[self._number],
                session=(self._session_id, self._epoch),
            )
        )
        self._all.waits(self._number)


async def show() -> None:
    """What was got is written out now and then."""
    while True:
        await asyncio.sleep(SHOWN_S)
        sys.stdout.flush()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    if not line.startswith("got"):
        sys.stdout.flush()


if __name__ == "__main__":
    uvloop.run(Fetching(sys.argv[1:]).run())
