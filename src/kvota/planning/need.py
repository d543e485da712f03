"""Finds a tenant's need, the smallest quota that it can live with, by trying candidates."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, comb, fsum, inf

# How many candidates one replay tries.
CANDIDATES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """The throttling that a tenant puts up with; a quota that causes more is too small."""

    share_over_max: float = 0.001  # of its requests
    worst_ms_max: float = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The replay's result for one candidate."""

    quota: float
    share_over: float
    worst_ms: float


@dataclass(frozen=True, slots=True)
class Bracket:
    """The need lies above ``fails`` and at or below ``passes``; None: no candidate did."""

    fails: float | None
    passes: float | None


def geometric_grid(low: float, high: float, count: int = CANDIDATES) -> tuple[float, ...]:
    """Return ``count`` quotas from ``low`` to ``high``, each the same factor above the one before.

    >>> geometric_grid(1.0, 8.0, 4)
    (1.0, 2.0, 4.0, 8.0)
    """
    if not 0 < low <= high or count < 2:
        msg = f"a grid needs 0 < low <= high and two points, not {low}, {high}, {count}"
        raise ValueError(msg)
    factor = (high / low) ** (1 / (count - 1))
    return (low, *(low * factor**i for i in range(1, count - 1)), high)


def between(bracket: Bracket, count: int = CANDIDATES) -> tuple[float, ...]:
    """Return candidates inside a bracket, and its upper end; none if nothing is left to find."""
    if bracket.fails is None or bracket.passes is None:
        return ()
    return geometric_grid(bracket.fails, bracket.passes, count + 1)[1:]


def bracket(trials: Sequence[Trial], tolerance: Tolerance) -> Bracket:
    """Find the largest quota that fails, and the smallest from which on every candidate passes.

    A strict token bucket is not quite monotone in its quota: one failure rules out all below it.
    """
    fails: float | None = None
    passes: float | None = None
    for trial in sorted(trials, key=lambda trial: trial.quota):
        if (
            trial.share_over <= tolerance.share_over_max
            and trial.worst_ms <= tolerance.worst_ms_max
        ):
            passes = trial.quota if passes is None else passes
        else:
            fails, passes = trial.quota, None
    return Bracket(fails, passes)


# A tenant's need is that of a busy day, so that one day of a lifetime does not decide for good.
_QUANTILE = 0.9
_OUTSIDE = 0.1  # the chance that the true quantile is beyond one end of the interval


@dataclass(frozen=True, slots=True)
class Need:
    """What a tenant needs on a busy day.

    Attributes:
        rate: the 90 % quantile of its daily needs, nearest rank: the largest one of up to nine days.
        low: the lower end of an 80 % interval of that quantile; None: too few days to say.
        high: the upper end; None: too few days to say.
        days: on which it did something.
    """

    rate: float
    low: float | None
    high: float | None
    days: int

    def times(self, factor: float) -> "Need":
        """Return so many times as much."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return Need(self.rate * factor, low, high, self.days)


def daily_need(needs: Sequence[float | None]) -> Need | None:
    """Return what is needed on a busy day, of one need per day; None: on too many days no candidate was enough.

    The interval is that of order statistics: it assumes days that have nothing to do with each other, and
    nothing of how needs are distributed.

    >>> daily_need([3.0, 1.0, 2.0])
    Need(rate=3.0, low=2.0, high=None, days=3)
    """
    ordered = sorted(inf if need is None else need for need in needs)
    days = len(ordered)
    if not days:
        return None
    rate = ordered[ceil(_QUANTILE * days) - 1]
    if rate == inf:
        return None
    # So many days are at or below the quantile, with this chance.
    chances = [
        comb(days, below) * _QUANTILE**below * (1 - _QUANTILE) ** (days - below)
        for below in range(days + 1)
    ]
    lows = [rank for rank in range(1, days + 1) if fsum(chances[:rank]) <= _OUTSIDE]
    highs = [rank for rank in range(1, days + 1) if fsum(chances[rank:]) <= _OUTSIDE]
    high = ordered[highs[0] - 1] if highs else inf
    return Need(
        rate=rate,
        low=ordered[lows[-1] - 1] if lows and days > 1 else None,
        high=None if high == inf else high,
        days=days,
    )
