"""When a tenant outgrows its quota, from the largest rate of each of its days.

The growth is the median of the slopes between all pairs of days (Theil and Sen), so one wild day does not move it;
its interval is that of their ranks (Sen 1968, after Kendall's variance).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, sqrt
from statistics import NormalDist, median

# Fewer days with traffic of its own say little: the interval is of the least and largest growth between two of them.
DAYS_MIN = 7
_INTERVAL = 0.8
# Slopes of more days than these are as good from the last ones.
_DAYS_MAX = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgrowing:
    """How a tenant's daily peak comes nearer to its quota.

    Attributes:
        peak: what its days reach now, by the line through them.
        growth_per_day: of that; and its 80 % interval.
        days_p10: until the quota is reached, with a probability of 10 % by then; None: never at this growth.
        days_p50: with 50 %.
        days_p90: with 90 %.
        days: with traffic of its own.
        is_short: too few days for more than the least and largest growth that was seen.
    """

    peak: float
    growth_per_day: float
    growth_low: float
    growth_high: float
    days_p10: float | None
    days_p50: float | None
    days_p90: float | None
    days: int
    is_short: bool


def outgrowing(peaks: Sequence[tuple[int, float]], limit: float) -> Outgrowing | None:
    """Say when days reach the limit; None of fewer than two days.

    Args:
        peaks: a number of each day, ascending, and the largest rate of it.
        limit: the quota, in the unit of the rates.

    >>> found = outgrowing([(day, 100.0 + 10 * day) for day in range(10)], 250.0)
    >>> found.peak, found.growth_per_day, found.days_p50
    (190.0, 10.0, 6.0)
    """
    peaks = peaks[-_DAYS_MAX:]
    if len(peaks) < 2:
        return None
    slopes = sorted(
        (later - rate) / (to - day)
        for place, (day, rate) in enumerate(peaks)
        for to, later in peaks[place + 1 :]
    )
    growth = median(slopes)
    is_short = len(peaks) < DAYS_MIN
    low, high = _seen(peaks) if is_short else _interval(slopes, len(peaks))
    last = peaks[-1][0]
    peak = median([rate + growth * (last - day) for day, rate in peaks])
    return Outgrowing(
        peak=peak,
        growth_per_day=growth,
        growth_low=low,
        growth_high=high,
        days_p10=_days_until(limit, peak, high),
        days_p50=_days_until(limit, peak, growth),
        days_p90=_days_until(limit, peak, low),
        days=len(peaks),
        is_short=is_short,
    )


def _interval(slopes: Sequence[float], days: int) -> tuple[float, float]:
    """The slopes at the ranks between which the true one lies with 80 %."""
    z = NormalDist().inv_cdf(0.5 + _INTERVAL / 2)
    apart = z * sqrt(days * (days - 1) * (2 * days + 5) / 18)
    low = round((len(slopes) - apart) / 2)
    high = round((len(slopes) + apart) / 2)
    return slopes[max(low, 0)], slopes[min(high, len(slopes) - 1)]


def _seen(peaks: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """The least and largest growth from one day to the next one."""
    steps = [(later - rate) / (to - day) for (day, rate), (to, later) in pairwise(peaks)]
    return min(steps), max(steps)


def _days_until(limit: float, peak: float, growth_per_day: float) -> float | None:
    if peak >= limit:
        return 0.0
    days = (limit - peak) / growth_per_day if growth_per_day > 0 else inf
    return days if days < inf else None
