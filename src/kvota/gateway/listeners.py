"""The gateway's open ports: of each listener one to bootstrap at, and one for each node."""

import asyncio
import errno
import logging
import os
import resource
import socket
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from kvota.gateway.error_words import words_of
from kvota.gateway.held_back import HELD_MAX
from kvota.gateway.receive_buffers import RECEIVE_BUFFER_BYTES
from kvota.gateway.settings import GatewaySettings, ListenerSettings, leaving_max
from kvota.model.errors import UnreachableError

log = logging.getLogger(__name__)

# A burst of clients that reconnect all at once waits here for its turn.
_BACKLOG = 1024
# So many of a port are let in before others, who are connected already, have their turn: each takes some 0.3 ms.
LET_IN_AT_ONCE = 16
_AGAIN_S = 0.5
# Files that are neither a connection nor a port: the log, the record, the event loop's own.
_OTHER_FILES = 64


class Entrance(NamedTuple):
    """A port, as who comes by it sees it.

    Attributes:
        number: of its listener, among all.
        listener: to which it belongs.
        node_id: for which node it is; None: for any.
    """

    number: int
    listener: ListenerSettings
    node_id: int | None

    @property
    def is_of_all_nodes(self) -> bool:
        """True where clients call a node by its name, in the TLS handshake."""
        return bool(self.listener.advertised.node_host)


class Listeners:
    """Opens the ports and closes them."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._doors: list[Door] = []

    async def open(self, make_side: Callable[[Entrance], asyncio.BaseProtocol]) -> None:
        """Listen on all ports.

        Args:
            make_side: makes the client's side of a connection that has come this way.

        Raises:
            UnreachableError: a port cannot be listened on; says which, why, and what to change.
        """
        for number, listener in enumerate(self._settings.listeners):
            for port, node_id in listener.ports.items():
                await self._listen(port, Entrance(number, listener, node_id), make_side)
        _raise_descriptor_limit(self._settings.limits.connections_max, len(self._doors))

    @property
    def ips(self) -> set[str]:
        """The addresses that are listened at."""
        return {door.ip for door in self._doors}

    def close(self) -> None:
        """Let nobody in any more; open connections stay. May be called twice."""
        while self._doors:
            self._doors.pop().close()

    async def _listen(
        self,
        port: int,
        entrance: Entrance,
        make_side: Callable[[Entrance], asyncio.BaseProtocol],
    ) -> None:
        _, listener, node_id = entrance
        host = listener.host
        try:
            for listening in await _bound(host, port):
                self._doors.append(Door(listening, partial(make_side, entrance)))
        except OSError as error:
            self.close()
            what, setting = "the bootstrap port", f"{listener.table}.bootstrap_port"
            if node_id is not None:
                what = f"node {node_id}'s port"
                setting = f"{listener.table}.node_port_base, or fewer gateway.node_ids"
            remedy = f"End what uses it, or choose another: {setting}."
            if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
                remedy = f"This machine has no such address: correct {listener.table}.host."
            elif error.errno == errno.EACCES:
                remedy = f"Ports below 1024 need a right of their own; choose another: {setting}."
            msg = f"cannot listen on {host}:{port} ({what}): {words_of(error)}. {remedy}"
            raise UnreachableError(msg) from error


async def _bound(host: str, port: int) -> list[socket.socket]:
    """Sockets for this port at all addresses of a host, which do not listen yet."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, host, port, start_serving=False)
    try:
        return [socket.socket(fileno=os.dup(bound.fileno())) for bound in server.sockets]
    finally:
        server.close()


class Door:
    """One listening socket, by which a few clients at a time are let in.

    asyncio's servers let in all who wait, uvloop's one in each round of the loop: in a flood of newcomers the
    former keeps waiting who is connected, the latter who is new, each for seconds.

    Args:
        listening: bound, and from now on it listens; it is closed with the door.
        make_side: makes the client's side of one connection.
    """

    def __init__(
        self, listening: socket.socket, make_side: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self._listening, self._make_side = listening, make_side
        self._loop = asyncio.get_running_loop()
        self._coming_in: set[asyncio.Task[None]] = set()
        self._opens_again: asyncio.TimerHandle | None = None
        self._has_failed = False
        listening.settimeout(0)
        # Those accepted from it have the same: what comes before it is let in is no more, either.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        listening.listen(_BACKLOG)
        self._loop.add_reader(listening, self._let_in)

    @property
    def ip(self) -> str:
        """The address that is listened at."""
        return str(self._listening.getsockname()[0])

    def close(self) -> None:
        """Let nobody in any more."""
        if self._opens_again is not None:
            self._opens_again.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()

    def _let_in(self) -> None:
        for _ in range(LET_IN_AT_ONCE):
            try:
                client, _address = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:  # gone before its turn
                continue
            except OSError as error:
                self._wait(error)
                return
            self._has_failed = False
            client.settimeout(0)
            task = self._loop.create_task(self._relay(client))
            self._coming_in.add(task)
            task.add_done_callback(self._coming_in.discard)

    async def _relay(self, client: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make_side, client)
        except OSError as error:  # it has gone
            log.debug("a new connection was lost: %s", words_of(error))
            client.close()

    def _wait(self, error: OSError) -> None:
        """The system has no more files or memory; who waits is let in when others have left."""
        if not self._has_failed:
            log.error(
                "no connection can be let in at the moment: %s. More are let in when others have left; raise the "
                "limit of open files (ulimit -n), or lower limits.connections_max",
                words_of(error),
            )
        self._has_failed = True
        self._loop.remove_reader(self._listening)
        self._opens_again = self._loop.call_later(_AGAIN_S, self._open_again)

    def _open_again(self) -> None:
        self._loop.add_reader(self._listening, self._let_in)


def _raise_descriptor_limit(connections_max: int, listeners: int) -> None:
    """Each connection is two open files; say so where the system does not allow as many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = (
        2 * (connections_max + leaving_max(connections_max)) + HELD_MAX + listeners + _OTHER_FILES
    )
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft < needed:
        log.warning(
            "the limit of open files is %d, %d connections need %d: raise it (ulimit -n) or lower "
            "limits.connections_max; connections beyond it fail",
            soft,
            connections_max,
            needed,
        )
