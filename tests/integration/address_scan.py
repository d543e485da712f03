"""Keeps everything that is sent to clients, and looks for brokers' addresses in it."""

import asyncio
import contextlib
import re
import socket
import threading
from types import TracebackType
from typing import Self

from kvota.localkafka import LocalKafka

# Clients are told this address; the gateway itself listens on another one, the brokers on a third.
TAP_HOST = "127.0.0.3"
GATEWAY_HOST = "127.0.0.1"


class ClientTap:
    """Stands between clients and the gateway on the gateway's own ports."""

    def __init__(self, first_port: int, count: int) -> None:
        self._ports = range(first_port, first_port + count)
        self._received: list[bytearray] = []
        self._sent: list[bytearray] = []
        self._loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def sent_to_clients(self) -> list[bytes]:
        """The bytes of each connection."""
        return [bytes(stream) for stream in self._received]

    @property
    def sent_by_clients(self) -> list[bytes]:
        """The bytes of each connection."""
        return [bytes(stream) for stream in self._sent]

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(20)
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

    async def _listen(self) -> None:
        for port in self._ports:
            server = await asyncio.start_server(
                lambda reader, writer, port=port: self._serve(reader, writer, port),  # type: ignore[misc]
                TAP_HOST,
                port,
            )
            self._servers.append(server)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0.05)  # closed writers have their connections' ends told

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        received, sent = bytearray(), bytearray()
        self._received.append(received)
        self._sent.append(sent)
        writers = [writer]
        with contextlib.suppress(OSError, asyncio.CancelledError):
            gateway_reader, gateway_writer = await asyncio.open_connection(GATEWAY_HOST, port)
            writers.append(gateway_writer)
            await asyncio.gather(
                _pump(reader, gateway_writer, sent), _pump(gateway_reader, writer, received)
            )
        for each in writers:
            each.close()
        self._tasks.discard(task)


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray
) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 18):
            kept += data
            writer.write(data)
            await writer.drain()
    writer.close()


def addresses_in(stream: bytes, kafka: LocalKafka) -> list[str]:
    """Each place where a broker's host, or a broker's port behind any host, stands in the bytes.

    Four bytes alone occur by chance among offsets and lengths; Kafka's messages write an address as
    text and int32, so a port counts behind a host's last character, raw bytes in front of a port.
    """
    pattern = re.compile(b"|".join(_traces(kafka)))
    return [f"{stream[max(0, m.start() - 20) : m.end() + 20]!r}" for m in pattern.finditer(stream)]


def _traces(kafka: LocalKafka) -> list[bytes]:
    raw = re.escape(socket.inet_aton(kafka.host))
    traces = [re.escape(kafka.host.encode()), b"localhost"]
    for node in kafka.nodes:
        for port in {*node.ports.listeners.values(), node.ports.controller}:
            number = re.escape(port.to_bytes(4, "big"))
            short = re.escape(port.to_bytes(2, "big"))
            traces += [
                b":%d(?![0-9])" % port,
                rb"(?<=[0-9A-Za-z.-])" + number,
                raw + number,
                raw + short,
            ]
    return traces


def told_endpoints(stream: bytes) -> int:
    """How many answers end in node endpoints (KIP-951) that name the tap's address."""
    entry = rb"\x0a" + re.escape(TAP_HOST.encode()) + rb"\x00\x00..\x00\x00"
    last_entry = re.compile(entry + rb"\Z", re.DOTALL)
    count = at = 0
    while at + 4 <= len(stream):
        end = at + 4 + int.from_bytes(stream[at : at + 4], "big")
        count += last_entry.search(stream[max(at, end - 64) : end]) is not None
        at = end
    return count
