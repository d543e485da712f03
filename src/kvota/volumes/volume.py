"""One disk under a broker's log directory."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A log directory's file system, as it was when it was observed.

    >>> volume = Volume(broker_id=1, log_dir="/data", total_bytes=100, available_bytes=25)
    >>> volume.used_bytes, volume.available_ratio
    (75, 0.25)
    """

    broker_id: int
    log_dir: str
    total_bytes: int
    available_bytes: int  # to an unprivileged user: the root's reserve counts as used
    device: str | None = None  # of the file system, where it is known

    @property
    def used_bytes(self) -> int:
        """What is not available, by whomever it is used; 0 where more is said to be available than there is."""
        return max(self.total_bytes - self.available_bytes, 0)

    @property
    def available_ratio(self) -> float:
        """The available part, 0.0 to 1.0; 0.0 of a volume without a size."""
        return min(self.available_bytes / self.total_bytes, 1.0) if self.total_bytes > 0 else 0.0
