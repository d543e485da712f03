"""How many announced bytes may be on their way to the brokers at once.

A broker allocates the announced size of a request before it has read it, so a few connections that
announce much and send little can exhaust its heap. Only frames that have not arrived whole count.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count


class AnnouncedBudget:
    """A budget of bytes shared by all connections.

    Who finds it spent is woken when there is room, small frames first: a few that announce as much
    as can be announced do not keep out the many that do not.
    """

    def __init__(self, *, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._turns = count()

    @property
    def used_bytes(self) -> int:
        """Announced bytes of frames that are being relayed."""
        return self._used_bytes

    @property
    def is_waited_for(self) -> bool:
        """True while somebody has found it spent and not been woken yet."""
        return bool(self._waiting)

    def take(self, size_bytes: int) -> bool:
        """Take if it fits. A frame larger than the whole budget may pass alone."""
        if self._used_bytes and self._used_bytes + size_bytes > self._limit_bytes:
            return False
        self._used_bytes += size_bytes
        return True

    def add(self, size_bytes: int) -> None:
        """Take what is on its way already."""
        self._used_bytes += size_bytes

    def wait(self, size_bytes: int, wake: Callable[[], None]) -> None:
        """Call ``wake`` once there is room for so much; it must try ``take`` again."""
        heappush(self._waiting, (size_bytes, next(self._turns), wake))

    def give_back(self, size_bytes: int) -> None:
        """Give back what was taken, and wake those for whom there is room now.

        One who is woken and does not take must give back 0, so that the next is woken.
        """
        self._used_bytes -= size_bytes
        expected_bytes = self._used_bytes
        while self._waiting:
            next_bytes = self._waiting[0][0]
            if expected_bytes and expected_bytes + next_bytes > self._limit_bytes:
                return
            expected_bytes += next_bytes
            heappop(self._waiting)[2]()


class AnnouncedBudgets:
    """One budget for each broker: it is the broker's memory, and one that hangs holds up no other."""

    def __init__(self, *, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._of: dict[tuple[str, int], AnnouncedBudget] = {}

    def of(self, address: tuple[str, int]) -> AnnouncedBudget:
        """The budget of the broker at this address."""
        budget = self._of.get(address)
        if budget is None:
            budget = self._of[address] = AnnouncedBudget(limit_bytes=self._limit_bytes)
        return budget

    @property
    def used_bytes(self) -> int:
        """Announced bytes of frames that are being relayed to any broker."""
        return sum(budget.used_bytes for budget in self._of.values())


class BudgetShare:
    """What one connection takes of the budget of its broker, for one frame at a time.

    Attributes:
        taken_bytes: for the frame that has begun and not ended.
    """

    __slots__ = ("_budget", "_wake", "taken_bytes")

    def __init__(self, budget: AnnouncedBudget, wake: Callable[[], None]) -> None:
        self._budget = budget
        self._wake = wake
        self.taken_bytes = 0

    @property
    def keeps_others_waiting(self) -> bool:
        """True while it takes room that others wait for."""
        return self.taken_bytes > 0 and self._budget.is_waited_for

    def take(self, size_bytes: int) -> bool:
        """Take room for a frame; False: there is none, and ``wake`` is called once there may be."""
        if self._budget.take(size_bytes):
            self.taken_bytes = size_bytes
            return True
        self._budget.wait(size_bytes, self._wake)
        return False

    def give_back(self) -> None:
        """The frame has ended, or waits for something else."""
        taken_bytes, self.taken_bytes = self.taken_bytes, 0
        if taken_bytes:
            self._budget.give_back(taken_bytes)

    def pass_on(self) -> None:
        """A connection that was woken and has no use for the room lets the next one know."""
        if not self.taken_bytes:
            self._budget.give_back(0)

    def move(self, budget: AnnouncedBudget) -> None:
        """Another broker is reached: it is that one's memory."""
        taken_bytes = self.taken_bytes
        self.give_back()
        self._budget = budget
        self._budget.add(taken_bytes)
        self.taken_bytes = taken_bytes

    def close(self) -> None:
        """Never wake again: with a method of the driver the two would be a cycle."""
        self._wake = _nobody


def _nobody() -> None:
    """Woken after the end of the connection."""
