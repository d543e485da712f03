"""Requests that a debt bucket was charged for before all of them was here, over all connections.

While others wait for their turn on such a counter, the rest of the request has to come.
"""

from collections.abc import Callable
from typing import Protocol

from kvota.session.waking import nobody


class EarlyCharge(Protocol):
    """``session.unfinished.Unfinished`` is one."""

    @property
    def is_in_the_way(self) -> bool:
        """True while others wait for their turn on the counter that was charged."""


class EarlyCharges:
    """Those there are.

    Attributes:
        when_added: called when there is one more; a look is due while ``are_in_the_way`` may be true.
    """

    __slots__ = ("_charges", "when_added")

    def __init__(self) -> None:
        self._charges: dict[EarlyCharge, None] = {}
        self.when_added: Callable[[], None] = nobody

    def __len__(self) -> int:
        """How many."""
        return len(self._charges)

    def add(self, charge: EarlyCharge) -> None:
        """One more."""
        self._charges[charge] = None
        self.when_added()

    def remove(self, charge: EarlyCharge) -> None:
        """All of its request is here, or never comes."""
        del self._charges[charge]

    @property
    def are_in_the_way(self) -> bool:
        """True while others wait for a turn on one of their counters."""
        return any(charge.is_in_the_way for charge in self._charges)
