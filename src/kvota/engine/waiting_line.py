"""Requests that wait for one counter, first come first served."""

from bisect import bisect_left
from collections.abc import Callable

from kvota.engine.kept_places import KeptPlaces, PlaceKey


class Turn:
    """One place in a line; its holder keeps it to ask and to leave.

    Attributes:
        ticket: unique within the line; whoever has a smaller one is before it.
    """

    __slots__ = ("ticket", "wake")

    def __init__(self, ticket: int, wake: Callable[[], None]) -> None:
        self.ticket = ticket
        self.wake = wake


class WaitingLine:
    """First come, first served. Whoever is woken looks for itself whether it may go on.

    Who has to leave before its turn may leave its place behind (``give_up``): the next one that joins
    with the same key has it. Nobody waits for those who have left: first is the first that is here.

    A ``wake`` may join or leave at once, this turn or another; it is never called from within
    another one's ``wake`` of the same line, so a long line that leaves at once does not nest.

    >>> line, woken = WaitingLine(), []
    >>> first, second = line.join(lambda: woken.append(1)), line.join(lambda: woken.append(2))
    >>> line.leave(first)
    >>> woken, line.is_first(second), len(line)
    ([2], True, 1)
    """

    __slots__ = ("_head_changed", "_is_waking", "_kept", "_next_ticket", "_turns", "_wakes_all")

    def __init__(self) -> None:
        self._turns: list[Turn] = []  # by ticket; some thousands are moved in a few µs
        self._next_ticket = 0
        self._kept = KeptPlaces()
        self._is_waking = False
        # What is still to do: the first is another one and does not know; all have to look again.
        self._head_changed = False
        self._wakes_all = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._turns)

    @property
    def kept(self) -> int:
        """How many places are kept for those who come back, some of which may be over."""
        return len(self._kept)

    def join(self, wake: Callable[[], None], key: PlaceKey | None = None, now_ms: int = 0) -> Turn:
        """A new turn: at the oldest place that is kept for ``key``, else at the end.

        ``wake`` is called when others' leaving makes it the first.
        """
        ticket = None if key is None else self._kept.take(key, now_ms)
        if ticket is None:
            ticket = self._next_ticket
            self._next_ticket += 1
        turn = Turn(ticket, wake)
        at = bisect_left(self._turns, ticket, key=_ticket_of)
        self._turns.insert(at, turn)
        if not at:
            self._head_changed = False  # who joins as the first can see it
        return turn

    def is_first(self, turn: Turn) -> bool:
        """True when nobody is before it; false, too, for one that has left."""
        return bool(self._turns) and self._turns[0] is turn

    def leave(self, turn: Turn) -> None:
        """Give the turn up; where it was the first, the next one is woken. Leaving twice is once."""
        at = self._place_of(turn)
        if at is None:
            return
        del self._turns[at]
        if not at:
            self._head_changed = True
            self._wake()

    def give_up(self, turn: Turn, key: PlaceKey, now_ms: int) -> None:
        """Leave before the turn has come, and keep its place for who comes back with this key."""
        if self._place_of(turn) is not None:
            self._kept.keep(turn.ticket, key, now_ms)
            self.leave(turn)

    def wake_first(self) -> None:
        """Wake the first, if anybody waits: its turn may come sooner."""
        self._head_changed = bool(self._turns)
        self._wake()

    def wake_all(self) -> None:
        """Wake everybody who waits now, each once and in order: what they wait for has changed."""
        self._wakes_all = True
        self._wake()

    def _place_of(self, turn: Turn) -> int | None:
        at = bisect_left(self._turns, turn.ticket, key=_ticket_of)
        return at if at < len(self._turns) and self._turns[at] is turn else None

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
                    turns = (self._turns[0],)
                for turn in turns:
                    self._wake_one(turn)
        finally:
            self._is_waking = self._head_changed = self._wakes_all = False

    def _wake_one(self, turn: Turn) -> None:
        if self._place_of(turn) is not None:
            if self.is_first(turn):
                self._head_changed = False
            turn.wake()


def _ticket_of(turn: Turn) -> int:
    return turn.ticket
