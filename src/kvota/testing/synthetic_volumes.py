"""Volumes that fill in the ways that real ones do, by a seed: what a forecast of them is judged on."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

HOUR_US = 3_600_000_000
# Not a whole day, so that a forecast begins at another hour than its days do.
_START_US = 1_760_000_400_000_000

Kind = Literal["steady", "retention", "clean-ups", "doubled"]
KINDS: tuple[Kind, ...] = ("steady", "retention", "clean-ups", "doubled")

_RETENTION_H = 7 * 24


@dataclass(frozen=True, slots=True)
class SyntheticVolume:
    """What is used of a volume at the end of each hour, and what comes after.

    Attributes:
        kind: how it fills.
        ts_us: when each look was, Unix microseconds.
        used_bytes: as it was then.
        later_bytes: at the end of each hour after the last look.
        is_cleaned_later: a clean-up, which nobody can foresee, is among these hours.
    """

    kind: Kind
    ts_us: NDArray[np.int64]
    used_bytes: NDArray[np.float64]
    later_bytes: NDArray[np.float64]
    is_cleaned_later: bool


def synthetic_volume(
    kind: Kind, seed: int, *, history_h: int = 28 * 24, later_h: int = 72
) -> SyntheticVolume:
    """Return a volume; the same for the same arguments.

    Its rate has a shape of the day, is another one each day, and is noisy each hour. With ``retention`` what
    came in goes seven days later; ``clean-ups`` take up to half of what is used, every ten days or so; with
    ``doubled`` the rate doubles for good two to ten days before the last look.
    """
    rng = np.random.default_rng([KINDS.index(kind), seed])
    lead_h = _RETENTION_H if kind == "retention" else 0
    hours = lead_h + history_h + later_h
    inflow = _inflow(rng, hours)
    if kind == "doubled":
        inflow[history_h - int(rng.integers(48, 240)) :] *= 2.0
    base = rng.uniform(100e9, 400e9)
    cleaned = np.zeros(hours, bool)
    if kind == "retention":
        gone = np.concatenate([np.zeros(_RETENTION_H), inflow[:-_RETENTION_H]])
        used = base + np.cumsum(inflow - gone)
    elif kind == "clean-ups":
        cleaned = rng.random(hours) < 1 / 240
        used = _with_clean_ups(rng, base, inflow, cleaned)
    else:
        used = base + np.cumsum(inflow)
    used = used[lead_h:]
    ts_us = _START_US + HOUR_US * np.arange(history_h, dtype=np.int64)
    is_cleaned_later = bool(cleaned[lead_h + history_h :].any())
    return SyntheticVolume(kind, ts_us, used[:history_h], used[history_h:], is_cleaned_later)


def _inflow(rng: np.random.Generator, hours: int) -> NDArray[np.float64]:
    """Bytes that come in, in each hour."""
    hour = np.arange(hours)
    shape = 1 + rng.uniform(0.2, 0.8) * np.sin(2 * np.pi * (hour + rng.uniform(0, 24)) / 24)
    days = rng.lognormal(0.0, 0.15, hours // 24 + 1)[hour // 24]
    noise = rng.gamma(6.0, 1 / 6.0, hours)
    return np.asarray(rng.uniform(5e9, 80e9) / 24 * shape * days * noise)


def _with_clean_ups(
    rng: np.random.Generator,
    base: float,
    inflow: NDArray[np.float64],
    cleaned: NDArray[np.bool_],
) -> NDArray[np.float64]:
    used = np.empty(len(inflow))
    now = base
    for hour, came in enumerate(inflow):
        now += came
        if cleaned[hour]:
            now *= 1 - rng.uniform(0.2, 0.5)
        used[hour] = now
    return used
