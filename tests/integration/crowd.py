"""Many busy connections of a few client ids, which notice whatever a client could.

    python -m tests.integration.crowd HOST PORT TOPIC

is a crowd in a process of its own: it prints "began" when everybody has been answered and, where there are limits, is over
them, and what it has noticed when its
standard input ends.
"""

import asyncio
import json
import os
import sys
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tests.integration.bandwidth_frames import (
    fetch_frame,
    fetch_result,
    produce_frame,
    produce_result,
)

CONNECTIONS, TEAMS = 200, 20
# Some 1,100 bytes a request: a team asks for up to 110 KB/s, all of them for 2 MB/s.
VALUE_BYTES = 1_000
PACE_S = 0.1
_END_S = 60.0
# So long it takes until a counter of Kafka's windows is over a limit of which the crowd wants more than twice.
_OVER_S = 6.0


@dataclass
class Crowd:
    """Connections that produce, or fetch, one request after the other, while it is entered.

    Beside them somebody connects anew for each request, so there is always one who is not told to wait.

    Attributes:
        address: where they connect to.
        topic: what they produce to.
        connections: how many.
        fetching: every second connection of a client id fetches.
        answers: how many each connection has had, the last one of who connects anew.
        throttled: how many answers had a throttle time.
        throttled_fetches: how many of these were of a Fetch.
        failed: what went wrong; empty: nothing.
    """

    address: tuple[str, int]
    topic: str
    connections: int = CONNECTIONS
    fetching: bool = False
    answers: list[int] = field(default_factory=list)
    throttled: int = 0
    throttled_fetches: int = 0
    failed: list[str] = field(default_factory=list)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._frames = [
            produce_frame(self.topic, client_id=f"team-{number}", value_bytes=VALUE_BYTES)
            for number in range(TEAMS)
        ]
        self._fetches = [
            fetch_frame(self.topic, client_id=f"team-{number}", max_bytes=VALUE_BYTES)
            for number in range(TEAMS)
        ]

    async def __aenter__(self) -> Self:
        self.answers = [0] * (self.connections + 1)
        self._tasks = [asyncio.create_task(self._stay(one)) for one in range(self.connections)]
        self._tasks.append(asyncio.create_task(self._come_again()))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        if error is not None:
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=error is not None)

    async def everybody_answered(self) -> None:
        """Wait until each connection has had another answer but one: that was perhaps on its way."""
        before = list(self.answers)
        end = time.monotonic() + _END_S
        while min(now - then for now, then in zip(self.answers, before, strict=True)) < 2:
            assert not self.failed, self.failed[:3]
            assert time.monotonic() < end, "somebody waits for good"
            await asyncio.sleep(0.02)

    async def both_kinds_throttled(self) -> None:
        """Wait until somebody who produces and somebody who fetches has been told to wait."""
        end = time.monotonic() + _END_S
        while not 0 < self.throttled_fetches < self.throttled:
            assert not self.failed, self.failed[:3]
            assert time.monotonic() < end, "nobody is over the limit"
            await asyncio.sleep(0.02)

    async def _stay(self, number: int) -> None:
        try:
            reader, writer = await asyncio.open_connection(*self.address)
            try:
                while not self._stopping.is_set():
                    await self._ask(number, reader, writer)
                    await asyncio.sleep(PACE_S)
            finally:
                writer.transport.abort()
        except (OSError, asyncio.IncompleteReadError) as lost:
            self.failed.append(repr(lost))

    async def _come_again(self) -> None:
        try:
            while not self._stopping.is_set():
                reader, writer = await asyncio.open_connection(*self.address)
                try:
                    await self._ask(self.connections, reader, writer)
                finally:
                    writer.transport.abort()
                await asyncio.sleep(PACE_S / 4)
        except (OSError, asyncio.IncompleteReadError) as lost:
            self.failed.append(repr(lost))

    async def _ask(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One request, and its answer."""
        is_fetch = self.fetching and number // TEAMS % 2 == 1
        writer.write((self._fetches if is_fetch else self._frames)[number % TEAMS])
        size = int.from_bytes(await reader.readexactly(4), "big")
        answer = await reader.readexactly(size)
        error, throttle_ms = (
            fetch_result(answer) if is_fetch else produce_result(answer, self.topic)
        )
        self.answers[number] += 1
        self.throttled += throttle_ms > 0
        self.throttled_fetches += is_fetch and throttle_ms > 0
        if error:
            self.failed.append(f"error {error}")


async def _main() -> None:
    host, port, topic = sys.argv[1:]
    async with Crowd((host, int(port)), topic) as crowd:
        await crowd.everybody_answered()
        await asyncio.sleep(_OVER_S)
        print("began", flush=True)  # noqa: T201
        await asyncio.to_thread(sys.stdin.read)
        print(json.dumps({"throttled": crowd.throttled, "failed": crowd.failed}), flush=True)  # noqa: T201
        os._exit(0)  # who has been told to wait is not waited for


if __name__ == "__main__":
    asyncio.run(_main())
