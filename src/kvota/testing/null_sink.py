"""A sink for those who measure or test what stands before it."""

from itertools import count

from kvota.model.decision_sink import ChargeMemo


class NullSink:
    """Numbers the decisions and forgets them; implements ``DecisionSink``."""

    __slots__ = ("next_seq",)

    def __init__(self) -> None:
        self.next_seq = count().__next__

    def append(  # noqa: PLR0917  (the columns of one row; keywords cost time)
        self,
        memo: ChargeMemo,
        seq: int,
        ts_us: int,
        value: float,
        throttle_ms: int,
        upstream_throttle_ms: int,
        outcome: int,
        /,
    ) -> None:
        """Take one row and forget it."""
