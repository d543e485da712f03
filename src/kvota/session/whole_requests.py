"""Memory for requests that are kept whole while it is found out what may go on of them.

A topic mutation of 4 MB with 20,000 names takes 10 times its bytes while it is decided on: the frame, what
is asked about it, the answer, and an object for each topic. All connections share a budget for that. Of
large ones a user has one at a time; small ones have a budget of their own and wait for no large one.
"""

from collections.abc import Callable

from kvota.engine import Turn, WaitingLine
from kvota.session.budget import AnnouncedBudget, AnnouncedBudgets, BudgetShare, User
from kvota.session.waking import nobody

# Above either of these a request is a large one.
LARGE_BYTES = 65_536
LARGE_TOPICS = 1_000
# What a request takes: measured with tracemalloc, at most 7 bytes for each of its own, and 750 for each
# topic (tests/unit/session/test_whole_requests.py holds it).
_TIMES_ITS_BYTES = 7
_TOPIC_BYTES = 750
# One request of 4 MiB with 20,000 topics, or several that are not as large.
LARGE_BUDGET_BYTES = 64 * 2**20
SMALL_BUDGET_BYTES = 32 * 2**20


class WholeRequests:
    """The budgets of one gateway, and whose turn it is.

    Attributes:
        small: for requests that are not large.
        large: for the others; one that is larger than all of it may pass alone.
    """

    def __init__(self, budgets: AnnouncedBudgets) -> None:
        self.small: AnnouncedBudget = budgets.another(limit_bytes=SMALL_BUDGET_BYTES)
        self.large: AnnouncedBudget = budgets.another(limit_bytes=LARGE_BUDGET_BYTES)
        self._budgets = budgets
        self._lines: dict[User, WaitingLine] = {}

    def join(self, user: User, wake: Callable[[], None]) -> Turn:
        """Where the large ones of this user wait; the first has its turn."""
        line = self._lines.setdefault(user, WaitingLine())
        turn = line.join(wake)
        if len(line) > 1:
            self._budgets.wait_beside()
        return turn

    def is_first(self, turn: Turn, user: User) -> bool:
        """True where it has its turn."""
        return self._lines[user].is_first(turn)

    def keeps_others_waiting(self, turn: Turn, user: User) -> bool:
        """True where it has its turn, and others of its user are behind it."""
        return len(self._lines[user]) > 1 and self.is_first(turn, user)

    def leave(self, turn: Turn, user: User) -> None:
        """One has ended, or waits no more: the next one of its user is woken if it was first."""
        line = self._lines[user]
        if len(line) > 1:
            self._budgets.wait_no_more()
        line.leave(turn)
        if not line:
            del self._lines[user]


class WholeRequest:
    """What one connection takes, for one request at a time.

    Attributes:
        in_use: the request is here and is being decided on; until then it only arrives.
    """

    __slots__ = ("_all", "_is_given", "_place", "_share", "_wake", "in_use")

    def __init__(self, all_requests: WholeRequests, wake: Callable[[], None]) -> None:
        self._all = all_requests
        self._wake = wake
        self._place: tuple[User, Turn] | None = None  # in whose line it stands, and where
        self._is_given = False  # its turn has come, and it has not been seen to
        self._share: BudgetShare | None = None
        self.in_use = False

    @property
    def keeps_others_waiting(self) -> bool:
        """True while a request that still arrives takes room, or the turn, that others wait for."""
        if self.in_use or self._share is None:
            return False
        return self._share.keeps_others_waiting or self.keeps_turn_waiting

    @property
    def keeps_turn_waiting(self) -> bool:
        """True while others of its user wait for this one, which still arrives, to end."""
        if self.in_use or self._place is None:
            return False
        user, turn = self._place
        return self._all.keeps_others_waiting(turn, user)

    def take(self, size_bytes: int, topics: int, user: User) -> bool:
        """Take what a request will need, or keep it; False: ``wake`` is called once there is room."""
        self._is_given = False
        is_large = size_bytes > LARGE_BYTES or topics > LARGE_TOPICS
        if is_large and not self._has_turn(user):
            return False
        if self._share is None:
            budget = self._all.large if is_large else self._all.small
            self._share = BudgetShare(budget, self._wake)
        return self._share.take(_TIMES_ITS_BYTES * size_bytes + _TOPIC_BYTES * topics, user)

    def _has_turn(self, user: User) -> bool:
        """False: there are others of this user before it, and it waits behind them."""
        if self._place is None:
            self._place = user, self._all.join(user, self._its_turn)
        of_user, turn = self._place
        return self._all.is_first(turn, of_user)

    def _its_turn(self) -> None:
        """The one before has ended."""
        self._is_given = True
        self._wake()

    def pass_on(self) -> None:
        """Who was woken and has no use for it now lets the next one go first."""
        if self._share is not None:
            self._share.pass_on()
        if self._is_given:
            self.give_back()

    def give_back(self) -> None:
        """The request has ended, or waits for something else: nothing is taken, nor waited for."""
        self.in_use = self._is_given = False
        share, self._share = self._share, None
        if share is not None:
            share.give_back()
            share.close()
        place, self._place = self._place, None
        if place is not None:
            user, turn = place
            self._all.leave(turn, user)

    def give_back_unused(self) -> bool:
        """Something else keeps the request back: it takes its turn anew. False: it has begun, and keeps it."""
        if self.in_use:
            return False
        self.give_back()
        return True

    def close(self) -> None:
        """Never wake again: with a method of the driver the two would be a cycle."""
        self.give_back()
        self._wake = nobody
