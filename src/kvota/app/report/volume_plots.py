"""Makes plots of volumes from what is ahead of them."""

from collections.abc import Sequence

import numpy as np

from kvota.app.forecast_words import (
    growth_text,
    interval_text,
    likely_text,
    reached_text,
    volume_name,
)
from kvota.app.report.content import LimitRow, VolumePlot
from kvota.volumes.forecast import HOUR_US
from kvota.volumes.limits_ahead import LimitAhead

# So much of the past is drawn: some times as much as is ahead, of so many points at most.
_TIMES_BACK = 4
_POINTS_MAX = 300


def volume_plots(
    rows: Sequence[LimitAhead], *, horizon_h: int, most: int
) -> tuple[list[VolumePlot], int]:
    """Return the volumes whose limits are reached first, and how many more there are.

    Args:
        rows: what is ahead, what is reached first before all others.
        horizon_h: of the forecasts.
        most: so many volumes are drawn.
    """
    of_volume: dict[int, list[LimitAhead]] = {}
    for row in rows:
        of_volume.setdefault(id(row.forecast), []).append(row)
    shown = [_plot(of_one, horizon_h) for of_one in list(of_volume.values())[:most]]
    return shown, len(of_volume) - len(shown)


def _plot(rows: Sequence[LimitAhead], horizon_h: int) -> VolumePlot:
    forecast, history = rows[0].forecast, rows[0].history
    back_us = forecast.as_of_us - _TIMES_BACK * horizon_h * HOUR_US
    places = np.flatnonzero(history.ts_us >= back_us)
    places = places[np.unique(np.linspace(0, len(places) - 1, _POINTS_MAX).astype(int))]
    low, middle, high = (forecast.quantile(share).tolist() for share in (0.1, 0.5, 0.9))
    return VolumePlot(
        name=volume_name(history),
        total_bytes=float(history.total_bytes[-1]),
        seen_us=history.ts_us[places].tolist(),
        seen_bytes=history.used_bytes[places].tolist(),
        ahead_us=[forecast.as_of_us + HOUR_US * hour for hour in range(1, horizon_h + 1)],
        low=low,
        middle=middle,
        high=high,
        growth=growth_text(rows[0]),
        history_h=forecast.history_h,
        is_short=forecast.method == "short",
        resets=forecast.resets,
        limits=[
            LimitRow(
                row.kind,
                row.limit_bytes,
                reached_text(row, horizon_h),
                interval_text(row, horizon_h),
                likely_text(row),
                row.reached.hours_p50 is not None,
            )
            for row in sorted(rows, key=lambda row: row.limit_bytes)
        ],
    )
