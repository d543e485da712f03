"""The places for connections: so many in all, and so many for each address; each is taken by a driver."""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvota.gateway.closing import gone_among, has_unread, has_unsent
from kvota.gateway.driver import Driver
from kvota.gateway.journal import Journal
from kvota.gateway.leaving import Leaving
from kvota.gateway.parts import in_parts
from kvota.gateway.settings import GatewayLimits
from kvota.gateway.side import Side
from kvota.metrics.gateway_counts import GatewayCounts
from kvota.session.giving_way import GivingWay, Look, Standing

log = logging.getLogger(__name__)

# Where places are short all connections are looked at, but no more often than this, nor for more than a
# tenth of the time.
_LOOK_S, _TIMES_THE_LOOK = 0.1, 10
# So often in the time after which it is closed a connection is asked whether it is idle.
_IDLE_LOOKS = 20


@dataclass(slots=True)
class _Taken:
    """A place.

    Attributes:
        requests: how many its connection had sent when it was seen to have sent one.
        since_s: when that was.
        in_use_s: when something was due, on its way or kept back, as it was seen last.
    """

    requests: int
    since_s: float
    in_use_s: float


class Places:
    """Who is connected, in the order in which they came.

    Nobody sees the close of a client whose socket is not read (its connection is muted, say), so those
    are asked from time to time, and when places are short. Who has gone and left nothing behind is let
    go. What is left behind may be records that await no answer: they keep their place while there is one
    for others, and so do those who have closed while they wait for records. Where places are short for those who stay, ``session.giving_way`` says who leaves.

    Args:
        limits: how many there may be.
        counts: of those who come and go.

    Attributes:
        closed: true when nobody is let in any more.
    """

    def __init__(self, limits: GatewayLimits, counts: GatewayCounts) -> None:
        self._limits = limits
        self._counts = counts
        self._taken: dict[Driver, _Taken] = {}
        self._of_host: dict[str, int] = {}
        self._gone: dict[Driver, None] = {}  # and left something behind
        self._looked_s = self._counted_s = float("-inf")
        self._count_every_s = _LOOK_S
        self._idle_s = limits.idle_ms / 1000 if limits.idle_ms >= 0 else float("inf")
        self._idle_looked_s = 0.0
        self._giving_way: GivingWay[Driver] = GivingWay(limits.connections_max, self._look_closely)
        self._leaving = Leaving(limits.connections_max)
        self.closed = False

    def __len__(self) -> int:
        return len(self._taken)

    def __iter__(self) -> Iterator[Driver]:
        """Those who are connected now; they may leave meanwhile."""
        return iter(list(self._taken))

    def take(self, driver: Driver, journal: Journal) -> str:
        """Take a connection in; returns a reason when it must be refused. Who gives way for it is said."""
        limits, host = self._limits, driver.host
        if self.closed:
            self._counts.refused["draining"] += 1
            return "the gateway is stopping"
        host_max = limits.connections_per_ip_overrides.get(host, limits.connections_per_ip_max)
        if self._of_host.get(host, 0) >= host_max and not self._make_room_at(host):
            self._counts.refused["address"] += 1
            return f"its address has {host_max} connections (max.connections.per.ip)"
        if self._is_full and not self._make_room_for(host, journal):
            self._counts.refused["full"] += 1
            return (
                f"all {limits.connections_max} connections are in use (limits.connections_max), and of nobody who "
                "has more than a fair share one can give way"
            )
        self._counts.accepted += 1
        now_s = time.monotonic()
        self._taken[driver] = _Taken(0, now_s, now_s)
        self._giving_way.came(driver, host, now_s)
        self._of_host[host] = self._of_host.get(host, 0) + 1
        return ""

    def leave(self, driver: Driver) -> None:
        """A connection is over, or was never taken in."""
        self._gone.pop(driver, None)
        if driver not in self._taken:
            return
        del self._taken[driver]
        self._giving_way.left(driver)
        self._leaving.has_left(driver)
        self._counts.closed[driver.ended_by] += 1
        left = self._of_host[driver.host] - 1
        if left:
            self._of_host[driver.host] = left
        else:
            del self._of_host[driver.host]

    def look(self) -> None:
        """Let go whose client has closed unseen, see who asks something, close who is idle."""
        for _ in self.look_in_parts():
            pass

    def look_in_parts(self) -> Iterator[None]:
        """The same, a part of the connections for each step; due every other second. They may come and leave between steps."""
        self._looked_s = now_s = time.monotonic()
        is_idle_due = now_s >= self._idle_looked_s + self._idle_s / _IDLE_LOOKS
        if is_idle_due:
            self._idle_looked_s = now_s
        gone: dict[Driver, None] = {}
        let_go = 0
        for part in in_parts(self):
            there = [driver for driver in part if driver in self._taken]
            let_go += self._let_go_unseen(there, gone)
            self._see_who_asks(there, now_s)
            if is_idle_due:
                self._close_idle(there, now_s)
            yield
        self._gone = {driver: None for driver in gone if driver in self._taken}
        if let_go:
            log.debug("%d connections were muted when their clients closed them", let_go)

    def _let_go_unseen(self, drivers: Sequence[Driver], gone: dict[Driver, None]) -> int:
        """How many have gone and left nothing behind; ``gone`` takes those that have left something."""
        unseen: dict[Side, Driver] = {
            driver.client: driver for driver in drivers if driver.is_unread
        }
        let_go = 0
        for side in gone_among(unseen):
            driver = unseen[side]
            if _has_left_nothing_behind(driver):
                self._let_go(driver, by="client")
                let_go += 1
            else:
                gone[driver] = None
        gone.update((driver, None) for driver in drivers if driver.has_been_left)
        return let_go

    def _see_who_asks(self, drivers: Sequence[Driver], now_s: float) -> None:
        for driver in drivers:
            taken = self._taken.get(driver)
            if taken is not None and taken.requests != driver.machine.requests:
                taken.requests, taken.since_s = driver.machine.requests, now_s

    def _close_idle(self, drivers: Sequence[Driver], now_s: float) -> None:
        for driver in drivers:
            taken = self._taken.get(driver)
            if taken is None:
                continue
            if _is_in_use(driver):
                taken.in_use_s = now_s
                continue
            idle_s = now_s - max(taken.since_s, taken.in_use_s)
            if idle_s >= self._idle_s and not has_unread(driver.client):
                driver.finish(by="idle")

    # ------------------------------------------------------------------ room for others

    @property
    def _is_full(self) -> bool:
        return len(self._taken) - len(self._leaving) >= self._limits.connections_max

    def _make_room_at(self, host: str) -> bool:
        """Close one of this address whose client has gone, if there is any."""
        before = self._of_host.get(host, 0)
        if time.monotonic() - self._looked_s >= _LOOK_S:
            self.look()
        return self._of_host.get(host, 0) < before or self._let_one_go_that_has_gone(host)

    def _make_room_for(self, host: str, journal: Journal) -> bool:
        """Have one leave that has gone, is of no use to anybody, or is one too many of its holder's."""
        now_s = time.monotonic()
        if now_s - self._counted_s >= self._count_every_s:
            self._counted_s = now_s
            self.look()
            self._giving_way.count(self._all_seen())
            self._count_every_s = max(_LOOK_S, _TIMES_THE_LOOK * (time.monotonic() - now_s))
        if not self._is_full or self._let_one_go_that_has_gone(None):
            return True
        has_room = self._leaving.has_room_for(host)
        hurried = None if has_room else self._leaving.who_has_had_time(host)
        may_tell = has_room or hurried is not None
        chosen = self._giving_way.choose(host, now_s, may_tell=may_tell)
        if chosen is None:
            return False
        driver = chosen.who
        places = self._limits.connections_max
        journal.gave_way(chosen.holder, driver.host, of=chosen.holding, places=places)
        if chosen.is_at_work:
            if hurried is not None:
                hurried.abort()
                self.leave(hurried)
            self._giving_way.left(driver)
            self._leaving.tell(driver, chosen.holder, for_host=host)
        else:
            driver.machine.give_way(time.time_ns() // 1000)
            self._let_go(driver, by="made_room")
        return True

    def _let_one_go_that_has_gone(self, host: str | None) -> bool:
        """With a host, one of that address."""
        for driver in self._gone:
            if host in {None, driver.host}:
                reason = "its client had gone when all places were in use"
                self._let_go(driver, reason, by="made_room")
                return True
        return False

    def _let_go(self, driver: Driver, reason: str = "", *, by: str) -> None:
        driver.close(reason, by=by)
        self.leave(driver)

    # ------------------------------------------------------------------ who could give way

    def _all_seen(self) -> Iterator[tuple[Driver, Look]]:
        for driver, taken in self._taken.items():
            if driver not in self._leaving:
                yield driver, _look(driver, taken)

    def _look_closely(self, driver: Driver) -> Look:
        """What has been written to a client may still be lost where it has not reached its machine."""
        taken = self._taken.get(driver)
        if taken is None:
            return _NOBODY
        seen = _look(driver, taken)
        if seen.standing < Standing.AT_WORK and has_unsent(driver.client):
            return seen._replace(standing=Standing.AT_WORK)
        return seen


# Nobody's: whoever held it holds it no more.
_NOBODY = Look("", None, Standing.AT_WORK, 0.0)


def _look(driver: Driver, taken: _Taken) -> Look:
    machine = driver.machine
    holder = machine.holder if driver.has_asked or machine.is_in_line else None
    is_at_work = driver.closing or driver.client.transport.get_write_buffer_size() > 0
    standing = machine.standing
    if is_at_work:
        standing = max(standing, Standing.AT_WORK)
    return Look(driver.host, holder, standing, taken.since_s)


def _is_in_use(driver: Driver) -> bool:
    """True while something is due, on its way, or kept back: then nobody has been idle."""
    machine = driver.machine
    return bool(
        driver.closing
        or machine.pausing.reasons
        or machine.arrived_bytes
        or not machine.idle
        or driver.client.transport.get_write_buffer_size()
    )


def _has_left_nothing_behind(driver: Driver) -> bool:
    """True when nothing that a client sent before it closed would be lost with its connection."""
    has_buffered = driver.machine.arrived_bytes > 0
    return driver.can_finish and not has_buffered and not has_unread(driver.client)
