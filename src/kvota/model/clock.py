"""Where the time comes from, for the few places that may ask."""

from typing import Protocol


class Clock(Protocol):
    """A clock; only ``kvota.app`` holds the real one."""

    def now_us(self) -> int:
        """Unix microseconds."""
        ...
