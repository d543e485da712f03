"""A counter while its limit lets nothing pass."""

from kvota.engine.arithmetic import BLOCKED_THROTTLE_MS
from kvota.engine.counter import Counter
from kvota.engine.debt_bucket import MUST_WAIT, DebtBucket


class BlockedCounter:
    """A counter whose limit is below the floor: it counts on, and lets nothing pass freely."""

    __slots__ = ("_counter", "_makes_wait")

    def __init__(self, counter: Counter, *, is_shut: bool) -> None:
        self._counter = counter
        self._makes_wait = is_shut or isinstance(counter, DebtBucket)

    def charge(self, value: float, now_ms: int, /) -> int:
        """Record, and throttle; or ``MUST_WAIT``, and nothing is changed."""
        if self._makes_wait:
            return MUST_WAIT
        return self.admit(value, now_ms)

    def admit(self, value: float, now_ms: int, /) -> int:
        """Record, and throttle."""
        self._counter.admit(value, now_ms)
        return BLOCKED_THROTTLE_MS

    def allowance(self, _now_ms: int, /) -> int:
        """Nothing."""
        return 0

    def refuse(self, value: float, now_ms: int, /) -> int:
        """Charge, and take back at once."""
        self._counter.refuse(value, now_ms)
        return BLOCKED_THROTTLE_MS

    def peek(self, _now_ms: int, /) -> int:
        """What a charge would be told."""
        return BLOCKED_THROTTLE_MS
