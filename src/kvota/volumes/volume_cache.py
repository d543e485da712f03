"""The volumes of brokers that are away for a moment go on to count.

A full broker that restarts must not release the producers that have filled it. Source: Strimzi's
``CachingVolumeObserver``.
"""

from collections.abc import Iterable

from kvota.volumes.volume import Volume

# More than any cluster has. A broker that invents names for its log directories fills no memory.
REMEMBERED_MAX = 20_000


class VolumeCache:
    """Remembers each volume for ``validity_ms`` after it was last seen.

    The end is inclusive: what was seen exactly so long ago is forgotten. (``ThrottleFactor`` has it the
    other way round, as Strimzi has; tests pin both.)

    Attributes:
        evictions: how often each volume was forgotten, by broker and log directory: 0 from its first sight on;
            of the last ``REMEMBERED_MAX``.
    """

    def __init__(self, *, validity_ms: int) -> None:
        self._validity_ms = validity_ms
        self._seen: dict[tuple[int, str], tuple[Volume, int]] = {}
        self.evictions: dict[tuple[int, str], int] = {}

    def __len__(self) -> int:
        """How many volumes are remembered."""
        return len(self._seen)

    def observed(self, volumes: Iterable[Volume], now_ms: int) -> tuple[Volume, ...]:
        """Take what was seen; returns all that count now, those of absent brokers among them."""
        for volume in volumes:
            key = volume.broker_id, volume.log_dir
            self._seen.pop(key, None)  # so that the one that was not seen for longest is the first
            self._seen[key] = volume, now_ms
            self.evictions[key] = self.evictions.pop(key, 0)
        return self.forget(now_ms)

    def forget(self, now_ms: int) -> tuple[Volume, ...]:
        """Forget what was not seen for too long; due after each look, also one that has failed.

        Returns all that count now, by broker and log directory.
        """
        over = [
            key for key, (_, seen_ms) in self._seen.items() if now_ms >= seen_ms + self._validity_ms
        ]
        too_many = max(len(self._seen) - REMEMBERED_MAX, len(over))
        over += list(self._seen)[len(over) : too_many]
        for key in over:
            del self._seen[key]
            self.evictions[key] += 1
        for key in list(self.evictions)[:-REMEMBERED_MAX]:
            del self.evictions[key]
        return tuple(self._seen[key][0] for key in sorted(self._seen))
