"""A Produce that comes while its counter owes too much waits in the counter's line for its turn.

It is not charged and not forwarded, and nothing more is read. In line are all connections of a counter,
first come first served, so a reconnect or one more connection gains nothing (``engine.debt_bucket``).
"""

from collections.abc import Callable

from kvota.engine import Lane, Turn
from kvota.model.decision_sink import NO_ANSWER, REJECTED
from kvota.session.caller import Caller
from kvota.session.route import Route

# Clients give a request up after 30 s (``request.timeout.ms``): what is admitted later is sent again.
WAIT_MS_MAX = 25_000
# Bytes that come so soon after a pause may have been in the socket for all of it.
_JUST_RESUMED_US = 100_000


class LinePlace:
    """The place of one connection, while it has one.

    Attributes:
        resumed_us: when the connection was last let go on.
    """

    __slots__ = ("_caller", "_lane", "_turn", "_wake", "resumed_us")

    def __init__(self, caller: Caller, wake: Callable[[], None]) -> None:
        self._caller = caller
        self._wake = wake
        self._lane: Lane | None = None
        self._turn: Turn | None = None
        self.resumed_us = 0

    def admit(self, route: Route, size: int, since_us: int | None, now_us: int) -> int | None:
        """Charge a request if its turn has come: its throttle in ms; None: it waits.

        Args:
            route: of the request.
            size: announced.
            since_us: when its first byte came, or the last byte before the connection was paused;
                None: no answer is awaited, so it waits for ever.
            now_us: when.
        """
        lane, now_ms = route.lane, now_us // 1000
        if self._lane is not lane:
            self.leave()
        if self._turn is None:
            self._lane = lane
            self._turn = lane.join(self._wake)
            self._append_wait(route, size, now_us)
            waited_ms = None if since_us is None else self._waited_ms(since_us, now_us)
            self._caller.pausing.give_up_waiting_in(
                None if waited_ms is None else max(0, WAIT_MS_MAX - waited_ms)
            )
        elif lane.went_back(now_ms):
            self._append_wait(route, size, now_us)
        turn_in_ms: int | None = None
        if lane.waiting_line().is_first(self._turn):
            turn_in_ms = lane.turn_in_ms(now_ms)
            if turn_in_ms == 0:
                throttle_ms = lane.admit(size, now_ms)
                self.leave()
                return throttle_ms
        self._caller.pausing.stand_in_line(turn_in_ms)
        return None

    def leave(self) -> None:
        """Nothing waits any more: the next one of the line is woken."""
        lane, turn = self._lane, self._turn
        self._lane = self._turn = None
        if lane is not None and turn is not None:
            lane.leave(turn)

    def leave_outdated(self, lane: Lane) -> None:
        """The counters have changed: a place in the line of another one is worth nothing."""
        if self._lane is not None and (self._lane is not lane or not lane.makes_wait):
            self.leave()

    def close(self) -> None:
        """Never wake again: with a method of the driver the two would be a cycle."""
        self.leave()
        self._wake = _nobody

    def _append_wait(self, route: Route, size: int, now_us: int) -> None:
        """One row for a wait, and another one where the clock has stepped back: time counts by rows."""
        throttle_ms = route.lane.reject(now_us // 1000)
        sink = self._caller.shared.sink
        sink.append(route.memo, sink.next_seq(), now_us, size, throttle_ms, NO_ANSWER, REJECTED)

    def _waited_ms(self, since_us: int, now_us: int) -> int:
        """How long ago the client can first have sent the request."""
        if since_us - self.resumed_us < _JUST_RESUMED_US:
            since_us = min(since_us, self._caller.answered_us or since_us)
        return max(0, now_us - since_us) // 1000


def _nobody() -> None:
    """Woken after the end of the connection."""
