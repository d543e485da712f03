"""A forecast of volumes in words, on a screen and in a report."""

from typing import TYPE_CHECKING

from kvota.model.plain_text import name_on_screen
from kvota.model.units import format_bytes, format_duration_ms

if TYPE_CHECKING:  # they load NumPy, and help does not
    from kvota.volumes.limits_ahead import LimitAhead
    from kvota.volumes.volume_history import VolumeHistory

_HOUR_MS = 3_600_000
_HOURS_SHOWN_MAX = 48


def volume_name(history: "VolumeHistory") -> str:
    """Return what a volume is called."""
    log_dirs = ", ".join(name_on_screen(log_dir) for log_dir in history.log_dirs)
    return f"{_whose(history)} {log_dirs}"


def _whose(history: "VolumeHistory") -> str:
    if history.broker_id is not None:
        return f"broker {history.broker_id}"
    return f"gateway {name_on_screen(history.observer)}"


def growth_text(row: "LimitAhead", *, raw: bool = False) -> str:
    """Return the growth a day, and its interval."""
    low, middle, high = (
        bytes_text(row.forecast.growth_per_day(share), raw=raw) for share in (0.1, 0.5, 0.9)
    )
    return f"{middle} ({low} to {high})"


def bytes_text(value: float, *, raw: bool) -> str:
    """Return a size; ``raw``: all its figures."""
    return f"{value:.0f} B" if raw else format_bytes(value)


def reached_text(row: "LimitAhead", horizon: int) -> str:
    """Return the likeliest time until a limit is reached."""
    return _in(row.reached.hours_p50, horizon)


def interval_text(row: "LimitAhead", horizon: int) -> str:
    """Return between which times it is with 80 %."""
    early, late = row.reached.hours_p10, row.reached.hours_p90
    if early is None or late == 0:
        return ""
    return f"({_in(early, horizon)} to {_in(late, horizon)})"


def likely_text(row: "LimitAhead") -> str:
    """Return how likely it is within the horizon; ``short`` where nobody can say."""
    probability = row.reached.probability
    if probability is None:
        return "short"
    if 0 < probability < 0.01:
        return "<1%"
    return ">99%" if 0.99 < probability < 1 else f"{probability:.0%}"


def _in(hours: float | None, horizon: int) -> str:
    if hours is None:
        return f"over {in_hours(horizon)}"
    return in_hours(hours) if hours else "now"


def in_hours(hours: float) -> str:
    """Return a time in hours or days.

    >>> in_hours(0.5), in_hours(30), in_hours(100), in_hours(72)
    ('30 min 00 s', '30 h', '4.2 d', '3 d')
    """
    if hours < 1:
        return format_duration_ms(hours * _HOUR_MS)
    if hours <= _HOURS_SHOWN_MAX:
        return f"{hours:.0f} h"
    return f"{hours / 24:.1f}".removesuffix(".0") + " d"
