"""A thread for what may hang: a source of somebody's own, or a file system that has lost its server."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import Generic, TypeVar

from kvota.callbacks.faults import line_in_package

T = TypeVar("T")


class LookThread(Generic[T]):
    """One thread, which ends with the process, and looks one after the other; nobody else ever waits for it.

    While a look has not come back there is no other one: what hangs takes one thread and no more, and each look
    until then has failed. What it answers afterwards is of no look and thrown away.

    Attributes:
        put: has something called on the thread, behind all before it; None: the thread ends there.
    """

    def __init__(self, name: str) -> None:
        calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.put = calls.put
        self._looking_s: float | None = None  # since when
        self._thread = Thread(target=_call_all, args=(calls,), name=name, daemon=True)
        self._thread.start()

    async def look(self, look: Callable[[], T], timeout_s: float) -> T | None:
        """Look once, by a call that never raises; None: it, or one before it, has not come back in time."""
        if self._looking_s is not None:
            return None
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._looking_s = monotonic()

        def tell(found: T) -> None:
            if not answer.done():
                answer.set_result(found)

        def look_and_tell() -> None:
            found = look()
            self._looking_s = None
            with suppress(RuntimeError):  # the loop has closed: nobody waits any more
                loop.call_soon_threadsafe(tell, found)

        self.put(look_and_tell)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                return await answer
        return None

    @property
    def looking_for_s(self) -> float:
        """How long the look that runs has taken; 0: none runs."""
        since_s = self._looking_s
        return 0.0 if since_s is None else monotonic() - since_s

    def line_in(self, package: str) -> str:
        """Where in a package's files the thread is, as ``file:line``; empty: in none of them."""
        frames = sys._current_frames()  # noqa: SLF001  (made to find out where threads hang)
        return line_in_package(package, frames.get(self._thread.ident or 0))


def _call_all(calls: "SimpleQueue[Callable[[], None] | None]") -> None:
    while (call := calls.get()) is not None:
        call()
