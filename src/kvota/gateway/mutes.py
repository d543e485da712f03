"""How many mutes have ended, and how late: what timers gave away is what a client may catch up."""

from dataclasses import dataclass


@dataclass(slots=True)
class MuteTally:
    """Counts the mutes of all connections of a gateway."""

    ended: int = 0
    late_ms_max: float = 0.0

    def add(self, late_ms: float) -> None:
        """A mute is over, so much later than it should have been."""
        self.ended += 1
        self.late_ms_max = max(self.late_ms_max, late_ms)
