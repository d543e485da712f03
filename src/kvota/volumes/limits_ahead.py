"""When each volume reaches each of its limits: one row for each of them, in the order in which they are reached."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvota.volumes.forecast import HOUR_US, Reached, VolumeForecast, forecast_volume
from kvota.volumes.limit import PerVolumeLimit, SummedUsedLimit, VolumeLimit
from kvota.volumes.volume_history import VolumeHistory, together

# A volume that has not been seen for so long, while others were, is no one's any more.
_GONE_H = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitAhead:
    """One limit of one volume.

    Attributes:
        history: the volume.
        forecast: of it.
        kind: ``soft`` or ``hard`` as the settings have them; ``full``: nothing is left.
        limit_bytes: so much is used when it is reached.
        reached: when.
    """

    history: VolumeHistory
    forecast: VolumeForecast
    kind: str
    limit_bytes: float
    reached: Reached


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is ahead of all volumes.

    Attributes:
        rows: a row for each limit of each volume, what is reached first before all others.
        gone: volumes that were not seen in the last day of the record.
        seen_once: volumes of which there is but one look.
    """

    rows: Sequence[LimitAhead]
    gone: Sequence[VolumeHistory]
    seen_once: Sequence[VolumeHistory]


def limits_ahead(
    histories: Sequence[VolumeHistory], limit: VolumeLimit | None, *, horizon_h: int
) -> Ahead:
    """Forecast every volume.

    Args:
        histories: of them, each device once.
        limit: as the settings of the volumes have it; None: only that they are full.
        horizon_h: so many hours ahead.
    """
    newest = max((int(history.ts_us[-1]) for history in histories), default=0)
    gone = [each for each in histories if newest - each.ts_us[-1] > _GONE_H * HOUR_US]
    there = [each for each in histories if newest - each.ts_us[-1] <= _GONE_H * HOUR_US]
    rows: list[LimitAhead] = []
    once = []
    for history in there:
        forecast = forecast_volume(history.ts_us, history.used_bytes, horizon_h=horizon_h)
        if forecast is None:
            once.append(history)
            continue
        rows += _rows(history, forecast, [*_of_volume(history, limit), ("full", _size(history))])
    if isinstance(limit, SummedUsedLimit):
        for volumes in _by_machine(there):
            history = together(volumes)
            forecast = forecast_volume(history.ts_us, history.used_bytes, horizon_h=horizon_h)
            if forecast is not None:
                rows += _rows(history, forecast, _of_sum(history, limit))
    return Ahead(sorted(rows, key=_order), gone, once)


def _rows(
    history: VolumeHistory, forecast: VolumeForecast, limits: Sequence[tuple[str, float]]
) -> list[LimitAhead]:
    return [
        LimitAhead(
            history=history,
            forecast=forecast,
            kind=kind,
            limit_bytes=limit_bytes,
            reached=forecast.reached(limit_bytes),
        )
        for kind, limit_bytes in limits
    ]


def _of_volume(history: VolumeHistory, limit: VolumeLimit | None) -> list[tuple[str, float]]:
    if not isinstance(limit, PerVolumeLimit):
        return []
    volume = history.last
    thresholds = (("soft", limit.soft), ("hard", limit.hard))
    return [
        (kind, volume.total_bytes - threshold.bytes_of(volume))
        for kind, threshold in thresholds
        if threshold is not None
    ]


def _of_sum(history: VolumeHistory, limit: SummedUsedLimit) -> list[tuple[str, float]]:
    """Limits that lie within the size; ``soft`` begins one byte above its limit."""
    limits = (("soft", float(limit.soft_bytes)), ("hard", float(limit.hard_bytes)))
    return [(kind, bytes_) for kind, bytes_ in limits if bytes_ <= _size(history)]


def _size(history: VolumeHistory) -> float:
    return float(history.total_bytes[-1])


def _by_machine(histories: Sequence[VolumeHistory]) -> Iterator[list[VolumeHistory]]:
    """The volumes of each gateway's own machine."""
    of_machine: dict[str, list[VolumeHistory]] = {}
    for history in histories:
        if history.broker_id is None:
            of_machine.setdefault(history.observer, []).append(history)
    yield from of_machine.values()


def _order(row: LimitAhead) -> tuple[float, float, float, float, int]:
    """What is reached first; then what is likelier, and what has less room left."""
    reached = row.reached
    never = float("inf")
    return (
        never if reached.hours_p50 is None else reached.hours_p50,
        never if reached.hours_p10 is None else reached.hours_p10,
        -(reached.probability or 0.0),
        1 - row.forecast.used_bytes / max(row.limit_bytes, 1.0),
        -1 if row.history.broker_id is None else row.history.broker_id,
    )
