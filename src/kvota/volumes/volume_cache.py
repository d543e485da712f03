"""The volumes of brokers that are away for a moment go on to count.

A full broker that restarts must not release the producers that have filled it. Source: Strimzi's
``CachingVolumeObserver``.
"""

from collections.abc import Iterable

from kvota.volumes.volume import Volume


class VolumeCache:
    """Remembers each volume for ``validity_ms`` after it was last seen.

    The end is inclusive: what was seen exactly so long ago is forgotten. (``ThrottleFactor`` has it the
    other way round, as Strimzi has; tests pin both.)
    """

    def __init__(self, *, validity_ms: int) -> None:
        self._validity_ms = validity_ms
        self._seen: dict[tuple[int, str], tuple[Volume, int]] = {}
        self.evicted = 0

    def __len__(self) -> int:
        """How many volumes are remembered."""
        return len(self._seen)

    def observed(self, volumes: Iterable[Volume], now_ms: int) -> tuple[Volume, ...]:
        """Take what was seen; returns all that count now, those of absent brokers among them."""
        for volume in volumes:
            self._seen[volume.broker_id, volume.log_dir] = volume, now_ms
        self.forget(now_ms)
        return tuple(volume for volume, _ in self._seen.values())

    def forget(self, now_ms: int) -> None:
        """Forget what was not seen for too long; due after each look, also one that has failed."""
        over = [
            key for key, (_, seen_ms) in self._seen.items() if now_ms >= seen_ms + self._validity_ms
        ]
        for key in over:
            del self._seen[key]
        self.evicted += len(over)
