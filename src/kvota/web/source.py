"""What HTTP shows, as whoever runs a gateway hands it over; called on the HTTP thread's own loop."""

from dataclasses import dataclass
from typing import Any, Protocol

from kvota.metrics.families import Observed

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether a gateway runs, and can be sent clients.

    Attributes:
        is_live: its event loop turns.
        reasons: why no clients should be sent to it; empty: they may.
        notes: what is wrong all the same.
    """

    is_live: bool
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Source(Protocol):
    """Looks at one gateway.

    ``TimeoutError`` from any of these: the gateway's event loop does not answer.
    """

    async def observed(self) -> Observed:
        """All that metrics show, of now."""
        ...

    async def tenants(self, at_most: int) -> Json:
        """The counters of tenants, worst first."""
        ...

    async def shadowed(self, at_most: int) -> Json:
        """What the quotas would do that are in shadow mode beside those in force, worst first."""
        ...

    async def explained(self, user: str, client_id: str) -> Json:
        """Why a client is treated as it is."""
        ...

    async def health(self) -> Health:
        """Whether it runs."""
        ...
