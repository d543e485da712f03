"""How much the interpreter does for a step: calls and returns, of Python and of C, as its profiler tells of them."""

import sys
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def with_calls(step: Callable[[], T]) -> tuple[T, int]:
    """What the step returns, and how many calls and returns it took."""
    calls = 0

    def note(*_of_event: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(note)
    try:
        returned = step()
    finally:
        sys.setprofile(None)
    return returned, calls
