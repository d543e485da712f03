"""Reads the real clocks; everything else gets the time as an argument."""

import time


class SystemClock:
    """Reads the machine's clock (``kvota.model.clock.Clock``)."""

    def now_us(self) -> int:
        """Return Unix time in microseconds."""
        return time.time_ns() // 1000


# Of how long the machine has been up the one that goes on while it sleeps; only Linux has it.
_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed_ms() -> int:
    """Return milliseconds since some moment: for durations, because nobody can set this clock."""
    return time.clock_gettime_ns(_UPTIME) // 1_000_000
