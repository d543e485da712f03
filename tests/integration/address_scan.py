"""Keeps everything that is sent to clients, and looks for brokers' addresses in it."""

import asyncio
import contextlib
import re
import socket
from collections.abc import Sequence

from tests.tap_thread import Address, Stream, TapThread, TapTls

from kvota.localkafka import LocalKafka

# Clients are told this address; the gateway itself listens on another one, the brokers on a third.
TAP_HOST = "127.0.0.3"
GATEWAY_HOST = "127.0.0.1"


class ClientTap(TapThread):
    """Stands between clients and the gateway on the gateway's own ports; inside TLS where it is told how.

    Args:
        first_port: of the gateway's ports.
        count: of them.
        tls: on both sides.
        more: further addresses at which it listens.
    """

    def __init__(
        self, first_port: int, count: int, tls: TapTls | None = None, more: Sequence[Address] = ()
    ) -> None:
        own = [(TAP_HOST, port) for port in range(first_port, first_port + count)]
        ways = {(host, port): (GATEWAY_HOST, port) for host, port in (*own, *more)}
        super().__init__(ways, tls)
        self._received: list[bytearray] = []
        self._sent: list[bytearray] = []

    @property
    def sent_to_clients(self) -> list[bytes]:
        """The bytes of each connection."""
        return [bytes(stream) for stream in self._received]

    @property
    def sent_by_clients(self) -> list[bytes]:
        """The bytes of each connection."""
        return [bytes(stream) for stream in self._sent]

    async def relay(self, client: Stream, upstream: Stream) -> None:
        """Keep all bytes, in both directions."""
        received, sent = bytearray(), bytearray()
        self._received.append(received)
        self._sent.append(sent)
        await asyncio.gather(
            _pump(client[0], upstream[1], sent), _pump(upstream[0], client[1], received)
        )


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
