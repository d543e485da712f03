"""Sockets of connections that are one too many: nothing of them is read, and they are closed after a while."""

import asyncio

from kvota.gateway.closing import leave_unread
from kvota.gateway.driver import Driver

# Each is an open file; of more than these the rest is closed at once.
HELD_MAX = 500


class HeldBack:
    """Those of one gateway."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._held: dict[Driver, asyncio.TimerHandle] = {}

    def hold(self, driver: Driver, throttle_ms: int) -> None:
        """Close it after so long; until then its client does not come again."""
        if len(self._held) >= HELD_MAX:
            driver.close("", by="refused")
            return
        leave_unread(driver.client, self._loop)
        self._held[driver] = self._loop.call_later(throttle_ms / 1000, self._let_go, driver)

    def leave(self, driver: Driver) -> None:
        """It has closed."""
        timer = self._held.pop(driver, None)
        if timer is not None:
            timer.cancel()

    def stop(self) -> None:
        """Close all that are left."""
        for driver in list(self._held):
            self._let_go(driver)

    def _let_go(self, driver: Driver) -> None:
        self.leave(driver)
        driver.close("", by="refused")
