"""The smallest quota a tenant can live with, found by trying candidates."""

from collections.abc import Sequence
from dataclasses import dataclass

# So many candidates are tried at once.
CANDIDATES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """When a quota is good enough for a tenant."""

    share_over_max: float = 0.001  # of its requests
    worst_ms_max: float = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What the replay says about one candidate."""

    quota: float
    share_over: float
    worst_ms: float


@dataclass(frozen=True, slots=True)
class Bracket:
    """The need lies above ``fails`` and at or below ``holds``; None: not seen."""

    fails: float | None
    holds: float | None


def geometric_grid(low: float, high: float, count: int = CANDIDATES) -> tuple[float, ...]:
    """``count`` quotas from ``low`` to ``high``, each the same factor above the one before.

    >>> geometric_grid(1.0, 8.0, 4)
    (1.0, 2.0, 4.0, 8.0)
    """
    if not 0 < low <= high or count < 2:
        msg = f"a grid needs 0 < low <= high and two points, not {low}, {high}, {count}"
        raise ValueError(msg)
    factor = (high / low) ** (1 / (count - 1))
    return (low, *(low * factor**i for i in range(1, count - 1)), high)


def between(bracket: Bracket, count: int = CANDIDATES) -> tuple[float, ...]:
    """Candidates strictly inside a bracket, and its upper end; none where nothing is left to find."""
    if bracket.fails is None or bracket.holds is None:
        return ()
    return geometric_grid(bracket.fails, bracket.holds, count + 1)[1:]


def bracket(trials: Sequence[Trial], tolerance: Tolerance) -> Bracket:
    """The largest quota that fails and the smallest above which no candidate fails.

    A strict token bucket is not quite monotone in its quota: one failure rules out all below it.
    """
    fails: float | None = None
    holds: float | None = None
    for trial in sorted(trials, key=lambda trial: trial.quota):
        if (
            trial.share_over <= tolerance.share_over_max
            and trial.worst_ms <= tolerance.worst_ms_max
        ):
            holds = trial.quota if holds is None else holds
        else:
            fails, holds = trial.quota, None
    return Bracket(fails, holds)
