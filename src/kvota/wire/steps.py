"""Work on a message with many parts, done a little at a time so that nothing else waits for it.

A generator yields None after every ``STEP_PARTS`` parts or so; whoever drives it may do other things
in between. What it returns is the result.
"""

from collections.abc import Generator
from typing import TypeVar

# About 2 ms of work: so long everybody else's next request waits.
STEP_PARTS = 256

# The same for a walker, whose units are a part's fields.
STEP_UNITS = 4 * STEP_PARTS

# One look through so many bytes for a text is a step.
STEP_BYTES = 262_144

T = TypeVar("T")
Steps = Generator[None, None, T]


class StepCount:
    """Counts parts, and says when so many are done that others may have their turn."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts = 0

    def is_step_done(self) -> bool:
        """Asked behind each part: true behind every ``STEP_PARTS``."""
        self._parts += 1
        if self._parts < STEP_PARTS:
            return False
        self._parts = 0
        return True


def at_once(steps: Steps[T]) -> T:
    """All of it, without a break."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
