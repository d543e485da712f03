"""Limits that go to their goals in steps.

Each step brings every limit at most ``percent`` percent of what it is then nearer to its goal. The values of a step follow from the
first values and the goals alone, so a ramp that was stopped is gone on with by whoever knows these and the number of its steps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil, floor, isfinite

from kvota.model.client_quotas import KEYS, Number
from kvota.planning.wanted_quotas import Difference

# A ramp of more steps is a mistake: 1 % up from 1 B/s to 1 TB/s takes 3,000.
STEPS_MAX = 5_000
# Numbers with a fraction are rounded to so many digits, which people can read.
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Ramp:
    """How far and how often limits go on.

    Attributes:
        percent: of what a limit is, above 0 and at most 100.
        every_ms: from one step to the next.
    """

    percent: float
    every_ms: int

    def __post_init__(self) -> None:
        """Refuse steps that lead nowhere."""
        if not 0 < self.percent <= 100:
            msg = f"steps of {self.percent:g} %: write above 0 and at most 100, e.g. 10%/1h"
            raise ValueError(msg)
        if self.every_ms < 1:
            msg = "a step every 0 ms: write a time, e.g. 10%/1h"
            raise ValueError(msg)

    def steps(self, differences: Sequence[Difference]) -> int:
        """How many steps it takes until all have their goals; at least 1.

        Raises:
            ValueError: more than ``STEPS_MAX``.
        """
        return max((self._steps_of(each) for each in differences), default=1)

    def at_step(
        self, differences: Sequence[Difference], step: int, *, last: int
    ) -> list[Difference]:
        """What is wanted after so many of ``last`` steps; each with the values from which it began.

        A first limit comes whole with the first step, one that goes stays until the last: there is nothing to go by. So it is
        from and to a limit that is NaN or infinite, which nobody reaches.
        """
        return [each._replace(new=self._value(each, step, last)) for each in differences]

    def _value(self, difference: Difference, step: int, last: int) -> float | None:
        if step == 0:
            return difference.old
        if difference.old is None or step >= last:
            return difference.new
        if not _is_finite(difference.new):
            return difference.old
        if not isfinite(difference.old):
            return difference.new
        # Behind its goal a limit stays there until the others have theirs.
        return next(islice(self._way(difference), step - 1, None), difference.new)

    def _steps_of(self, difference: Difference) -> int:
        if not (_is_finite(difference.old) and _is_finite(difference.new)):
            return 1
        steps = sum(1 for _ in islice(self._way(difference), STEPS_MAX + 1))
        if steps > STEPS_MAX:
            msg = (
                f"{difference.key} of {difference.entity} would take more than {STEPS_MAX} steps of "
                f"{self.percent:g} %; write a larger part"
            )
            raise ValueError(msg)
        return steps

    def _way(self, difference: Difference) -> Iterator[float]:
        """Every value from the first step's to the goal."""
        value, goal = difference.old or 0.0, difference.new or 0.0
        is_whole = KEYS[difference.key].number is not Number.DOUBLE
        is_up = goal > value
        while True:
            wanted = value * (1 + (self.percent if is_up else -self.percent) / 100)
            if is_whole:
                wanted = max(floor(wanted), value + 1) if is_up else min(ceil(wanted), value - 1)
            elif float(f"{wanted:.{_DIGITS}g}") != value:
                wanted = float(f"{wanted:.{_DIGITS}g}")
            value = float(min(wanted, goal) if is_up else max(wanted, goal))
            yield value
            if value == goal:
                return


def _is_finite(value: float | None) -> bool:
    return value is not None and isfinite(value)
