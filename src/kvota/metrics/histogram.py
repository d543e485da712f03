"""A histogram that costs what a sorted list of six numbers costs to look into."""

from bisect import bisect_left
from dataclasses import dataclass, field

# A millisecond is a timer's own grain; a second is trouble.
BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


@dataclass(slots=True)
class Histogram:
    """Times in s, by how long they were.

    Attributes:
        counts: how many lay up to each bound and above the one before; the last are above all.
        sum_s: of all.
        max_s: the longest.
    """

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    sum_s: float = 0.0
    max_s: float = 0.0

    def add(self, time_s: float) -> None:
        """One more; one below 0 counts as 0."""
        time_s = max(time_s, 0.0)
        self.counts[bisect_left(BOUNDS_S, time_s)] += 1
        self.sum_s += time_s
        self.max_s = max(self.max_s, time_s)

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(self.counts)

    def copy(self) -> "Histogram":
        """As it is now."""
        return Histogram(self.counts[:], self.sum_s, self.max_s)
