"""Work in steps on the client's event loop."""

import asyncio
from typing import TypeVar

from kvota.wire.steps import Steps

T = TypeVar("T")


async def in_turns(steps: Steps[T]) -> T:
    """All of it; behind each step everything else on the event loop has its turn."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)
