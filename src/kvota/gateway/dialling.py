"""Which broker a connection is for, and the way to it."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from kvota.gateway.error_words import words_of
from kvota.gateway.settings import GatewaySettings
from kvota.session.topology import Topology

log = logging.getLogger(__name__)

# Node ids of connections whose broker is not known yet; -1 is taken by cluster-wide quotas.
_UNKNOWN_NODE = -2

End = TypeVar("End", bound=asyncio.BaseProtocol)


@dataclass(slots=True, kw_only=True)
class Destination:
    """The broker that a connection is for; another than planned may be reached.

    ``listener_node_id``: whose port the client has come to, None for the bootstrap port.
    """

    listener_node_id: int | None
    address: tuple[str, int]


class Dialler:
    """Connects to brokers; says once that one cannot be reached, and once that it can again.

    Args:
        settings: the bootstrap servers, and how long connecting may take.
        topology: the nodes' addresses, as far as answers have told them.
    """

    def __init__(self, settings: GatewaySettings, topology: Topology) -> None:
        self._servers = settings.upstream
        self._connect_s = settings.limits.connect_ms / 1000
        self._topology = topology
        self._last_server = 0
        self._unreachable: set[tuple[str, int]] = set()

    def destination(self, listener_node_id: int | None) -> Destination:
        """The broker that a connection to this listener is for.

        While a node's address is not known (the gateway has just started), any bootstrap server does:
        what it answers teaches the address, and the connection is then closed, to be made anew.
        """
        address = self._address_of(listener_node_id)
        if address is None:
            self._last_server = (self._last_server + 1) % len(self._servers)
            address = self._servers[self._last_server]
        return Destination(listener_node_id=listener_node_id, address=address)

    def node_of(self, address: tuple[str, int]) -> int:
        """The node id for counters of a connection to this address."""
        known = self._topology.node_at(*address)
        if known is not None:
            return known
        return _UNKNOWN_NODE - (self._servers.index(address) if address in self._servers else 0)

    def is_elsewhere(self, destination: Destination) -> bool:
        """True when the listener's node is known to be at another address than was dialled."""
        address = self._address_of(destination.listener_node_id)
        return address is not None and address != destination.address

    async def dial(
        self, destination: Destination, make_end: Callable[[], End]
    ) -> tuple[End, tuple[str, int]] | None:
        """Connect; returns the protocol and where it is, None when nobody can be reached (it is logged)."""
        candidates = [destination.address]
        if self._address_of(destination.listener_node_id) is None:  # any bootstrap server will do
            candidates += [other for other in self._servers if other != destination.address]
        loop = asyncio.get_running_loop()
        for host, port in candidates:
            try:
                async with asyncio.timeout(self._connect_s):
                    _, end = await loop.create_connection(make_end, host, port)
            # A TimeoutError is an OSError; a name that cannot be encoded is a ValueError.
            except (OSError, ValueError) as error:
                self._say_unreachable((host, port), error)
                continue
            if (host, port) in self._unreachable:
                self._unreachable.discard((host, port))
                log.info("broker %s:%d can be reached again", host, port)
            return end, (host, port)
        return None

    async def look_upstream(self) -> None:
        """Connect to each bootstrap server once, and say which cannot be reached."""
        for host, port in self._servers:
            try:
                async with asyncio.timeout(self._connect_s):
                    _, writer = await asyncio.open_connection(host, port)
            except (OSError, ValueError) as error:
                self._say_unreachable((host, port), error)
            else:
                log.info("broker %s:%d can be reached", host, port)
                writer.close()

    def _address_of(self, node_id: int | None) -> tuple[str, int] | None:
        return None if node_id is None else self._topology.brokers.get(node_id)

    def _say_unreachable(self, address: tuple[str, int], error: OSError | ValueError) -> None:
        if address in self._unreachable:
            return
        self._unreachable.add(address)
        reason = "no answer in time" if isinstance(error, TimeoutError) else words_of(error)
        log.error(
            "broker %s:%d cannot be reached: %s. Its clients are disconnected and will try again",
            *address,
            reason,
        )
