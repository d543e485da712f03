"""The gateway's open ports: one to bootstrap at, and one for each node."""

import asyncio
import errno
import logging
import resource
import socket
from collections.abc import Callable
from functools import partial

from kvota.gateway.error_words import words_of
from kvota.gateway.held_back import HELD_MAX
from kvota.gateway.settings import GatewaySettings, leaving_max
from kvota.model.errors import UnreachableError

log = logging.getLogger(__name__)

# A burst of clients that reconnect all at once waits here for its turn.
_BACKLOG = 1024
# What a client sends while its connection is not read waits in the system's memory, by default up to
# 6 MB (33 MB on some machines) for each; a few hundred such connections leave too little for all others, whose
# packets are then dropped. Kafka's socket.receive.buffer.bytes is 100 KiB; the system doubles it.
RECEIVE_BUFFER_BYTES = 131_072
# Files that are neither a connection nor a port: the log, the record, the event loop's own.
_OTHER_FILES = 64


class Listeners:
    """Opens the ports and closes them."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._servers: list[asyncio.Server] = []

    async def open(self, make_side: Callable[[int | None], asyncio.BaseProtocol]) -> None:
        """Listen on all ports.

        Args:
            make_side: makes the client's side of a connection to the port of this node id, None: to the
                bootstrap port.

        Raises:
            UnreachableError: a port cannot be listened on; says which, why, and what to change.
        """
        told = self._settings.advertised
        node_ids = range(told.node_id_min, told.node_id_max + 1)
        await self._listen(self._settings.bootstrap_port, None, make_side)
        for node_id in node_ids:
            await self._listen(told.node_port_base + node_id, node_id, make_side)
        _raise_descriptor_limit(self._settings.limits.connections_max, len(self._servers))

    @property
    def ips(self) -> set[str]:
        """The addresses that are listened at."""
        sockets = (socket for server in self._servers for socket in server.sockets)
        return {str(socket.getsockname()[0]) for socket in sockets}

    def close(self) -> None:
        """Let nobody in any more; open connections stay."""
        for server in self._servers:
            server.close()

    async def _listen(
        self,
        port: int,
        node_id: int | None,
        make_side: Callable[[int | None], asyncio.BaseProtocol],
    ) -> None:
        host = self._settings.host
        try:
            server = await asyncio.get_running_loop().create_server(
                partial(make_side, node_id), host, port, backlog=_BACKLOG
            )
        except OSError as error:
            self.close()
            what, setting = "the bootstrap port", "gateway.bootstrap_port"
            if node_id is not None:
                what = f"node {node_id}'s port"
                setting = "gateway.node_port_base, or fewer gateway.node_ids"
            remedy = f"End what uses it, or choose another: {setting}."
            if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
                remedy = "This machine has no such address: correct gateway.host."
            elif error.errno == errno.EACCES:
                remedy = f"Ports below 1024 need a right of their own; choose another: {setting}."
            msg = f"cannot listen on {host}:{port} ({what}): {words_of(error)}. {remedy}"
            raise UnreachableError(msg) from error
        for listening in server.sockets:  # those accepted from it have the same
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        self._servers.append(server)


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
