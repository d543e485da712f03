"""Requests that wait for one counter, first come first served."""

from collections import OrderedDict
from collections.abc import Callable


class Turn:
    """One place in a line; its holder keeps it to ask and to leave."""

    __slots__ = ("wake",)

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake


class WaitingLine:
    """First come, first served. Whoever is woken looks for itself whether it may go on.

    A ``wake`` may join or leave at once, this turn or another; it is never called from within
    another one's ``wake`` of the same line, so a long line that leaves at once does not nest.

    >>> line, woken = WaitingLine(), []
    >>> first, second = line.join(lambda: woken.append(1)), line.join(lambda: woken.append(2))
    >>> line.leave(first)
    >>> woken, line.is_first(second), len(line)
    ([2], True, 1)
    """

    __slots__ = ("_head_changed", "_is_waking", "_turns", "_wakes_all")

    def __init__(self) -> None:
        # Not a plain dict: finding its first key costs a walk over all that have left.
        self._turns: OrderedDict[Turn, None] = OrderedDict()
        self._is_waking = False
        # What is still to do: the first is another one and does not know; all have to look again.
        self._head_changed = False
        self._wakes_all = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._turns)

    def join(self, wake: Callable[[], None]) -> Turn:
        """A new turn, at the end; ``wake`` is called when others' leaving makes it the first."""
        if not self._turns:
            self._head_changed = False  # who joins an empty line is the first, and can see it
        turn = Turn(wake)
        self._turns[turn] = None
        return turn

    def is_first(self, turn: Turn) -> bool:
        """True when nobody is before it; false, too, for one that has left."""
        return bool(self._turns) and next(iter(self._turns)) is turn

    def leave(self, turn: Turn) -> None:
        """Give the turn up; where it was the first, the next one is woken. Leaving twice is once."""
        if self.is_first(turn):
            del self._turns[turn]
            self._head_changed = True
            self._wake()
        else:
            self._turns.pop(turn, None)

    def wake_first(self) -> None:
        """Wake the first, if anybody waits: there may be what it waits for."""
        self._head_changed = bool(self._turns)
        self._wake()

    def wake_all(self) -> None:
        """Wake everybody who waits now, each once and in order: what they wait for has changed."""
        self._wakes_all = True
        self._wake()

    def _wake(self) -> None:
        if self._is_waking:
            return  # the loop below goes on with it
        self._is_waking = True
        try:
            while self._turns and (self._wakes_all or self._head_changed):
                if self._wakes_all:
                    self._wakes_all = False
                    turns = tuple(self._turns)
                else:
                    turns = (next(iter(self._turns)),)
                for turn in turns:
                    self._wake_one(turn)
        finally:
            self._is_waking = self._head_changed = self._wakes_all = False

    def _wake_one(self, turn: Turn) -> None:
        if turn in self._turns:
            if self.is_first(turn):
                self._head_changed = False
            turn.wake()
