"""The few places that may ask for the time ask a clock."""

from typing import Protocol


class Clock(Protocol):
    """A clock tells the time; only ``kvota.app`` holds the real one."""

    def now_us(self) -> int:
        """Return Unix microseconds."""
        ...
