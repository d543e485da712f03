"""What nobody reads takes little memory, however many connections it comes on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

import pytest
from tests.adversary.memory import Memory

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.testing.frames import HEARTBEAT, answer, request

CONNECTIONS = 500
SECONDS = 8.0
# 85 MiB behind long polls; 1.4 MiB on each connection where each may hold a megabyte beside a read.
GROWTH_MIB_MAX = 220
LARGE_REQUEST = request(HEARTBEAT, 4, group_id="g" * 30_000, member_id="")
SMALL_REQUEST = request(HEARTBEAT, 4, group_id="g", member_id="")
SMALL_ANSWER = answer(HEARTBEAT, 4)
LARGE_ANSWER = (1_000_000).to_bytes(4, "big") + SMALL_ANSWER[4:8] + bytes(1_000_000 - 4)


class Kept(asyncio.Protocol):
    """One connection of a broker; nothing else refers to one that is not read."""

    all: ClassVar[list[asyncio.Transport]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.all.append(transport)


class Deaf(Kept):
    """A broker that has a long poll in hand reads no further."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert isinstance(transport, asyncio.Transport)
        asyncio.get_running_loop().call_soon(transport.pause_reading)


class Lavish(Kept):
    """A broker that answers whatever it reads with a megabyte."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._read_bytes = 0

    def data_received(self, data: bytes) -> None:
        self._read_bytes += len(data)
        for _ in range(self._read_bytes // len(SMALL_REQUEST)):
            self._transport.write(LARGE_ANSWER)
        self._read_bytes %= len(SMALL_REQUEST)

    def pause_writing(self) -> None:
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()


@contextlib.asynccontextmanager
async def gateway(
    folder: Path, broker: type[asyncio.Protocol]
) -> AsyncIterator[tuple[int, Memory]]:
    """A gateway's port and memory, with such a broker behind it."""
    Kept.all.clear()  # those of another test, whose loop has ended
    server = await asyncio.get_running_loop().create_server(broker, "127.0.0.1", 0)
    first_port = free_port_range(10)
    config = gateway_toml(
        upstream=f"127.0.0.1:{server.sockets[0].getsockname()[1]}",
        first_port=first_port,
        node_ids="0-8",
        enforce={"PRODUCE": True},
        record="record",
        limits={"drain_time": "1s"},
    )
    try:
        with GatewayProcess(folder, config=config, quotas="") as process:
            yield first_port, Memory(process.pid)
    finally:
        # Nobody connects any more. Who is still being accepted goes through before the server is closed, which would
        # leave asyncio's half-made transport of each open.
        for _ in range(5):
            await asyncio.sleep(0.1)
            while Kept.all:
                Kept.all.pop().abort()
        server.close()


async def _ask(port: int, frame: bytes, count: int) -> None:
    """Send as much as is taken, and read nothing."""
    _reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.transport.pause_reading()
    try:
        for _ in range(count):
            writer.write(frame)
            await writer.drain()
        await asyncio.Event().wait()
    finally:
        writer.transport.abort()


@pytest.mark.parametrize(
    ("broker", "frame", "count"),
    [(Deaf, LARGE_REQUEST, 1_000), (Lavish, SMALL_REQUEST, 20)],
    ids=["requests behind a long poll", "answers"],
)
async def test_what_nobody_reads_takes_little_memory(
    tmp_path: Path, broker: type[asyncio.Protocol], frame: bytes, count: int
) -> None:
    async with gateway(tmp_path, broker) as (port, memory), asyncio.TaskGroup() as tasks:
        asking = [tasks.create_task(_ask(port, frame, count)) for _ in range(CONNECTIONS)]
        await asyncio.sleep(SECONDS)
        growth_mib, are_open = memory.growth_mib(), not any(task.done() for task in asking)
        for task in asking:
            task.cancel()

    assert are_open
    assert growth_mib < GROWTH_MIB_MAX
