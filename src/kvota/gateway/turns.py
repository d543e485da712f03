"""Who has had a share of the loop goes on when others have had theirs."""

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

# Of one round of the loop; then whatever has arrived meanwhile has its turn.
_ROUND_S = 0.005


class Turns:
    """What is still to be done for connections that want more than one step, one after the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Callable[[], None], float]] = deque()
        self._is_due = False

    def join(self, go_on: Callable[[], None], *, brings_s: float = 0.0) -> None:
        """Call ``go_on`` in another round of the loop, behind all who have joined before.

        ``brings_s``: so long it is likely to take what comes of it later in that round, e.g. where a socket
        is read on.
        """
        self._waiting.append((go_on, brings_s))
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._begin)

    def later(self, delay_s: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        """Call this so much later, unless it is cancelled."""
        return self._loop.call_later(delay_s, call)

    def _begin(self) -> None:
        # The loop's own time stands still within a round.
        end = monotonic() + _ROUND_S
        waiting = self._waiting
        try:
            for _ in range(len(waiting)):  # who joins meanwhile comes in the next round
                go_on, brings_s = waiting.popleft()
                go_on()
                end -= brings_s
                if monotonic() >= end:
                    break
        finally:
            self._is_due = bool(waiting)
            if waiting:
                self._loop.call_soon(self._begin)
