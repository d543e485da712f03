"""Finds a tenant's need, the smallest quota that it can live with, by trying candidates."""

from collections.abc import Sequence
from dataclasses import dataclass

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
