"""Reads the real clock; everything else gets the time as an argument."""

import time


class SystemClock:
    """Reads the machine's clock (``kvota.model.clock.Clock``)."""

    def now_us(self) -> int:
        """Return Unix time in microseconds."""
        return time.time_ns() // 1000
