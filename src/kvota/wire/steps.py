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


def at_once(steps: Steps[T]) -> T:
    """All of it, without a break."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
