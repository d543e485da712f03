"""The real clock; everything else is told the time."""

import time


class SystemClock:
    """The machine's clocks (``kvota.model.clock.Clock``)."""

    def now_us(self) -> int:
        """Unix microseconds."""
        return time.time_ns() // 1000

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back."""
        return time.monotonic_ns() // 1_000_000
