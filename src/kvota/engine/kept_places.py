"""Places in a line whose holders had to leave and may come back: bounded in time and in number."""

from collections import OrderedDict, deque
from typing import NamedTuple

# Clients come back at once, or after a back-off of a few seconds (Java: ``reconnect.backoff.max.ms``).
KEPT_MS = 60_000
# Of one line: as many as a gateway has connections, unless its settings say otherwise.
KEPT_MAX = 2_000


class PlaceKey(NamedTuple):
    """By what one who comes back is known; all who share it share their places."""

    client_host: str
    user: str
    client_id: bytes


class KeptPlaces:
    """Tickets that are kept for those who come back; nobody waits for them.

    Of those with one key the first that was left is the first that is taken: clients of one kind come
    back in the order in which they went.

    >>> kept, key = KeptPlaces(), PlaceKey("192.0.2.1", "alice", b"app")
    >>> kept.keep(7, key, 0)
    >>> kept.keep(3, key, 500)
    >>> kept.take(key, 1_000), kept.take(key, 1_000), kept.take(key, 1_000)
    (7, 3, None)
    """

    __slots__ = ("_by_key", "_by_ticket")

    def __init__(self) -> None:
        # Both in the order in which they were left: key and when, by ticket; tickets, by key.
        self._by_ticket: OrderedDict[int, tuple[PlaceKey, int]] = OrderedDict()
        self._by_key: dict[PlaceKey, deque[int]] = {}

    def __len__(self) -> int:
        """How many are kept; those whose time is over are dropped at the next call."""
        return len(self._by_ticket)

    def keep(self, ticket: int, key: PlaceKey, now_ms: int) -> None:
        """Keep a ticket for ``KEPT_MS``; of more than ``KEPT_MAX`` the first that was left is dropped."""
        self._drop_expired(now_ms)
        if len(self._by_ticket) >= KEPT_MAX:
            self._drop_first_left()
        self._by_ticket[ticket] = key, now_ms
        self._by_key.setdefault(key, deque()).append(ticket)

    def take(self, key: PlaceKey, now_ms: int) -> int | None:
        """A ticket that was kept for this key, and is no longer; None: there is none."""
        self._drop_expired(now_ms)
        tickets = self._by_key.get(key)
        if not tickets:
            return None
        ticket = tickets[0]
        self._drop(ticket)
        return ticket

    def _drop_expired(self, now_ms: int) -> None:
        while self._by_ticket:
            _, left_ms = next(iter(self._by_ticket.values()))
            # A clock that has stepped back by so much ends them, too: else they would stay for hours.
            if abs(now_ms - left_ms) < KEPT_MS:
                return
            self._drop_first_left()

    def _drop_first_left(self) -> None:
        self._drop(next(iter(self._by_ticket)))

    def _drop(self, ticket: int) -> None:
        """Of its key it is the first that was left."""
        key, _ = self._by_ticket.pop(ticket)
        tickets = self._by_key[key]
        tickets.popleft()
        if not tickets:
            del self._by_key[key]
