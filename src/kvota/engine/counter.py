"""What every algorithm can be asked."""

from typing import Protocol

from kvota.model.quota_window import QuotaWindow


class Counter(Protocol):
    """An algorithm with its contents; ``SampledRate`` and ``BucketCounter`` are such."""

    @property
    def last_ms(self) -> int:
        """When something was last recorded, else when it was born."""
        ...

    @property
    def window_ms(self) -> int:
        """How long a window is in which nothing was recorded."""
        ...

    def configure(self, window: QuotaWindow, limit: float | None) -> None:
        """Replace window and limit; the contents stay, unless the window is another one."""
        ...

    def is_as_new(self, now_ms: int) -> bool:
        """True when no decision from now on would differ from that of a new counter."""
        ...

    def charge(self, value: float, now_ms: int, /) -> int:
        """Record, then check; a debt bucket may answer ``MUST_WAIT``."""
        ...

    def admit(self, value: float, now_ms: int, /) -> int:
        """Record, then check, whoever waits: an answer that is here, or a request whose turn it is."""
        ...

    def allowance(self, now_ms: int, /) -> int:
        """Whole units that a charge may take before it violates."""
        ...

    def refuse(self, value: float, now_ms: int, /) -> int:
        """Charge, and take back at once."""
        ...

    def peek(self, now_ms: int, /) -> int:
        """The throttle that a charge of nothing would be told; changes nothing."""
        ...
