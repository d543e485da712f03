"""Those of one user who wait for room in a budget: whose turn it is among them."""

from collections import OrderedDict
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, TypeVar

Share = TypeVar("Share")


class BudgetLine(Generic[Share]):
    """The small ones go first, unless one has been passed for long enough.

    Args:
        passed_bytes: that were ever let in, of all users.

    Attributes:
        served_before_bytes: the same when this user came or was last let in.
    """

    __slots__ = ("_heap", "_passed_bytes", "_places", "_turns", "served_before_bytes")

    def __init__(self, passed_bytes: int) -> None:
        self._heap: list[tuple[int, int, Share]] = []
        # As they came: size, turn, and what had been let in of this line before.
        self._places: OrderedDict[Share, tuple[int, int, int]] = OrderedDict()
        self._passed_bytes = 0
        self._turns = count()
        self.served_before_bytes = passed_bytes

    def __len__(self) -> int:
        return len(self._places)

    def join(self, share: Share, size_bytes: int) -> None:
        """Wait behind the others."""
        turn = next(self._turns)
        self._places[share] = size_bytes, turn, self._passed_bytes
        heappush(self._heap, (size_bytes, turn, share))

    def leave(self, share: Share) -> None:
        """Wait no more."""
        _, turn, _ = self._places.pop(share)
        if self._heap[0][1] == turn:
            heappop(self._heap)
        else:
            self._heap = [entry for entry in self._heap if entry[1] != turn]
            heapify(self._heap)

    def let_in(self, size_bytes: int) -> None:
        """One of them has been: those who came before it were passed."""
        self._passed_bytes += size_bytes

    def next(self, limit_bytes: int) -> tuple[int, Share]:
        """Whose turn it is, and its size: the smallest, or the oldest once so many bytes have passed it."""
        oldest, (size_bytes, _, before_bytes) = next(iter(self._places.items()))
        if self._passed_bytes - before_bytes >= limit_bytes:
            return size_bytes, oldest
        size_bytes, _, smallest = self._heap[0]
        return size_bytes, smallest
