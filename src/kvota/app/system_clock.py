"""Reads the real clock; everything else gets the time as an argument."""

import time


class SystemClock:
    """Reads the machine's clocks (``kvota.model.clock.Clock``)."""

    def now_us(self) -> int:
        """Return Unix time in microseconds."""
        return time.time_ns() // 1000

    def monotonic_ms(self) -> int:
        """Return milliseconds that never go back."""
        return time.monotonic_ns() // 1_000_000
