"""When volumes are too full, and how much may then still be produced.

Sources: Strimzi's quota plug-in (its releases 0.1.0 to 0.4.0) and its proposals. The line between soft
and hard of its first generation is kept for volumes: it is continuous at both ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kvota.volumes.volume import Volume


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a limit says of an observation.

    Attributes:
        factor: 0.0 (nothing may be produced) to 1.0 (as without a limit).
        breached: the volumes that are at or below one of their limits, the most severe first.
    """

    factor: float
    breached: tuple[Volume, ...] = ()

    @property
    def most_severe(self) -> Volume | None:
        """The volume that decides; all observers of the same volumes name the same one."""
        return self.breached[0] if self.breached else None


class VolumeLimit(Protocol):
    """Judges volumes; also the way to bring in an arithmetic of one's own."""

    def judge(self, volumes: Sequence[Volume]) -> Verdict:
        """Say how much may be produced while the volumes are as full as this."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """So much must stay available on each volume: bytes, or a part of the volume (0.0 to 1.0)."""

    available_bytes: int | None = None
    available_ratio: float | None = None

    def is_breached_by(self, volume: Volume) -> bool:
        """True at the threshold, too. A volume without a size breaches every ratio."""
        if self.available_bytes is not None:
            return volume.available_bytes <= self.available_bytes
        assert self.available_ratio is not None, "a threshold has a value"
        return volume.available_ratio <= self.available_ratio

    def bytes_of(self, volume: Volume) -> float:
        """The threshold in bytes of this volume."""
        if self.available_bytes is not None:
            return self.available_bytes
        assert self.available_ratio is not None, "a threshold has a value"
        return self.available_ratio * volume.total_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PerVolumeLimit:
    """Each volume by itself; the fullest decides for all.

    Below ``soft`` the factor falls in a line, at ``hard`` it is 0. Without ``soft`` there is no line.

    >>> limit = PerVolumeLimit(
    ...     soft=Threshold(available_ratio=0.05), hard=Threshold(available_ratio=0.01)
    ... )
    >>> limit.factor(Volume(broker_id=1, log_dir="/d", total_bytes=100_000, available_bytes=2_000))
    0.25
    """

    hard: Threshold
    soft: Threshold | None = None

    def factor(self, volume: Volume) -> float:
        """The factor of one volume, 0.0 to 1.0."""
        if self.hard.is_breached_by(volume):
            return 0.0
        if self.soft is None or not self.soft.is_breached_by(volume):
            return 1.0
        hard_bytes, soft_bytes = self.hard.bytes_of(volume), self.soft.bytes_of(volume)
        if soft_bytes <= hard_bytes:  # bytes beside a ratio, on a small disk: there is no band
            return 1.0
        over = (volume.available_bytes - hard_bytes) / (soft_bytes - hard_bytes)
        return min(max(over, 0.0), 1.0)

    def judge(self, volumes: Sequence[Volume]) -> Verdict:
        """The least factor of all volumes; 1.0 of none."""
        factors = [(self.factor(volume), volume) for volume in volumes]
        breached = sorted(
            (
                (factor, volume.available_ratio, volume.broker_id, volume.log_dir, volume)
                for factor, volume in factors
                if self._is_breached_by(volume)
            ),
            key=lambda found: found[:4],
        )
        return Verdict(
            factor=min((factor for factor, _ in factors), default=1.0),
            breached=tuple(found[4] for found in breached),
        )

    def _is_breached_by(self, volume: Volume) -> bool:
        if self.hard.is_breached_by(volume):
            return True
        return self.soft is not None and self.soft.is_breached_by(volume)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummedUsedLimit:
    """Used bytes of all volumes together (the first generation, for the disks of one machine).

    The band is open at both ends; ``hard`` is looked at first, so ``soft`` above it never throttles.

    >>> limit = SummedUsedLimit(soft_bytes=800, hard_bytes=900)
    >>> [limit.factor(used) for used in (800, 801, 850, 899, 900)]
    [1.0, 0.99, 0.5, 0.01, 0.0]
    """

    soft_bytes: int
    hard_bytes: int

    def factor(self, used_bytes: int) -> float:
        """The factor while so much is used, 0.0 to 1.0."""
        if used_bytes >= self.hard_bytes:
            return 0.0
        if used_bytes <= self.soft_bytes:
            return 1.0
        # One division: 1 - (used - soft) / (hard - soft) would be off in the last digit.
        return (self.hard_bytes - used_bytes) / (self.hard_bytes - self.soft_bytes)

    def judge(self, volumes: Sequence[Volume]) -> Verdict:
        """The factor of the sum; where it is below 1.0 every volume is named, the fullest first."""
        factor = self.factor(sum(volume.used_bytes for volume in volumes))
        if factor == 1.0:
            return Verdict(factor=factor)
        by_fullness = sorted(
            volumes, key=lambda volume: (volume.available_ratio, volume.broker_id, volume.log_dir)
        )
        return Verdict(factor=factor, breached=tuple(by_fullness))
