"""When a volume reaches a limit if it goes on to fill as it does now."""

from dataclasses import dataclass

from kvota.volumes.limit import Threshold
from kvota.volumes.volume import Volume


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How fast one volume fills, from two looks at it."""

    volume: Volume  # as it was last seen
    bytes_per_s: float  # below 0: it empties

    @classmethod
    def between(cls, before: Volume, now: Volume, *, elapsed_s: float) -> "Growth":
        """The mean between two looks, ``elapsed_s`` (above 0) apart."""
        return cls(
            volume=now,
            bytes_per_s=(before.available_bytes - now.available_bytes) / elapsed_s,
        )

    def seconds_until(self, threshold: Threshold) -> float | None:
        """Until the threshold is breached; 0.0 where it is; None where it never will be like this.

        >>> volume = Volume(broker_id=1, log_dir="/d", total_bytes=1000, available_bytes=500)
        >>> Growth(volume=volume, bytes_per_s=10.0).seconds_until(Threshold(available_bytes=200))
        30.0
        """
        if threshold.is_breached_by(self.volume):
            return 0.0
        if self.bytes_per_s <= 0:
            return None
        return (self.volume.available_bytes - threshold.bytes_of(self.volume)) / self.bytes_per_s
