"""Connections that were told to leave: they take no more requests, and close when they have their answers.

Answers can be made to stay away, so who is on its way out can be hurried where newcomers wait. No address
has them all told for itself: for each it may be as many as there may still be others, and one more.
"""

import asyncio
from collections import Counter, OrderedDict
from typing import NamedTuple

from kvota.gateway.driver import Driver
from kvota.gateway.settings import leaving_max
from kvota.session.budget import User

# Clients give a request up after 30 s (``request.timeout.ms``): nobody waits for its answer then.
LEAVE_S = 30.0
# Where no more may be told for a newcomer: who was told so long ago goes at once; twice as long ago where
# the newcomer's address had its share already, so that a flood from there is behind everybody else.
HURRY_S = 1.0
_LOOK_S = 0.05


class _Told(NamedTuple):
    """Whose it is, for a newcomer from which address it was told, and when."""

    holder: User | None
    for_host: str
    since_s: float


class Leaving:
    """Those of one gateway. They use no place any more, so there are only so many.

    Args:
        connections_max: places of the gateway.
    """

    def __init__(self, connections_max: int) -> None:
        self._max = leaving_max(connections_max)
        # Not plain dicts: finding their first keys costs a walk over all that have left.
        self._told: OrderedDict[Driver, _Told] = (
            OrderedDict()
        )  # in the order in which they were told
        self._of_holder: dict[User | None, OrderedDict[Driver, None]] = {}
        self._for_host: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._told)

    def __contains__(self, driver: Driver) -> bool:
        return driver in self._told

    def has_room_for(self, host: str) -> bool:
        """True while somebody else may be told for a newcomer from this address."""
        return self._for_host[host] < self._max - len(self)

    def who_has_had_time(self, host: str) -> Driver | None:
        """Who may be closed at once for a newcomer from this address: the first of who has most here."""
        if not self._told:
            return None
        hosts = len(self._for_host) + (host not in self._for_host)
        has_its_share = self._for_host[host] * hosts >= self._max
        told_until_s = asyncio.get_running_loop().time() - HURRY_S * (1 + has_its_share)
        if next(iter(self._told.values())).since_s > told_until_s:
            return None
        most = max(self._of_holder.values(), key=len)
        first = next(iter(most))
        return first if self._told[first].since_s <= told_until_s else None

    def tell(self, driver: Driver, holder: User | None, *, for_host: str) -> None:
        """Have this one leave, for a newcomer from this address."""
        loop = asyncio.get_running_loop()
        self._told[driver] = _Told(holder, for_host, loop.time())
        self._of_holder.setdefault(holder, OrderedDict())[driver] = None
        self._for_host[for_host] += 1
        driver.take_no_more(by="made_room")
        if self._timer is None:
            self._timer = loop.call_later(_LOOK_S, self._look)

    def has_left(self, driver: Driver) -> None:
        """It has closed."""
        told = self._told.pop(driver, None)
        if told is None:
            return
        of_holder = self._of_holder[told.holder]
        del of_holder[driver]
        if not of_holder:
            del self._of_holder[told.holder]
        self._for_host[told.for_host] -= 1
        if not self._for_host[told.for_host]:
            del self._for_host[told.for_host]

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        for driver, told in list(self._told.items()):
            if loop.time() >= told.since_s + LEAVE_S:
                driver.abort()
            elif not driver.closing and driver.can_finish:
                driver.finish()
        self._timer = loop.call_later(_LOOK_S, self._look) if self._told else None
