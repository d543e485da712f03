"""How much the interpreter does for a step: calls and returns, of Python and of C, as its profiler tells of them."""

import gc
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

    gc.disable()  # what others have left, and who watches the collector, are no calls of the step
    sys.setprofile(note)
    try:
        returned = step()
    finally:
        sys.setprofile(None)
        gc.enable()
    return returned, calls
