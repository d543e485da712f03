"""How full a volume will be: many paths made of its own days, from the looks at it that were recorded.

Hours that have lost far more than is usual (a clean-up, a replica that was moved away) are no part of its growth, so a
forecast says what comes if nothing is deleted; deletions that come every day or two are retention, and stay in. The
same looks always give the same forecast.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PATHS = 400
HALF_LIFE_DAYS = 7.0
SHORT_H = 72
HOUR_US = 3_600_000_000

_DAY_H = 24
# An hour is a reset where it lies so many median deviations below the median hour.
_RESET_DEVIATIONS = 12.0
# Resets that are never further apart are retention.
_RETENTION_GAP_H = 48
# Longer gaps between looks are not filled in.
_GAP_H = 3
# Another level: so many standard errors, looked for at each quarter of a day, with so much time on both sides.
_SHIFT_Z = 6.0
_SHIFT_STEP_H, _AFTER_H, _BEFORE_H = 1, 24, 72
_LEVEL_RATIO_MAX = 20.0
# A standard deviation in median deviations, where values are normal.
_SD_OF_MAD = 1.4826
_SEED = 20_260_000
# How far the variance of a few days is widened at most, as a part of 1.
_WIDER_MIN = 0.25
# A back-test looks at so many ends of the history, a day apart.
_BACK_TESTS = 5
_LINE_H = 7 * _DAY_H


@dataclass(frozen=True, slots=True)
class Reached:
    """When a limit is reached, in hours from the last look.

    Attributes:
        hours_p10: with a probability of 10 % it is reached by then; None: later than the horizon.
        hours_p50: with 50 %.
        hours_p90: with 90 %.
        probability: that it is reached within the horizon; None: the history is too short to say.
    """

    hours_p10: float | None
    hours_p50: float | None
    hours_p90: float | None
    probability: float | None


@dataclass(frozen=True, slots=True)
class VolumeForecast:
    """What is used in each hour to come.

    Attributes:
        as_of_us: when the last look was, Unix microseconds.
        used_bytes: then.
        history_h: from the first look to the last.
        resets: hours of the history that were left out of the growth.
        method: ``days``: paths of whole days; ``short``: lines of the least, mean and largest growth seen.
        paths: bytes used at the end of each hour; with ``short`` the three lines.
        skill: by how much of its error (pinball loss) it beats a straight line in a back-test, 1 is all of it;
            None: the history is too short to try.
    """

    as_of_us: int
    used_bytes: float
    history_h: int
    resets: int
    method: Literal["days", "short"]
    paths: Floats
    skill: float | None

    def quantile(self, share: float) -> Floats:
        """Return what is used at the end of each hour, by a quantile of the paths."""
        return np.quantile(self.paths, share, axis=0, method="nearest")

    @property
    def days(self) -> float:
        """How far ahead it goes."""
        return len(self.paths[0]) / _DAY_H

    def growth_per_day(self, share: float) -> float:
        """Return a quantile of the mean growth over the horizon."""
        grown = float(self.quantile(share)[-1]) - self.used_bytes
        return grown / self.days

    def reached(self, limit_bytes: float) -> Reached:
        """Say when so much is used for the first time."""
        if self.used_bytes >= limit_bytes:
            return Reached(0.0, 0.0, 0.0, 1.0)
        hours = _first_passages(self.used_bytes, self.paths, limit_bytes)
        early, middle, late = (
            float(each) if np.isfinite(each) else None
            for each in np.quantile(hours, (0.1, 0.5, 0.9), method="nearest")
        )
        probability = None if self.method == "short" else float(np.isfinite(hours).mean())
        return Reached(early, middle, late, probability)


def forecast_volume(
    ts_us: NDArray[np.int64], used_bytes: Floats, *, horizon_h: int
) -> VolumeForecast | None:
    """Forecast a volume; None where there is but one look.

    Args:
        ts_us: when the looks were, ascending.
        used_bytes: what was used then.
        horizon_h: so many hours ahead.
    """
    if len(ts_us) < 2:
        return None
    history_h = int((ts_us[-1] - ts_us[0]) // HOUR_US)
    as_of_us, used = int(ts_us[-1]), float(used_bytes[-1])
    if history_h < SHORT_H:
        lines = _short_lines(ts_us, used_bytes, horizon_h)
        return VolumeForecast(as_of_us, used, history_h, 0, "short", lines, None)
    hourly = _hourly_growth(ts_us, used_bytes)
    resets = _resets(hourly)
    hourly[resets] = np.nan
    paths = used + _paths(hourly, horizon_h)
    skill = _skill(hourly, min(horizon_h, SHORT_H))
    return VolumeForecast(as_of_us, used, history_h, int(resets.sum()), "days", paths, skill)


def straight_line(hourly: Floats, horizon_h: int) -> Floats:
    """Go on by the mean growth of the last seven days: what a forecast has to beat."""
    return np.asarray(np.arange(1, horizon_h + 1) * np.mean(hourly[-_LINE_H:]))


def _hourly_growth(ts_us: NDArray[np.int64], used: Floats) -> Floats:
    """Return the growth in each hour, counted back from the last look; NaN where there were no looks."""
    hours = int((ts_us[-1] - ts_us[0]) // HOUR_US)
    ends = ts_us[-1] - HOUR_US * np.arange(hours, -1, -1, dtype=np.int64)
    at_ends = np.interp(ends, ts_us, used)
    after = np.minimum(np.searchsorted(ts_us, ends), len(ts_us) - 1)
    gaps = ts_us[after] - ts_us[np.maximum(after - 1, 0)]
    at_ends[(gaps > _GAP_H * HOUR_US) & (ts_us[after] != ends)] = np.nan
    return np.asarray(np.diff(at_ends))


def _resets(hourly: Floats) -> NDArray[np.bool_]:
    """Tell which hours have lost far more than is usual, and not as a rule."""
    known = hourly[np.isfinite(hourly)]
    if not len(known):
        return np.zeros(len(hourly), bool)
    median = np.median(known)
    deviation = np.median(np.abs(known - median))
    found = hourly < median - _RESET_DEVIATIONS * max(float(deviation), 1.0)  # NaN is no reset
    places = np.flatnonzero(found)
    apart = np.diff(np.concatenate([[-1], places, [len(hourly)]]))
    if len(places) and apart.max() <= _RETENTION_GAP_H:
        found[:] = False
    return np.asarray(found)


def _paths(hourly: Floats, horizon_h: int) -> Floats:
    """Return the growth since the last look at the end of each hour, of each path.

    Days are counted back from the last look, so the hours of one lie where those of the next one will.
    """
    filled, level_days = _on_one_level(hourly)
    days = len(filled) // _DAY_H
    blocks = filled[len(filled) - days * _DAY_H :].reshape(days, _DAY_H)
    ages = np.arange(days - 1, -1, -1)
    weights = 0.5 ** (ages / HALF_LIFE_DAYS)
    weights /= weights.sum()
    rng = np.random.default_rng(_SEED)
    ahead = -(-horizon_h // _DAY_H)
    drawn = blocks[rng.choice(days, (PATHS, ahead), p=weights)].reshape(PATHS, -1)
    # Days that are drawn vary less than those they stand for, by as much as a variance out of few days is too small.
    totals, concentration = blocks.sum(axis=1), float(np.sum(weights**2))
    wider = 1 / max(1 - 3 * concentration, _WIDER_MIN)
    variance = wider * float(weights @ (totals - weights @ totals) ** 2)
    recent = weights * (ages < level_days)
    recent /= recent.sum()
    usual = np.tile(weights @ blocks, ahead)
    level = (recent - weights) @ totals / _DAY_H
    # The mean of a few days is not quite the level of those to come.
    levels = level + rng.normal(0.0, np.sqrt(variance * np.sum(recent**2)) / _DAY_H, (PATHS, 1))
    growth = usual + (drawn - usual) * np.sqrt(wider) + levels
    return np.asarray(np.cumsum(growth, axis=1)[:, :horizon_h])


def _on_one_level(hourly: Floats) -> tuple[Floats, float]:
    """Bring days before a lasting change of the growth to its level after that, and fill in hours that are not known.

    Returns the growth, and of how many of the last days the level is known.
    """
    split = _shift(hourly)
    filled = hourly.copy()
    if split:
        before, after = hourly[:split], hourly[split:]
        usual = _by_hour(before, len(hourly))[split:]
        known = np.isfinite(after)
        had, has = float(usual[known].sum()), float(after[known].sum())
        if had > 0 and 1 / _LEVEL_RATIO_MAX < has / had < _LEVEL_RATIO_MAX:
            filled[:split] = before * (has / had)
        else:
            filled[:split] = before + (has - had) / max(int(known.sum()), 1)
    missing = ~np.isfinite(filled)
    filled[missing] = _by_hour(filled, len(filled))[missing]
    return filled, (len(hourly) - split) / _DAY_H


def _by_hour(growth: Floats, hours: int) -> Floats:
    """Return the mean growth at each hour of the day, for ``hours`` hours that begin with the first one."""
    places = np.arange(len(growth)) % _DAY_H
    known = np.isfinite(growth)
    counts = np.bincount(places[known], minlength=_DAY_H)
    sums = np.bincount(places[known], growth[known], minlength=_DAY_H)
    of_all = growth[known].mean() if known.any() else 0.0
    means = np.where(counts > 0, sums / np.maximum(counts, 1), of_all)
    return np.asarray(means[np.arange(hours) % _DAY_H])


def _shift(hourly: Floats) -> int:
    """Return at which hour the growth has changed for good; 0: it has not."""
    rest = hourly - _by_hour(hourly, len(hourly))
    known = np.isfinite(rest)
    splits = np.arange(len(rest) - _AFTER_H, _BEFORE_H - 1, -_SHIFT_STEP_H)
    sums = np.concatenate([[0.0], np.cumsum(np.where(known, rest, 0.0))])
    counts = np.concatenate([[0], np.cumsum(known)])
    before, after = counts[splits], counts[-1] - counts[splits]
    is_told = (before >= _BEFORE_H // 2) & (after >= _AFTER_H // 2)
    if not is_told.any():
        return 0
    splits, before, after = splits[is_told], before[is_told], after[is_told]
    apart = np.abs((sums[-1] - sums[splits]) / after - sums[splits] / before)
    error_shape = np.sqrt(_DAY_H / before + _DAY_H / after)
    place = int(np.argmax(apart / error_shape))
    split = int(splits[place])
    spread = _spread(np.concatenate([_day_means(rest[:split]), _day_means(rest[split:])]))
    return split if apart[place] > _SHIFT_Z * spread * error_shape[place] else 0


def _day_means(rest: Floats) -> Floats:
    """Return how far the mean of each whole day lies from the median one; counted from the end."""
    days = len(rest) // _DAY_H
    blocks = rest[len(rest) - days * _DAY_H :].reshape(days, _DAY_H)
    blocks = blocks[np.isfinite(blocks).sum(axis=1) > _DAY_H // 2]
    if not len(blocks):
        return np.empty(0)
    means = np.nanmean(blocks, axis=1)
    return np.asarray(means - np.median(means))


def _spread(values: Floats) -> float:
    """Return the standard deviation, of most of them."""
    if len(values) < 2:
        return 0.0
    return _SD_OF_MAD * float(np.median(np.abs(values - np.median(values))))


def _first_passages(used: float, paths: Floats, limit: float) -> Floats:
    """Return after how many hours each path reaches the limit; inf: not within the horizon."""
    over = paths >= limit
    first = over.argmax(axis=1)
    rows = np.arange(len(paths))
    before = np.where(first > 0, paths[rows, first - 1], used)
    step = paths[rows, first] - before
    part = np.where(step > 0, (limit - before) / np.where(step > 0, step, 1.0), 1.0)
    return np.where(over.any(axis=1), first + part, np.inf)


def _short_lines(ts_us: NDArray[np.int64], used: Floats, horizon_h: int) -> Floats:
    """Return lines of the least, the mean and the largest growth that was seen between looks an eighth of the history apart."""
    marks = np.linspace(ts_us[0], ts_us[-1], min(len(ts_us), 9))
    elapsed_h = np.diff(marks) / HOUR_US
    rates = np.diff(np.interp(marks, ts_us, used)) / elapsed_h
    mean = (used[-1] - used[0]) / elapsed_h.sum()
    seen = np.sort([rates.min(), mean, rates.max()])
    return np.asarray(used[-1] + np.outer(seen, np.arange(1, horizon_h + 1)))


def _skill(hourly: Floats, horizon_h: int) -> float | None:
    """Compare the pinball loss of the three quantiles with a straight line's, at ends a day apart."""
    ours = lines = 0.0
    known = np.where(np.isfinite(hourly), hourly, np.nanmean(hourly)) if len(hourly) else hourly
    for back in range(_BACK_TESTS):
        end = len(hourly) - horizon_h - back * _DAY_H
        if end < _LINE_H + _DAY_H:
            break
        came = float(np.sum(known[end : end + horizon_h]))
        line = float(straight_line(known[:end], horizon_h)[-1])
        ends = _paths(hourly[:end], horizon_h)[:, -1]
        for share in (0.1, 0.5, 0.9):
            ours += _pinball(came - float(np.quantile(ends, share)), share)
            lines += _pinball(came - line, share)
    return 1 - ours / lines if lines > 0 else None


def _pinball(error: float, share: float) -> float:
    return max(share * error, (share - 1) * error)
