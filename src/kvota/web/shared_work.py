"""One piece of work for all who want its result at about the same time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")

# Whoever asks more often waits: the thread that runs the gateway has to be left alone.
BETWEEN_S = 0.1


class SharedWork(Generic[T]):
    """Whoever asks gets what was begun after it has asked; however many ask, it is done ten times a second.

    Args:
        work: what is done.
    """

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self._work = work
        self._next: asyncio.Task[T] | None = None
        self._running = asyncio.Lock()
        self._begun_s = float("-inf")

    async def fresh(self) -> T:
        """The result of work that has not begun yet."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._run())
        # One who leaves must not take it from the others.
        return await asyncio.shield(self._next)

    async def _run(self) -> T:
        loop = asyncio.get_running_loop()
        async with self._running:
            await asyncio.sleep(max(0.0, self._begun_s + BETWEEN_S - loop.time()))
            self._begun_s = loop.time()
            self._next = None
            return await self._work()
