"""The brokers' own addresses, as this machine sees them: what they mean, and which can be reached."""

import asyncio
import logging
import socket
from contextlib import suppress

from kvota.gateway.knocking import knock
from kvota.gateway.own_addresses import IP, OwnAddresses, plain_ip
from kvota.model.address import Address
from kvota.session.topology import UNNAMED_NODE, Topology

log = logging.getLogger(__name__)

# What a name means may change: a broker that has moved is looked for again after so long.
_MEANING_S = 10.0
_LOOK_UP_S = 5.0
_NAMES_MAX = 1_000
# One that could not be reached is tried again after so long.
_TRY_AGAIN_S = 10.0


class BrokerAddresses:
    """Knows where brokers are, beyond the words that answers use for it.

    Args:
        topology: the words.
        own: the gateway's own addresses; a name that means one of them is no broker's.
        connect_s: how long connecting may take.
    """

    def __init__(self, topology: Topology, own: OwnAddresses, *, connect_s: float) -> None:
        self._topology = topology
        self._own = own
        self._connect_s = connect_s
        self._meanings: dict[str, tuple[float, frozenset[IP]]] = {}
        self._reached: dict[Address, bool] = {}
        self._tried_at: dict[Address, float] = {}
        self._trying: dict[Address, asyncio.Task[None]] = {}
        self._last: Address | None = None
        self._has_warned = False

    # ------------------------------------------------------------------ which can be reached

    def reached(self, address: Address, *, is_so: bool) -> None:
        """Somebody has connected to this address, or could not."""
        self._reached[address] = is_so
        self._tried_at[address] = asyncio.get_running_loop().time()

    @property
    def reachable(self) -> list[Address]:
        """The brokers to which somebody has connected, unless somebody else could not since."""
        return [address for address in self._in_order() if self._reached.get(address)]

    def in_turn(self) -> list[Address]:
        """The brokers that can be reached, each time another one first."""
        known = self.reachable
        if self._last in known:
            after = known.index(self._last) + 1
            known = known[after:] + known[:after]
        self._last = known[0] if known else None
        return known

    def look(self) -> None:
        """Try those of which nothing is known, and some time after those that could not be reached."""
        loop = asyncio.get_running_loop()
        addresses = self._in_order()
        for forgotten in self._reached.keys() - set(addresses):
            del self._reached[forgotten], self._tried_at[forgotten]
        for address in addresses:
            again_at = self._tried_at.get(address, -_TRY_AGAIN_S) + _TRY_AGAIN_S
            if self._reached.get(address) or address in self._trying or loop.time() < again_at:
                continue
            self._trying[address] = loop.create_task(self._try(address))

    def stop(self) -> None:
        """Try nothing more."""
        for task in self._trying.values():
            task.cancel()

    async def _try(self, address: Address) -> None:
        try:
            peer = await knock(address, timeout_s=self._connect_s)
        except (OSError, ValueError):
            self.reached(address, is_so=False)
        else:
            self.reached(address, is_so=not (peer and self._own.is_reached_at(*peer)))
        finally:
            del self._trying[address]

    def _in_order(self) -> list[Address]:
        brokers = self._topology.brokers
        return [brokers[node_id] for node_id in sorted(brokers)]

    # ------------------------------------------------------------------ who is where

    async def node_at(self, ip: str, port: int) -> int | None:
        """The broker that a connection to this address of a socket has reached.

        Returns:
            Its node id; None: no broker is there, and they can be reached where they are; ``UNNAMED_NODE``:
            nor can any of them be reached.
        """
        self.look()
        here = [(node, host) for node, (host, at) in self._topology.brokers.items() if at == port]
        meanings = await asyncio.gather(*(self._meaning(host) for _node, host in here))
        found = [node for (node, _), ips in zip(here, meanings, strict=True) if plain_ip(ip) in ips]
        if len(found) == 1:
            return found[0]
        if self._trying:
            await asyncio.wait(self._trying.values())
        if not self._topology.brokers or any(self._reached.values()):
            return None
        self._warn_once(ip, port)
        return UNNAMED_NODE

    async def _meaning(self, host: str) -> frozenset[IP]:
        """The addresses that a name means, none where it cannot be looked up in time."""
        with suppress(ValueError):
            return frozenset({plain_ip(host)})
        now = asyncio.get_running_loop().time()
        known_until, ips = self._meanings.get(host, (0.0, frozenset()))
        if now >= known_until:
            ips = await _looked_up(host)
            if len(self._meanings) >= _NAMES_MAX:
                self._meanings.clear()
            self._meanings[host] = now + _MEANING_S, ips
        return ips

    def _warn_once(self, ip: str, port: int) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        told = ", ".join(f"{host}:{port}" for host, port in self._in_order())
        log.warning(
            "%s:%d is no broker's address, and none of those that brokers advertise can be reached from "
            "here (%s): connections to it are counted together, as node %d. Let the gateway reach the "
            "brokers at their advertised.listeners, so that each has counters of its own",
            ip,
            port,
            told,
            UNNAMED_NODE,
        )


async def _looked_up(host: str) -> frozenset[IP]:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_LOOK_UP_S):
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return frozenset()
    return frozenset(plain_ip(str(address[0])) for *_, address in found)
