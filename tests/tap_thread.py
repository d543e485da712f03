"""What taps share: connections are relayed on a thread with an event loop of its own."""

import asyncio
import contextlib
import ssl
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import NamedTuple, Self

Address = tuple[str, int]
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_START_S = 20.0


class TapTls(NamedTuple):
    """TLS that ends at a tap and begins there anew: it sees what is said in between.

    Attributes:
        shown: to clients, with a certificate for where the tap listens.
        upstream: how it trusts whom it relays to, whose certificate has to be for the name that the client has called
            (SNI), or for the host that is dialled where it has called none.
    """

    shown: ssl.SSLContext
    upstream: ssl.SSLContext


class TapThread(ABC):
    """Listens until the ``with`` block ends.

    Args:
        ways: where it listens, and whom a connection there is relayed to.
        tls: on both sides; None: bytes are relayed as they come.

    Attributes:
        called: the names that clients have called in their handshakes.
    """

    def __init__(self, ways: Mapping[Address, Address], tls: TapTls | None = None) -> None:
        self._ways = ways
        self._shown, self._upstream = tls or (None, None)
        self.called: set[str] = set()
        self._name_of: weakref.WeakKeyDictionary[object, str] = weakref.WeakKeyDictionary()
        if self._shown is not None:
            self._shown.sni_callback = self._note_name
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._transports: weakref.WeakSet[asyncio.WriteTransport] = weakref.WeakSet()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @abstractmethod
    async def relay(self, client: Stream, upstream: Stream) -> None:
        """Relay one connection until it ends; both sides are closed behind that."""

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(_START_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(_START_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_START_S)
        self._loop.close()

    async def _listen(self) -> None:
        for (host, port), upstream in self._ways.items():
            server = await asyncio.start_server(
                lambda reader, writer, upstream=upstream: self._serve((reader, writer), upstream),  # type: ignore[misc]
                host,
                port,
                ssl=self._shown,
            )
            self._servers.append(server)

    async def _close(self) -> None:
        # Python 3.11 leaves a connection unclosed whose server is closed between accepting it and making its transport.
        for server in self._servers:
            for listening in server.sockets:
                self._loop.remove_reader(listening)
        await asyncio.sleep(0.05)
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0.05)  # closed writers have their connections' ends told
        # Who does not read, or does not answer the end of its TLS, would keep a closed one open.
        # Those in a handshake nobody has been told of; only the loop has them.
        of_loop = self._loop._transports.values()  # type: ignore[attr-defined]
        for transport in (*self._transports, *of_loop):
            transport.abort()
        await asyncio.sleep(0.05)

    async def _serve(self, client: Stream, upstream_address: Address) -> None:
        self._transports.add(client[1].transport)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        writers = [client[1]]
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            handshake = client[1].get_extra_info("ssl_object")
            name = None if handshake is None else self._name_of.get(handshake)
            upstream = await asyncio.open_connection(
                *upstream_address, ssl=self._upstream, server_hostname=name
            )
            writers.append(upstream[1])
            self._transports.add(upstream[1].transport)
            await self.relay(client, upstream)
        for each in writers:
            each.close()
        self._tasks.discard(task)

    def _note_name(self, connection: object, name: str | None, _context: ssl.SSLContext) -> None:
        if name:
            self._name_of[connection] = name
            self.called.add(name)
