"""Simulated time: a heap of what is due, and the clock that is moved to it."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from kvota.testing.manual_clock import ManualClock

# No world needs nearly as many; one that does goes round in circles.
EVENTS_MAX = 400_000
# Sixty days. An acks=0 Produce waits in line for as long as a limit of next to nothing takes to pay for what was before it.
_TIME_US_MAX = 60 * 86_400 * 1_000_000


class Timer:
    """Something that is due; it can be taken back."""

    __slots__ = ("action", "at_us")

    def __init__(self, at_us: int, action: Callable[[], None]) -> None:
        self.at_us = at_us
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class Timeline:
    """Runs what is due in the order of time, and in the order of asking where times are equal."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.events = 0
        self._due: list[tuple[int, int, Timer]] = []
        self._turns = count()

    @property
    def now_us(self) -> int:
        """Monotonic microseconds."""
        return self.clock.monotonic_us()

    def after_us(self, us: int, action: Callable[[], None]) -> Timer:
        timer = Timer(self.now_us + us, action)
        heappush(self._due, (timer.at_us, next(self._turns), timer))
        return timer

    def run(self, after_each: Callable[[], None]) -> bool:
        """Until nothing is due; False: something still is, beyond the time that is waited for."""
        while self._due:
            at_us, _, timer = heappop(self._due)
            action = timer.action
            if action is None:
                continue
            if at_us > _TIME_US_MAX:
                return False
            self.clock.advance_us(at_us - self.now_us)
            self.events += 1
            assert self.events < EVENTS_MAX, "this world goes round in circles"
            action()
            after_each()
        return True
