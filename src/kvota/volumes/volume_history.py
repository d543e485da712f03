"""How full one volume was at each look, and which looks were at the same device."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kvota.volumes.volume import Volume

# Two directories whose sizes never differ by more than this part are on one device; looks at them are moments apart.
_SAME_DEVICE_RATIO = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeHistory:
    """One volume over time.

    Attributes:
        observer: the gateway whose machine it is of; empty: a broker's, whoever has looked.
        broker_id: whose it is; None: of the gateway's own machine.
        log_dirs: that lie on it.
        device: of the file system, where it is known.
        ts_us: when the looks were, ascending, Unix microseconds.
        total_bytes: its size at each look.
        usable_bytes: what was available at each look.
    """

    observer: str
    broker_id: int | None
    log_dirs: tuple[str, ...]
    device: str | None
    ts_us: NDArray[np.int64]
    total_bytes: NDArray[np.int64]
    usable_bytes: NDArray[np.int64]

    @property
    def used_bytes(self) -> NDArray[np.float64]:
        """What was not available at each look, by whomever it was used."""
        return np.asarray(np.maximum(self.total_bytes - self.usable_bytes, 0), np.float64)

    @property
    def last(self) -> Volume:
        """The volume as it was last seen."""
        return Volume(
            broker_id=-1 if self.broker_id is None else self.broker_id,
            log_dir=self.log_dirs[0],
            total_bytes=int(self.total_bytes[-1]),
            available_bytes=int(self.usable_bytes[-1]),
            device=self.device,
        )


def one_per_device(histories: Iterable[VolumeHistory]) -> list[VolumeHistory]:
    """Put the log directories of one device together, by broker and first directory.

    Where brokers do not tell a directory's device, those of a broker that were always equally large and equally full
    are on one.
    """
    found: list[VolumeHistory] = []
    for history in sorted(histories, key=_order):
        place = next((i for i, other in enumerate(found) if _is_same(other, history)), None)
        if place is None:
            found.append(history)
        else:
            other = found[place]
            found[place] = replace(other, log_dirs=(*other.log_dirs, *history.log_dirs))
    return found


def together(histories: Sequence[VolumeHistory]) -> VolumeHistory:
    """Return the sum of several volumes, from when all of them are known."""
    begin = max(int(history.ts_us[0]) for history in histories)
    times = np.unique(np.concatenate([history.ts_us for history in histories]))
    times = times[times >= begin]

    def summed(name: str) -> NDArray[np.int64]:
        each = (np.interp(times, h.ts_us, getattr(h, name)) for h in histories)
        return np.asarray(np.rint(np.sum(list(each), axis=0)), np.int64)

    return VolumeHistory(
        observer=histories[0].observer,
        broker_id=None,
        log_dirs=tuple(log_dir for history in histories for log_dir in history.log_dirs),
        device=None,
        ts_us=times,
        total_bytes=summed("total_bytes"),
        usable_bytes=summed("usable_bytes"),
    )


def _order(history: VolumeHistory) -> tuple[str, int, tuple[str, ...]]:
    return (
        history.observer,
        -1 if history.broker_id is None else history.broker_id,
        history.log_dirs,
    )


def _is_same(one: VolumeHistory, other: VolumeHistory) -> bool:
    if (one.observer, one.broker_id) != (other.observer, other.broker_id):
        return False
    if one.device is not None and other.device is not None:
        return one.device == other.device
    begin = max(one.ts_us[0], other.ts_us[0])
    end = min(one.ts_us[-1], other.ts_us[-1])
    times = one.ts_us[(one.ts_us >= begin) & (one.ts_us <= end)]
    if not len(times):
        return False
    return all(
        np.allclose(
            np.interp(times, one.ts_us, ours),
            np.interp(times, other.ts_us, others),
            rtol=0.0,
            atol=_SAME_DEVICE_RATIO * float(one.total_bytes.max()),
        )
        for ours, others in (
            (one.total_bytes, other.total_bytes),
            (one.usable_bytes, other.usable_bytes),
        )
    )
