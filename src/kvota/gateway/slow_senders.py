"""Closes connections whose login, request, or large answer does not arrive, or that are in the way where others need room."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from kvota.gateway.driver import Driver
from kvota.gateway.parts import in_parts
from kvota.gateway.places import Places
from kvota.gateway.settings import GatewayLimits
from kvota.session.budget import AnnouncedBudgets
from kvota.session.early_charges import EarlyCharges
from kvota.session.pausing import AT_ONCE, Reason

# So often connections are looked at while somebody waits for room.
LOOK_S = 0.1
# A sender may be so much behind the least rate: packets are late, and come in bursts.
BEHIND_MS_MAX = 500
# Who has more than its part of the room may keep others waiting for so long, at whatever rate it sends.
_MORE_THAN_FAIR_MS_MAX = 800
_FOR_ROOM = int(Reason.BUDGET | Reason.ROOM)
# Not for the client to end. (Who has just been given room does not know yet.)
_OURS = AT_ONCE | _FOR_ROOM | int(Reason.ASKING | Reason.STEP)


class _Seen(NamedTuple):
    """A request that had begun when it was looked at last."""

    requests: int  # of its connection, before it
    arrived_bytes: int
    since_ms: float


class SlowSenders:
    """Looks at all connections from time to time, and remembers which requests it has seen.

    While somebody waits for room in the budget it looks more often: who takes the room has to send at
    the least rate from then on, and none may keep more than its part for long. While somebody waits for a
    turn on a counter, who was charged there for what has not come has to send, too.

    Args:
        places: where the connections are.
        limits: how long a request may take, and how much room there is.
        budgets: the room.
        early_charges: what was charged on counters for whose turns others may wait.
    """

    def __init__(
        self,
        places: Places,
        limits: GatewayLimits,
        budgets: AnnouncedBudgets,
        early_charges: EarlyCharges,
    ) -> None:
        self._places = places
        self._limits = limits
        self._budgets = budgets
        self._early_charges = early_charges
        # By number: they must not keep connections alive.
        self._seen: dict[int, _Seen] = {}
        self._logging_in: dict[int, float] = {}  # since when, at the latest
        self._in_the_way: dict[int, _Seen] = {}
        self._before_lines: dict[int, _Seen] = {}
        self._answering: dict[int, _Seen] = {}
        self._next_look: asyncio.TimerHandle | None = None
        self._looked_ms = 0.0
        self._passed_ms = 0.0  # the time of all looks

    # ------------------------------------------------------------------ from time to time

    def sweep(self, now_ms: float) -> None:
        """Close who has taken too long, on a monotonic clock."""
        for _ in self.sweep_in_parts(now_ms):
            pass

    def sweep_in_parts(self, now_ms: float) -> Iterator[None]:
        """The same, a part of the connections for each step; one such round at a time."""
        seen_before, self._seen = self._seen, {}
        logins_before, self._logging_in = self._logging_in, {}
        late: list[tuple[Driver, _Seen]] = []
        for part in in_parts(self._places):
            for driver in part:
                if driver.closing:
                    continue
                self._look_at_login(driver, logins_before, now_ms)
                if not _waits_for_client(driver):
                    continue
                now = _seen_now(driver, now_ms)
                before = seen_before.get(driver.number)
                if before is None or before.requests != now.requests:
                    self._seen[driver.number] = now
                    continue
                self._seen[driver.number] = now._replace(since_ms=before.since_ms)
                if self._why_too_late(driver, before, now):
                    late.append((driver, before))
            yield
        self._close_late(late, now_ms)
        self._budgets.sweep()

    def _close_late(self, late: Sequence[tuple[Driver, _Seen]], now_ms: float) -> None:
        """Close those who still are late: they may have gone on behind their part of the round."""
        senders: list[tuple[Driver, str]] = []
        waiters: list[tuple[Driver, str]] = []
        for driver, before in late:
            now = _seen_now(driver, now_ms)
            if now.requests != before.requests or not _waits_for_client(driver):
                continue
            reason = self._why_too_late(driver, before, now)
            if reason:
                waits = driver.machine.pausing.reasons & _FOR_ROOM
                (waiters if waits else senders).append((driver, reason))
        # Who has waited for room as long as others have taken it finds it free now.
        for driver, reason in senders or waiters:
            driver.close(reason, by="slow")

    def _look_at_login(self, driver: Driver, before: Mapping[int, float], now_ms: float) -> None:
        """Who is silent for ever before a login, or in the middle of one, would keep a place and a broker's connection."""
        if not driver.machine.is_login_due:
            return
        login_ms = self._limits.login_ms
        since_ms = self._logging_in[driver.number] = before.get(driver.number, now_ms)
        if now_ms - since_ms >= login_ms:
            driver.close(f"no login in {login_ms} ms (limits.login_time)", by="slow")

    def _why_too_late(self, driver: Driver, before: _Seen, now: _Seen) -> str:
        limits = self._limits
        allowed_ms = limits.frame_ms + now.arrived_bytes * 1000 // limits.frame_bytes_per_s_min
        if now.since_ms - before.since_ms < allowed_ms:
            return ""
        if driver.machine.pausing.reasons & Reason.ROOM:
            return (
                f"no memory for its topic mutation in {allowed_ms} ms: its user has a large one under way, "
                "or others fill what there is"
            )
        if driver.machine.pausing.reasons & Reason.BUDGET:
            return (
                f"no room for its request in {allowed_ms} ms (limits.announced_bytes_max, "
                f"{limits.announced_bytes_max} bytes)"
            )
        return f"no whole request in {allowed_ms} ms; {now.arrived_bytes} bytes of one are here"

    # ------------------------------------------------------------------ while somebody waits

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look at who is in the way whenever somebody begins to wait, until nobody does."""
        self._budgets.when_waited = lambda: self._look_soon(loop)
        self._early_charges.when_added = lambda: self._look_soon(loop)

    def _look_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._next_look is None:
            self._next_look = loop.call_later(LOOK_S, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._next_look = None
        self.look(loop.time() * 1000)
        if self._budgets.is_waited_for or self._early_charges:
            self._look_soon(loop)

    def look(self, now_ms: float) -> None:
        """Close who keeps others waiting and does not send as fast as is due, on a monotonic clock."""
        # After a stall of the loop what has come is still in the sockets: that is not the senders' time.
        self._passed_ms += min(now_ms - self._looked_ms, 2_000 * LOOK_S)
        self._looked_ms = now_ms
        if self._budgets.is_waited_for:
            self._look_for_room()
            self._look_at_answers()
        else:
            self._in_the_way.clear()
            self._answering.clear()
        if self._early_charges.are_in_the_way:
            self._look_at_lines()
        else:
            self._before_lines.clear()

    def _look_for_room(self) -> None:
        before, self._in_the_way = self._in_the_way, {}
        unfair: list[Driver] = []
        for driver in self._places:
            if driver.closing or not driver.machine.keeps_others_waiting:
                continue
            machine = driver.machine
            if _waits_itself(driver):
                driver.close(
                    f"muted with {machine.arrived_bytes} bytes of a request, and {_who_waits(driver)}",
                    by="slow",
                )
                continue
            seen = self._seen_since(before, driver)
            if self._is_behind(seen, machine.arrived_bytes, self._limits.frame_bytes_per_s_min):
                driver.close(
                    f"{machine.arrived_bytes - seen.arrived_bytes} bytes of its request have come in "
                    f"{self._passed_ms - seen.since_ms:.0f} ms, and {_who_waits(driver)}",
                    by="slow",
                )
                continue
            if machine.keeps_more_than_fair and self._has_long_been(seen):
                unfair.append(driver)
            self._in_the_way[driver.number] = seen
        if unfair:
            self._close_one_of(unfair)
        self._budgets.look()

    def _look_at_answers(self) -> None:
        """Close where an answer takes memory that others wait for, and neither comes nor is taken.

        Whether its broker has fallen silent or its client reads nothing: at the least rate it goes on.
        """
        before, self._answering = self._answering, {}
        for driver in self._places:
            here_bytes = driver.machine.answer_in_the_way
            if driver.closing or here_bytes is None:
                continue
            unread_bytes = driver.client.transport.get_write_buffer_size()
            at_bytes = here_bytes - unread_bytes
            seen = before.get(driver.number)
            if seen is None or at_bytes < seen.arrived_bytes:
                seen = _Seen(driver.machine.requests, at_bytes, self._passed_ms)
            if self._is_behind(seen, at_bytes, self._limits.frame_bytes_per_s_min):
                after_ms = self._passed_ms - seen.since_ms
                what = (
                    f"its client has left {unread_bytes} bytes of an answer unread for {after_ms:.0f} ms"
                    if unread_bytes
                    else f"{at_bytes - seen.arrived_bytes} bytes of an answer of its broker have come in "
                    f"{after_ms:.0f} ms"
                )
                driver.close(
                    f"{what}, and others wait for memory for theirs",
                    by="slow" if unread_bytes else "waited",
                )
                if unread_bytes:
                    driver.client.transport.abort()  # what it has not taken is dropped at once
                continue
            self._answering[driver.number] = seen

    def _look_at_lines(self) -> None:
        """Close who was charged for what it does not send while others wait for their turn on that counter.

        The least rate is enough, and half the limit where that is less.
        """
        before, self._before_lines = self._before_lines, {}
        for driver in self._places:
            machine = driver.machine
            limit = machine.keeps_line_waiting
            if driver.closing or not limit:
                continue
            seen = self._seen_since(before, driver)
            due_bytes_per_s = min(self._limits.frame_bytes_per_s_min, limit / 2)
            if self._is_behind(seen, machine.arrived_bytes, due_bytes_per_s):
                driver.close(
                    f"{machine.arrived_bytes - seen.arrived_bytes} bytes of its request have come in "
                    f"{self._passed_ms - seen.since_ms:.0f} ms, and others wait for their turn under its "
                    f"quota of {limit:g} bytes/s (docs/quotas-that-hold.md)",
                    by="slow",
                )
                continue
            self._before_lines[driver.number] = seen

    def _seen_since(self, before: Mapping[int, _Seen], driver: Driver) -> _Seen:
        """What was first seen of the request that runs, where it was the client's turn all the time; else now."""
        seen, machine = before.get(driver.number), driver.machine
        if seen is None or seen.requests != machine.requests or not machine.is_clients_turn:
            return _Seen(machine.requests, machine.arrived_bytes, self._passed_ms)
        return seen

    def _has_long_been(self, seen: _Seen) -> bool:
        return self._passed_ms - seen.since_ms >= _MORE_THAN_FAIR_MS_MAX

    def _is_behind(self, seen: _Seen, arrived_bytes: int, due_bytes_per_s: float) -> bool:
        due_ms = self._passed_ms - seen.since_ms - BEHIND_MS_MAX
        due_bytes = due_ms * due_bytes_per_s / 1000
        return arrived_bytes - seen.arrived_bytes < due_bytes

    def _close_one_of(self, unfair: list[Driver]) -> None:
        """One at a time: the rest may be fair without it."""
        driver = max(unfair, key=lambda other: other.machine.missing_bytes)
        driver.close(
            f"its user takes more than its part of the room for requests that have not arrived, of this "
            f"one {driver.machine.missing_bytes} bytes are missing, and others wait "
            "(limits.announced_bytes_max)",
            by="slow",
        )


def _seen_now(driver: Driver, now_ms: float) -> _Seen:
    return _Seen(driver.machine.requests, driver.machine.arrived_bytes, now_ms)


def _who_waits(driver: Driver) -> str:
    if driver.machine.keeps_turn_waiting:
        return "another large topic mutation of its user waits for this one to end"
    return "others wait for room (limits.announced_bytes_max)"


def _waits_itself(driver: Driver) -> bool:
    """True while a request takes room that cannot go on anyway; our own questions are soon over."""
    machine = driver.machine
    return bool(machine.pausing.reasons & ~_OURS) and not machine.is_inside_frame


def _waits_for_client(driver: Driver) -> bool:
    """True while it is the client's turn: a request has begun and not ended, or none has gone on."""
    return driver.machine.incomplete or not driver.has_asked
