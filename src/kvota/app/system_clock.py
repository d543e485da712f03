"""The real clock is here; everything else is told the time."""

import time


class SystemClock:
    """This is the machine's clock (``kvota.model.clock.Clock``)."""

    def now_us(self) -> int:
        """Return Unix microseconds."""
        return time.time_ns() // 1000
