"""The real clock; everything else is told the time."""

import time


class SystemClock:
    """The machine's clock (``kvota.model.clock.Clock``)."""

    def now_us(self) -> int:
        """Unix microseconds."""
        return time.time_ns() // 1000
