"""A relay that notes which requests and answers pass: when, which API, which client, how many bytes.

    python bench/tap.py LISTEN_HOST LISTEN_PORT UPSTREAM_HOST UPSTREAM_PORT EVENTS_FILE

One line for every Produce that has been answered (size of the request) and every Fetch answer (its
size): ``seconds client_id PRODUCE|FETCH bytes``. Sizes are without the four bytes of the size itself.
"""

import asyncio
import struct
import sys
import time
from collections import deque
from pathlib import Path
from typing import TextIO

NAMES = {0: "PRODUCE", 1: "FETCH"}


class Frames:
    """Cuts a stream of bytes into frames; only the first bytes of each are kept."""

    KEPT = 512

    def __init__(self) -> None:
        self.head = b""
        self.left = 0
        self.size = 0

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Frames that end within ``data``: (size, first bytes behind the size)."""
        done = []
        pos = 0
        while pos < len(data):
            if self.left == 0:
                need = 4 - len(self.head)
                self.head += data[pos : pos + need]
                pos += need
                if len(self.head) < 4:
                    break
                self.size = self.left = struct.unpack(">i", self.head[:4])[0]
            here = data[pos : pos + self.left]
            if len(self.head) < self.KEPT:
                self.head += here[: self.KEPT - len(self.head)]
            pos += len(here)
            self.left -= len(here)
            if self.left == 0:
                done.append((self.size, self.head[4:]))
                self.head = b""
        return done


class Tap:
    def __init__(self, events: TextIO) -> None:
        self.events = events

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection(sys.argv[3], int(sys.argv[4]))
        except OSError:
            writer.close()
            return
        due: deque[tuple[int, str, int]] = deque()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.requests(reader, up_writer, due))
            tasks.create_task(self.answers(up_reader, writer, due))

    async def requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, due: deque
    ) -> None:
        frames = Frames()
        while data := await self.read(reader):
            for size, head in frames.feed(data):
                key, _, _, length = struct.unpack_from(">hhih", head)
                client = head[10 : 10 + max(0, length)].decode(errors="replace")
                due.append((key, client, size))
            writer.write(data)
            await writer.drain()
        writer.close()

    async def answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, due: deque
    ) -> None:
        frames = Frames()
        while data := await self.read(reader):
            for size, _ in frames.feed(data):
                if due:
                    key, client, request_size = due.popleft()
                    if key in NAMES:
                        amount = request_size if key == 0 else size
                        self.events.write(f"{time.time():.6f} {client} {NAMES[key]} {amount}\n")
            writer.write(data)
            try:
                await writer.drain()
            except ConnectionError:
                break
        writer.close()

    async def read(self, reader: asyncio.StreamReader) -> bytes:
        try:
            return await reader.read(262_144)
        except ConnectionError:
            return b""


async def main(events: TextIO) -> None:
    tap = Tap(events)
    server = await asyncio.start_server(tap.serve, sys.argv[1], int(sys.argv[2]))
    print("ready", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    with Path(sys.argv[5]).open("w", buffering=1) as file:
        asyncio.run(main(file))
