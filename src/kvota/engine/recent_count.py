"""How often something has happened lately, in a few whole samples and the running one, as Kafka measures rates."""

from kvota.model.quota_window import QuotaWindow


class RecentCount:
    """Counts what is rare, for whoever looks; it decides nothing.

    >>> recent = RecentCount(QuotaWindow(11, 1_000))
    >>> for now_ms in range(0, 10_000, 500):
    ...     recent.add(now_ms)
    >>> recent.peek_rate(10_000), recent.peek_rate(15_000), recent.peek_rate(30_000)
    (2.0, 1.0, 0.0)
    """

    __slots__ = ("_counts", "_window")

    def __init__(self, window: QuotaWindow) -> None:
        self._window = window
        # By the number of the sample; empty until something happens.
        self._counts: dict[int, int] = {}

    def add(self, now_ms: int, count: int = 1) -> None:
        """It has happened now; what is too old goes, and what a clock that went back has left in the future."""
        sample = now_ms // self._window.sample_ms
        counts = self._counts
        if sample not in counts:
            oldest = sample - self._window.samples
            for other in [other for other in counts if not oldest < other < sample]:
                del counts[other]
        counts[sample] = counts.get(sample, 0) + count

    def peek(self, now_ms: int) -> int:
        """How often it has happened in the whole samples and the running one; changes nothing."""
        newest = now_ms // self._window.sample_ms
        oldest = newest - self._window.samples
        return sum(count for sample, count in self._counts.items() if oldest < sample <= newest)

    def peek_rate(self, now_ms: int) -> float:
        """The same per second; changes nothing."""
        whole_ms = (self._window.samples - 1) * self._window.sample_ms
        return self.peek(now_ms) * 1000 / (whole_ms + now_ms % self._window.sample_ms)
