"""A Produce that comes while its counter owes too much, or a full disk lets none pass, waits in the counter's line.

It is not charged and not forwarded, and nothing more is read. In line are all connections of a counter,
first come first served, so a reconnect or one more connection gains nothing (``engine.debt_bucket``).
Whoever has waited for as long as clients wait is closed and keeps its place for when it comes back.
"""

from collections.abc import Callable

from kvota.engine import Lane, PlaceKey, Turn
from kvota.session.caller import Caller
from kvota.session.route import Route
from kvota.session.waking import nobody

# Clients give a request up after 30 s (``request.timeout.ms``): what is admitted later is sent again.
WAIT_MS_MAX = 25_000
# Bytes that come so soon after a pause may have been in the socket for all of it.
_JUST_RESUMED_US = 100_000


class LinePlace:
    """The place of one connection, while it has one.

    Attributes:
        awaits_answer: whether the client of the waiting request waits for an answer.
        kept_us: when the bytes that are buffered, or were until ``taken_us``, began to come.
        taken_us: when buffered bytes were last taken.
        resumed_us: when the connection was last let go on.
    """

    __slots__ = (
        "_caller",
        "_is_new",
        "_key",
        "_lane",
        "_turn",
        "_wake",
        "awaits_answer",
        "kept_us",
        "resumed_us",
        "taken_us",
    )

    def __init__(self, caller: Caller, wake: Callable[[], None]) -> None:
        self._caller = caller
        self._wake = wake
        self._lane: Lane | None = None
        self._turn: Turn | None = None
        self._key: PlaceKey | None = None
        # Who comes back has a new connection; a place is not for those that were never away.
        self._is_new = True
        self.awaits_answer = True
        self.kept_us = 0
        self.taken_us = 0
        self.resumed_us = 0

    def may_go_on(self, route: Route, size: int, *, awaits_answer: bool, now_us: int) -> bool:
        """True when a request's turn has come: charge it by ``lane.admit``, then ``leave``.

        One that awaits no answer may wait for ever: to close its connection would lose its records
        unnoticed. Where places for connections are short it is the last to go (``Standing.SENT_ONCE``).
        """
        lane, now_ms = route.lane, now_us // 1000
        if self._lane is not lane:
            self.leave()
        if self._turn is None:
            self._lane = lane
            self._key = place_key(self._caller, route)
            self._turn = lane.join(self._wake, self._key if self._is_new else None, now_ms)
            self._is_new = False
            self.awaits_answer = awaits_answer
            self._append_wait(route, size, now_us)
            self._caller.pausing.give_up_waiting_in(
                self._left_ms(now_us) if awaits_answer else None
            )
        elif lane.went_back(now_ms):
            self._append_wait(route, size, now_us)
        turn_in_ms: int | None = None
        if lane.waiting_line().is_first(self._turn):
            turn_in_ms = lane.turn_in_ms(now_ms)
            if turn_in_ms == 0:
                return True
        self._caller.pausing.stand_in_line(turn_in_ms)
        return False

    def leave(self) -> None:
        """Nothing waits any more: the next one of the line is woken."""
        lane, turn = self._lane, self._turn
        self._lane = self._turn = None
        if lane is not None and turn is not None:
            lane.leave(turn)

    def give_up(self, now_us: int) -> None:
        """The request has waited for as long as it may: its client has the place when it comes again."""
        lane, turn, key = self._lane, self._turn, self._key
        if lane is not None and turn is not None and key is not None:
            lane.give_up(turn, key, now_us // 1000)
        self.leave()

    def let_pass(self) -> None:
        """Something else keeps the request back: where it is the first, the others go before it."""
        if self._lane is not None and self._turn is not None:
            line = self._lane.waiting_line()
            if line.is_first(self._turn):
                self.leave()

    def close(self) -> None:
        """Never wake again: with a method of the driver the two would be a cycle."""
        self.leave()
        self._wake = nobody

    def _append_wait(self, route: Route, size: int, now_us: int) -> None:
        """One row for a wait, and another one where the clock has stepped back: time counts by rows."""
        throttle_ms = route.lane.reject(size, now_us // 1000)
        self._caller.append_wait(route.memo, now_us, size, throttle_ms)

    def _left_ms(self, now_us: int) -> int:
        """How long the request may wait, counted from when its client can first have sent it.

        That is the arrival of its first byte; or, where the connection was not being read then, the
        answer before.
        """
        since_us = self.kept_us if self.taken_us == now_us else now_us
        if 0 <= now_us - self.resumed_us < _JUST_RESUMED_US and self._caller.answered_us:
            since_us = min(since_us, self._caller.answered_us)
        return max(0, WAIT_MS_MAX - max(0, now_us - since_us) // 1000)


def place_key(caller: Caller, route: Route) -> PlaceKey:
    """By what a client is known that comes back to a line."""
    return PlaceKey(caller.client_host, caller.principal.name, route.client_id or b"")
