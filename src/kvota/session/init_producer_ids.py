"""How often each user has asked for a producer id (InitProducerId): there a crash loop is seen first.

Nothing is charged for it. A request with a transactional id gets the same id again, and is counted apart.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from kvota.engine.recent_count import RecentCount
from kvota.model.quota_window import QuotaWindow
from kvota.wire.varint import Bytes

# Some 500 bytes each.
USERS_MAX = 10_000
# As a broker's own rates: 30 to 60 s.
WINDOW = QuotaWindow(2, 30_000)
_IDLE_MS = 3_600_000
# A user is named again after so long.
_QUIET_MS = 3_600_000
_NULL = b"\xff\xff"


@dataclass(slots=True)
class InitCounts:
    """What one user has asked for.

    Attributes:
        idempotent: requests for an id of their own.
        transactional: requests with a transactional id.
        recent: of the former.
        last_ms: of the last one.
        said_ms: when it was last said that they are many; None: never.
    """

    idempotent: int = 0
    transactional: int = 0
    recent: RecentCount = field(default_factory=lambda: RecentCount(WINDOW))
    last_ms: int = 0
    said_ms: int | None = None


class InitProducerIds:
    """The counts of all users.

    Attributes:
        users: those of each, who has been looked at longest ago first.
        others: the sums of all who have no place of their own, or are gone: sums never fall.
    """

    def __init__(self, *, users_max: int = USERS_MAX) -> None:
        self._users_max = users_max
        self.users: OrderedDict[str, InitCounts] = OrderedDict()
        self.others = InitCounts()

    def add(self, user: str, now_ms: int, *, is_transactional: bool) -> None:
        """One more request."""
        counts = self.users.get(user)
        if counts is None:
            if len(self.users) < self._users_max:
                counts = self.users[user] = InitCounts()
            else:
                counts = self.others
        counts.last_ms = now_ms
        if is_transactional:
            counts.transactional += 1
        else:
            counts.idempotent += 1
            counts.recent.add(now_ms)

    def sweep(
        self, now_ms: int, rate_of: Callable[[str], float | None], *, at_most: int
    ) -> list[tuple[str, int, float]]:
        """Look at so many users, the next time at the next ones; who was idle for an hour goes.

        Returns:
            Who has asked for more ids within a minute than its quota (``rate_of``) lets it bring in a whole window,
            with both numbers; each once an hour.
        """
        found = []
        for _ in range(min(at_most, len(self.users))):
            user, counts = self.users.popitem(last=False)
            if abs(now_ms - counts.last_ms) >= _IDLE_MS:
                self.others.idempotent += counts.idempotent
                self.others.transactional += counts.transactional
                continue
            self.users[user] = counts
            rate, asked = rate_of(user), counts.recent.peek(now_ms)
            is_quiet = counts.said_ms is not None and abs(now_ms - counts.said_ms) < _QUIET_MS
            if rate is not None and asked > max(rate, 1.0) and not is_quiet:
                counts.said_ms = now_ms
                found.append((user, asked, rate))
        return found


def is_transactional(data: Bytes, body: int, frame_end: int, *, flexible: bool) -> bool:
    """True where an InitProducerId names a transactional id; what cannot be read is the broker's business.

    Args:
        data: has the request, or its beginning.
        body: where its client id ends.
        frame_end: offset behind it.
        flexible: of its version.
    """
    if not flexible:
        return body + 2 <= frame_end and data[body : body + 2] != _NULL
    # With tags in the header, which no client has, it counts as one with an id of its own.
    return body + 2 <= frame_end and data[body : body + 1] == b"\0" and data[body + 1] != 0
