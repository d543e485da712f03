"""What the gateway has learnt about the cluster by asking on a caller's connection."""


class ClusterFacts:
    """Shared by all connections; a fact is asked for again after ``FRESH_MS``."""

    # num.partitions only changes with a broker's restart.
    FRESH_MS = 600_000

    def __init__(self) -> None:
        self._default_partitions: int | None = None
        self._asked_ms: int | None = None

    def default_partitions(self, now_ms: int) -> int | None:
        """The cluster's num.partitions, None where it is not known."""
        return self._default_partitions if self._fresh(now_ms) else None

    def should_ask(self, now_ms: int) -> bool:
        """True when nobody has been told lately."""
        return not self._fresh(now_ms)

    def learn_default_partitions(self, partitions: int | None, now_ms: int) -> None:
        """Keep what a broker has told; None: it would not tell this caller, perhaps another one."""
        if partitions is not None:
            self._default_partitions = partitions
            self._asked_ms = now_ms

    def _fresh(self, now_ms: int) -> bool:
        return self._asked_ms is not None and abs(now_ms - self._asked_ms) < self.FRESH_MS
