"""How a bandwidth quota counts under the algorithm ``token_bucket``."""

from dataclasses import dataclass

from kvota.model.quota_window import QuotaWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketSettings:
    """Both in time: so long at the limit.

    Attributes:
        burst_ms: what a client that was silent may use at once.
        debt_max_ms: a Produce that comes while more is owed waits for its turn.

    Raises:
        ValueError: a burst below 1 ms, a debt below 0.
    """

    burst_ms: int = 1_000
    debt_max_ms: int = 15_000

    def __post_init__(self) -> None:
        """Refuse what cannot be counted with."""
        if self.burst_ms < 1:
            msg = f"burst_ms: {self.burst_ms} is below 1; 1000 is usual"
            raise ValueError(msg)
        if self.debt_max_ms < 0:
            msg = f"debt_max_ms: {self.debt_max_ms} is below 0; 15000 is usual"
            raise ValueError(msg)

    @property
    def window(self) -> QuotaWindow:
        """As the record says it: one sample of the burst's length."""
        return QuotaWindow(1, self.burst_ms)
