"""Raw clients for the table of ``hold``: each connection sends one Produce after the other.

    python bench/hold_clients.py SPECIFICATION_JSON    one JSON object on standard output

A connection that is closed comes again and sends the request again that was not answered. An answer
counts when it is whole and says that the broker has written the record. ``seconds`` is for how long
requests are sent; one that is on its way then is not waited for.
"""

import asyncio
import json
import struct
import sys
import time
from dataclasses import dataclass, field

from frames import produce_frame

RECONNECT_S = 0.05


@dataclass
class Crowd:
    """Connections of one client id.

    Attributes:
        answers: (when, connection, bytes, latency in ms, throttle time in ms) of each answer.
        closed: how often a connection was closed before its answer came.
    """

    port: int
    client_id: str
    topic: str
    connections: int
    value_bytes: int
    pace_s: float = 0.0
    honours: bool = False
    answers: list[tuple[float, int, int, float, int]] = field(default_factory=list)
    closed: int = 0

    async def run(self) -> None:
        frame = produce_frame(self.topic, self.value_bytes, client_id=self.client_id)
        async with asyncio.TaskGroup() as tasks:
            for number in range(self.connections):
                tasks.create_task(self._connection(number, frame))

    async def _connection(self, number: int, frame: bytes) -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                try:
                    while True:
                        await self.request(number, frame, reader, writer)
                finally:
                    writer.transport.abort()
            except (ConnectionError, asyncio.IncompleteReadError):
                self.closed += 1
                await asyncio.sleep(RECONNECT_S)

    async def request(
        self,
        number: int,
        frame: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        sent = time.perf_counter()
        writer.write(frame)
        size = int.from_bytes(await reader.readexactly(4), "big")
        answer = await reader.readexactly(size)
        latency_s = time.perf_counter() - sent
        throttle_ms = self._throttle_ms(answer)
        self.answers.append((time.time(), number, len(frame) - 4, latency_s * 1000, throttle_ms))
        if self.honours and throttle_ms:
            await asyncio.sleep(throttle_ms / 1000)
        if self.pace_s:
            await asyncio.sleep(max(0.0, self.pace_s - latency_s))

    def _throttle_ms(self, answer: bytes) -> int:
        """Of a Produce v8 answer to one partition, which must be without an error."""
        # correlation, number of topics, name, number of partitions, index
        at = 4 + 4 + 2 + len(self.topic) + 4 + 4
        (error,) = struct.unpack_from(">h", answer, at)
        if error:
            raise RuntimeError(f"{self.client_id}: the broker answers error {error}")
        return int.from_bytes(answer[-4:], "big")


async def main() -> None:
    specification = json.loads(sys.argv[1])
    crowds = [Crowd(**crowd) for crowd in specification["crowds"]]
    try:
        async with asyncio.timeout(specification["seconds"]), asyncio.TaskGroup() as tasks:
            for crowd in crowds:
                tasks.create_task(crowd.run())
    except TimeoutError:
        pass
    found = {c.client_id: {"answers": c.answers, "closed": c.closed} for c in crowds}
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main())
