"""A connection that sends any bytes, cut anywhere, and heeds nothing that it is told."""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self

from tests.adversary.frames import sasl_authenticate, sasl_handshake

# Until what was sent has left in a segment of its own.
_SEGMENT_S = 0.01
_POURED_BYTES = 1 << 16
_LONGER_S, _LOOK_S = 60.0, 0.02

Lost = (ConnectionError, asyncio.IncompleteReadError, TimeoutError)


@dataclass(frozen=True)
class Disguise:
    """What stands around the name in a SCRAM login; a broker signs the extensions as it has read them."""

    before_name: str = ""
    extensions: str = ""
    signed_extensions: str = ""


UNDISGUISED = Disguise()


class WireClient:
    """One connection of an attacker.

    Attributes:
        received_bytes: of all whole answers, their size fields included.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.received_bytes = 0

    @classmethod
    async def to(
        cls,
        address: tuple[str, int],
        *,
        from_host: str | None = None,
        receive_bytes: int | None = None,
    ) -> Self:
        """Connects, from an address of this machine and with a small buffer if it matters.

        Raises:
            OSError: as the system does.
        """
        own = socket.socket()
        try:
            own.setblocking(False)
            if receive_bytes is not None:
                own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            if from_host is not None:
                own.bind((from_host, 0))
            await asyncio.get_running_loop().sock_connect(own, address)
        except BaseException:
            own.close()
            raise
        reader, writer = await asyncio.open_connection(sock=own)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(reader, writer)

    def send(self, data: bytes) -> None:
        """All of it at once, behind what was sent before; nothing is waited for."""
        self._writer.write(data)

    async def sent(self) -> None:
        """Waits until the other side has taken nearly all that was sent."""
        await self._writer.drain()

    async def send_cut(self, data: bytes, *cuts: int) -> None:
        """In segments of their own: up to each of ``cuts`` (offsets, ascending), then the rest."""
        for begin, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
            self._writer.write(data[begin:end])
            await self.sent()
            await asyncio.sleep(_SEGMENT_S)

    async def pour(self, data: bytes) -> None:
        """All of it, as fast as it is taken; of a large request no copy waits here."""
        for begin in range(0, len(data), _POURED_BYTES):
            self._writer.write(data[begin : begin + _POURED_BYTES])
            await self.sent()

    async def answer(self) -> bytes:
        """The next whole answer, its size field included; raises one of ``Lost`` at the end."""
        head = await self._reader.readexactly(4)
        rest = await self._reader.readexactly(int.from_bytes(head, "big"))
        self.received_bytes += 4 + len(rest)
        return head + rest

    async def ask(self, request: bytes) -> bytes:
        """Sends a request and waits for the next answer."""
        self.send(request)
        return await self.answer()

    async def closed(self) -> None:
        """Waits until the other side has closed; what it sends before is thrown away."""
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(1 << 18):
                pass

    def close(self) -> None:
        """Closes in order: the other side reads what was sent, then the end."""
        self._writer.close()

    def abort(self) -> None:
        """Drops it with what is on its way."""
        self._writer.transport.abort()

    async def scram_final(
        self, user: str, secret: str, *, client_id: str, disguise: Disguise = UNDISGUISED
    ) -> bytes:
        """The last request of a SCRAM-SHA-256 login whose first rounds this has; more may go behind it."""
        nonce = base64.b64encode(os.urandom(18)).decode()
        sent = f"n,,{disguise.before_name}n={user},r={nonce}{disguise.extensions}"
        first = f"n={user},r={nonce}{disguise.signed_extensions}"
        await self.ask(sasl_handshake("SCRAM-SHA-256", client_id=client_id))
        told = await self.ask(sasl_authenticate(sent.encode(), client_id=client_id))
        # size, correlation id, error, no message, size of the token; a session lifetime behind it
        length = int.from_bytes(told[12:16], "big")
        server_first = told[16 : 16 + length].decode()
        fields = dict(part.split("=", 1) for part in server_first.split(","))
        salted = hashlib.pbkdf2_hmac(
            "sha256", secret.encode(), base64.b64decode(fields["s"]), int(fields["i"])
        )
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        without_proof = f"c=biws,r={fields['r']}"
        signed = f"{first},{server_first},{without_proof}".encode()
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        token = f"{without_proof},p={base64.b64encode(proof).decode()}"
        return sasl_authenticate(token.encode(), client_id=client_id)


@asynccontextmanager
async def connected(
    address: tuple[str, int], *, receive_bytes: int | None = None
) -> AsyncIterator[WireClient]:
    """A connection that is dropped at the end."""
    client = await WireClient.to(address, receive_bytes=receive_bytes)
    try:
        yield client
    finally:
        client.abort()


async def for_seconds(
    seconds: float,
    *workers: Callable[[], Coroutine[None, None, None]],
    since: Callable[[], bool] = lambda: True,
    until: Callable[[], bool] = lambda: True,
) -> None:
    """Runs all of them at the same time, each to its end, for so long at most.

    ``since``: the seconds begin when it is so. ``until``: where it is not so by then, they go on until it is. Both together
    take a minute more at most.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds + _LONGER_S) as end, asyncio.TaskGroup() as ends:
            ending = ends.create_task(_end_when(since, seconds, until, end))
            async with asyncio.TaskGroup() as tasks:
                for worker in workers:
                    tasks.create_task(worker())
            ending.cancel()


async def _end_when(
    since: Callable[[], bool], seconds: float, until: Callable[[], bool], end: asyncio.Timeout
) -> None:
    while not since():  # noqa: ASYNC110  (nothing tells)
        await asyncio.sleep(_LOOK_S)
    await asyncio.sleep(seconds)
    while not until():  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_S)
    end.reschedule(asyncio.get_running_loop().time())
