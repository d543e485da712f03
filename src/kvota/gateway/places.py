"""The places for connections: so many in all, and so many for each address; each is taken by a driver."""

import asyncio
import logging
from collections.abc import Iterator

from kvota.gateway.closing import gone_among, has_unread
from kvota.gateway.driver import Driver
from kvota.gateway.settings import GatewayLimits
from kvota.gateway.side import Side
from kvota.metrics.gateway_counts import GatewayCounts

log = logging.getLogger(__name__)

# Where places are short all connections are looked at, but no more often than this.
_LOOK_S = 0.1


class Places:
    """Who is connected, in the order in which they came.

    Nobody sees the close of a client whose socket is not read (its connection is muted, say), so those
    are asked from time to time, and when places are short. Who has gone and left nothing behind is let
    go. What is left behind may be records that await no answer: they keep their place while there is one
    for others.

    Args:
        limits: how many there may be.
        counts: of those who come and go.

    Attributes:
        closed: true when nobody is let in any more.
    """

    def __init__(self, limits: GatewayLimits, counts: GatewayCounts) -> None:
        self._limits = limits
        self._counts = counts
        self._taken: dict[Driver, None] = {}
        self._of_host: dict[str, int] = {}
        self._gone: dict[Driver, None] = {}  # and left something behind
        self._looked_s = float("-inf")
        self.closed = False

    def __len__(self) -> int:
        return len(self._taken)

    def __iter__(self) -> Iterator[Driver]:
        """Those who are connected now; they may leave meanwhile."""
        return iter(list(self._taken))

    def take(self, driver: Driver) -> str:
        """Take a connection in; returns a reason when it must be refused."""
        limits = self._limits
        host_max = limits.connections_per_ip_overrides.get(
            driver.host, limits.connections_per_ip_max
        )
        if self._of_host.get(driver.host, 0) >= host_max and not self._make_room(driver.host):
            self._counts.refused["address"] += 1
            return f"its address has {host_max} connections (max.connections.per.ip)"
        if len(self._taken) >= limits.connections_max and not self._make_room(None):
            self._counts.refused["full"] += 1
            return f"all {limits.connections_max} connections are in use (limits.connections_max)"
        if self.closed:
            self._counts.refused["draining"] += 1
            return "the gateway is stopping"
        self._counts.accepted += 1
        self._taken[driver] = None
        self._of_host[driver.host] = self._of_host.get(driver.host, 0) + 1
        return ""

    def leave(self, driver: Driver) -> None:
        """A connection is over, or was never taken in."""
        self._gone.pop(driver, None)
        if driver not in self._taken:
            return
        del self._taken[driver]
        self._counts.closed[driver.ended_by] += 1
        left = self._of_host[driver.host] - 1
        if left:
            self._of_host[driver.host] = left
        else:
            del self._of_host[driver.host]

    def look(self) -> None:
        """Let go whose client has closed unseen; due every other second."""
        self._looked_s = asyncio.get_running_loop().time()
        self._gone.clear()
        unseen: dict[Side, Driver] = {driver.client: driver for driver in self if driver.is_unread}
        let_go = 0
        for side in gone_among(unseen):
            driver = unseen[side]
            if _has_left_nothing_behind(driver):
                self._let_go(driver, "")
                let_go += 1
            else:
                self._gone[driver] = None
        if let_go:
            log.debug("%d connections were muted when their clients closed them", let_go)

    # ------------------------------------------------------------------ room for others

    def _make_room(self, host: str | None) -> bool:
        """Close one that is of no use to anybody, if there is any; with a host, one of that address."""
        before = len(self._taken) if host is None else self._of_host.get(host, 0)
        if asyncio.get_running_loop().time() - self._looked_s >= _LOOK_S:
            self.look()
            if (len(self._taken) if host is None else self._of_host.get(host, 0)) < before:
                return True
        for driver in self._gone:
            if host in {None, driver.host}:
                self._let_go(driver, "its client had gone when all places were in use")
                return True
        return host is None and self._make_a_silent_one_leave()

    def _make_a_silent_one_leave(self) -> bool:
        """Close the oldest connection that has not sent one whole head of a request, if there is any.

        Connections that are silent thus cannot keep out those that have something to say.
        """
        for driver in self._taken:
            if not driver.has_asked:
                self._let_go(driver, "it had asked nothing yet when all connections were in use")
                return True
        return False

    def _let_go(self, driver: Driver, reason: str) -> None:
        driver.close(reason, by="made_room" if reason else "client")
        self.leave(driver)


def _has_left_nothing_behind(driver: Driver) -> bool:
    """True when nothing that a client sent before it closed would be lost with its connection."""
    has_buffered = driver.machine.arrived_bytes > 0
    return driver.can_finish and not has_buffered and not has_unread(driver.client)
