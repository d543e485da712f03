"""Connections that were told to leave: they take no more requests, and close when they have their answers."""

import asyncio

from kvota.gateway.driver import Driver
from kvota.gateway.settings import leaving_max

# Clients give a request up after 30 s (``request.timeout.ms``): nobody waits for its answer then.
LEAVE_S = 30.0
_LOOK_S = 0.05


class Leaving:
    """Those of one gateway. They use no place any more, so there are only so many.

    Args:
        connections_max: places of the gateway.
    """

    def __init__(self, connections_max: int) -> None:
        self._max = leaving_max(connections_max)
        self._until_s: dict[Driver, float] = {}  # in the order in which they were told
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._until_s)

    def __contains__(self, driver: Driver) -> bool:
        return driver in self._until_s

    @property
    def has_room(self) -> bool:
        """True while somebody else may be told."""
        return len(self) < self._max

    def tell(self, driver: Driver) -> None:
        """Have this one leave."""
        loop = asyncio.get_running_loop()
        self._until_s[driver] = loop.time() + LEAVE_S
        driver.take_no_more(by="made_room")
        if self._timer is None:
            self._timer = loop.call_later(_LOOK_S, self._look)

    def has_left(self, driver: Driver) -> None:
        """It has closed."""
        self._until_s.pop(driver, None)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        for driver, until_s in list(self._until_s.items()):
            if loop.time() >= until_s:
                driver.abort()
            elif not driver.closing and driver.can_finish:
                driver.finish()
        self._timer = loop.call_later(_LOOK_S, self._look) if self._until_s else None
