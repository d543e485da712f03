"""How many announced bytes may be on their way to the brokers at once.

A broker allocates the announced size of a request before it has read it, so a few connections that
announce much and send little can exhaust its heap. Only frames that have not arrived whole count.
"""

from collections import OrderedDict
from collections.abc import Callable

from kvota.session.budget_line import BudgetLine
from kvota.session.waking import nobody

# Who shares room: the user's name and, where nobody has logged in, the address of the client.
User = tuple[str, str]

# For so many sweeps (2 s each) after users have stood in each other's way shares go on to bind: who
# takes all there is whenever nobody waits would else stand in the way once per request of the others.
_CALM_AFTER_SWEEPS = 15
# A user that is next keeps others back for so many looks (0.1 s each), then they go on.
_KEEPS_BACK_LOOKS = 20
# This part of the room is for users who hold no more than that: one user alone never fills all of it.
_KEPT_PART = 8


class AnnouncedBudget:
    """A budget of bytes shared by all connections.

    Who finds it spent waits; the room is then taken for it, and it is woken. Users take turns, of one
    user's frames the small ones go first: a few that announce as much as can be announced do not keep
    out the many that do not. A user whom as much has passed as there is room for goes next, whatever
    the size; so does a frame among those of its user.

    While users stand in each other's way, and for some time after, none may hold more than it leaves
    to the others: half of the budget, or of what the others have left of it. A frame larger than that
    passes when nobody holds anything, or when its user is next. An eighth is kept for those who hold
    little: a user who comes to a budget that another one has filled does not wait until that is mended.

    Args:
        limit_bytes: the sum is never larger, but for a frame that is alone.
        when_waited: called when somebody has begun to wait.
    """

    def __init__(self, *, limit_bytes: int, when_waited: Callable[[], None]) -> None:
        self.limit_bytes = limit_bytes
        self._kept_bytes = limit_bytes // _KEPT_PART
        self._when_waited = when_waited
        self._used_bytes = 0
        self._held_bytes: dict[User, int] = {}
        # As they came or were last let in.
        self._waiting: OrderedDict[User, BudgetLine[BudgetShare]] = OrderedDict()
        self._passed_bytes = 0  # all that was ever let in
        self._kept_back_looks = 0
        self._calm_in_sweeps = 0

    @property
    def used_bytes(self) -> int:
        """Announced bytes of frames that are being relayed."""
        return self._used_bytes

    @property
    def user_bytes_max(self) -> int:
        """How much one user may fill: the rest is for those who hold little."""
        return self.limit_bytes - self._kept_bytes

    @property
    def is_waited_for(self) -> bool:
        """True while somebody has found it spent, and there has been no room since."""
        return bool(self._waiting)

    def held_bytes(self, user: User) -> int:
        """How much this user holds."""
        return self._held_bytes.get(user, 0)

    def is_more_than_fair(self, user: User) -> bool:
        """True while a user holds more than an equal part, and another one waits."""
        if not any(other != user for other in self._waiting):
            return False
        return self.held_bytes(user) > self.limit_bytes // self._users()

    # ------------------------------------------------------------------ taking and giving back

    def take(self, share: "BudgetShare", size_bytes: int) -> bool:
        """Take if it is this one's turn and fits, else wait. A frame larger than all may pass alone."""
        is_free = not self._waiting and not self._calm_in_sweeps
        if is_free and self._fits(size_bytes, self._open_to(share.user, size_bytes)):
            self._take(size_bytes, share.user)
            return True
        line = self._waiting.get(share.user)
        if line is None:
            line = self._waiting[share.user] = BudgetLine(self._passed_bytes)
        line.join(share, size_bytes)
        granted = self._admit()
        for other in granted:
            if other is not share:
                other.grant()
        if share in granted:
            return True
        if self._users() > 1:
            self._calm_in_sweeps = _CALM_AFTER_SWEEPS
        self._when_waited()
        return False

    def add(self, size_bytes: int, user: User) -> None:
        """Take what is on its way already."""
        self._used_bytes += size_bytes
        self._held_bytes[user] = self._held_bytes.get(user, 0) + size_bytes

    def give_back(self, size_bytes: int, user: User) -> None:
        """Give back what was taken, and let in those for whom there is room now."""
        self._used_bytes -= size_bytes
        left_bytes = self._held_bytes[user] - size_bytes
        if left_bytes:
            self._held_bytes[user] = left_bytes
        else:
            del self._held_bytes[user]
        self._let_in()

    def stop_waiting(self, share: "BudgetShare") -> None:
        """Who waited waits no more; others may have waited for it to pass."""
        self._leave(share)
        self._let_in()

    # ------------------------------------------------------------------ time passes

    def look(self) -> None:
        """Due every tenth of a second while somebody waits: who is next keeps others back for a while."""
        if not self._waiting:
            return
        user, line = next(iter(self._waiting.items()))
        if not self._is_next(user, line):
            self._kept_back_looks = 0
            return
        self._kept_back_looks += 1
        if self._kept_back_looks >= _KEEPS_BACK_LOOKS:
            self._kept_back_looks = 0
            self._move_back(user, line)
            self._let_in()

    def sweep(self) -> None:
        """Due every other second: without a dispute shares bind no more after some time."""
        is_disputed = self._waiting and self._users() > 1
        if self._calm_in_sweeps and not is_disputed:
            self._calm_in_sweeps -= 1
            if not self._calm_in_sweeps:
                self._let_in()

    # ------------------------------------------------------------------ who is next

    def _let_in(self) -> None:
        for share in self._admit():
            share.grant()

    def _admit(self) -> "list[BudgetShare]":
        """Take the room for all that may pass now; they have to be told."""
        granted: list[BudgetShare] = []
        while self._waiting:
            found = self._find_next()
            if found is None:
                break
            size_bytes, share = found
            line = self._waiting[share.user]
            line.let_in(size_bytes)
            self._take(size_bytes, share.user)
            self._move_back(share.user, line)
            self._leave(share)
            granted.append(share)
        return granted

    def _find_next(self) -> "tuple[int, BudgetShare] | None":
        user, first = next(iter(self._waiting.items()))
        if self._is_next(user, first):
            size_bytes, share = first.next(self.limit_bytes)
            return (size_bytes, share) if self._fits(size_bytes, self.limit_bytes) else None
        for user, line in self._waiting.items():
            size_bytes, share = line.next(self.limit_bytes)
            room_bytes = self._open_to(user, size_bytes)
            if self._fits(size_bytes, room_bytes) and self._is_within_share(size_bytes, user):
                return size_bytes, share
        return None

    def _take(self, size_bytes: int, user: User) -> None:
        self._passed_bytes += size_bytes
        self.add(size_bytes, user)

    def _leave(self, share: "BudgetShare") -> None:
        line = self._waiting[share.user]
        line.leave(share)
        if not line:
            del self._waiting[share.user]

    def _move_back(self, user: User, line: "BudgetLine[BudgetShare]") -> None:
        line.served_before_bytes = self._passed_bytes
        self._waiting.move_to_end(user)

    def _is_next(self, user: User, line: "BudgetLine[BudgetShare]") -> bool:
        """True for who has been passed for long; who holds more than its part is in its own way."""
        if self._passed_bytes - line.served_before_bytes < self.limit_bytes:
            return False
        return self.held_bytes(user) * self._users() <= self.limit_bytes

    def _fits(self, size_bytes: int, room_bytes: int) -> bool:
        return not self._used_bytes or self._used_bytes + size_bytes <= room_bytes

    def _open_to(self, user: User, size_bytes: int) -> int:
        """How full it may be with one more frame of this user."""
        if self.held_bytes(user) + size_bytes <= self._kept_bytes:
            return self.limit_bytes
        return self.limit_bytes - self._kept_bytes

    def _is_within_share(self, size_bytes: int, user: User) -> bool:
        if not self._used_bytes or (len(self._waiting) == 1 and not self._calm_in_sweeps):
            return True
        left_bytes = self.limit_bytes - self._used_bytes - size_bytes
        return self.held_bytes(user) + size_bytes <= left_bytes

    def _users(self) -> int:
        """How many hold room or wait for it."""
        return len(self._held_bytes.keys() | self._waiting.keys())


class AnnouncedBudgets:
    """One budget for each broker: it is the broker's memory, and one that hangs holds up no other.

    Attributes:
        limit_bytes: of each.
        when_waited: called when somebody has begun to wait; ``look`` is due while ``is_waited_for``.
    """

    def __init__(self, *, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._of: dict[tuple[str, int], AnnouncedBudget] = {}
        self._others: list[AnnouncedBudget] = []
        self._waiting_beside = 0
        self.when_waited: Callable[[], None] = nobody

    def of(self, address: tuple[str, int]) -> AnnouncedBudget:
        """The budget of the broker at this address."""
        budget = self._of.get(address)
        if budget is None:
            budget = self._of[address] = AnnouncedBudget(
                limit_bytes=self.limit_bytes, when_waited=self._waited
            )
        return budget

    def are_one(self, name: tuple[str, int], address: tuple[str, int]) -> None:
        """A broker that was dialled by this name is the one at this address: it has one memory."""
        one = self._of.get(address) or self.of(name)
        self._of[name] = self._of[address] = one

    def another(self, *, limit_bytes: int) -> AnnouncedBudget:
        """A budget of the gateway's own memory that goes by the same rules."""
        budget = AnnouncedBudget(limit_bytes=limit_bytes, when_waited=self._waited)
        self._others.append(budget)
        return budget

    def wait_beside(self) -> None:
        """Somebody waits for another thing that is somebody's until its request has arrived."""
        self._waiting_beside += 1
        self.when_waited()

    def wait_no_more(self) -> None:
        """The end of that."""
        self._waiting_beside -= 1

    def _waited(self) -> None:
        self.when_waited()

    @property
    def used_bytes(self) -> int:
        """Announced bytes of frames that are being relayed to any broker."""
        return sum(budget.used_bytes for budget in set(self._of.values()))

    def _all(self) -> list[AnnouncedBudget]:
        return list(dict.fromkeys((*self._of.values(), *self._others)))

    @property
    def is_waited_for(self) -> bool:
        """True while somebody waits for room in any of them, or beside them."""
        return self._waiting_beside > 0 or any(budget.is_waited_for for budget in self._all())

    def look(self) -> None:
        """Due every tenth of a second while somebody waits."""
        for budget in self._all():
            budget.look()

    def sweep(self) -> None:
        """Due every other second."""
        for budget in self._all():
            budget.sweep()


class BudgetShare:
    """What one connection takes of the budget of its broker, for one frame at a time.

    Attributes:
        taken_bytes: for the frame that has begun and not ended.
        user: whose it is.
    """

    __slots__ = ("_asked_bytes", "_budget", "_is_granted", "_wake", "taken_bytes", "user")

    def __init__(self, budget: AnnouncedBudget, wake: Callable[[], None]) -> None:
        self._budget = budget
        self._wake = wake
        self._asked_bytes = 0
        self._is_granted = False  # its turn has come, and it has not been seen to
        self.taken_bytes = 0
        self.user: User = ("", "")

    @property
    def user_bytes_max(self) -> int:
        """How much of the budget one user may fill."""
        return self._budget.user_bytes_max

    @property
    def keeps_others_waiting(self) -> bool:
        """True while it takes room that others wait for."""
        return self.taken_bytes > 0 and self._budget.is_waited_for

    @property
    def is_more_than_fair(self) -> bool:
        """True while its user holds more than an equal part of what others wait for."""
        return self.taken_bytes > 0 and self._budget.is_more_than_fair(self.user)

    def take(self, size_bytes: int, user: User) -> bool:
        """Take room for a frame, or keep it; False: there is none, and ``wake`` is called once there is."""
        self._is_granted = False
        if self.taken_bytes == size_bytes:
            return True
        self.give_back()
        if self._asked_bytes == size_bytes:
            return False
        self._stop_waiting()
        self.user = user
        if self._budget.take(self, size_bytes):
            self.taken_bytes = size_bytes
            self._asked_bytes = 0
            return True
        self._asked_bytes = size_bytes
        return False

    def hold(self, size_bytes: int, user: User) -> None:
        """Take room for what is here already, though there may be none."""
        self.user = user
        self.taken_bytes = size_bytes
        self._budget.add(size_bytes, user)

    def grant(self) -> None:
        """The budget has taken the room that was asked for: ``take`` will find it."""
        self.taken_bytes, self._asked_bytes = self._asked_bytes, 0
        self._is_granted = True
        self._wake()

    def give_back(self) -> None:
        """The frame has ended, or waits for something else."""
        taken_bytes, self.taken_bytes = self.taken_bytes, 0
        self._is_granted = False
        if taken_bytes:
            self._budget.give_back(taken_bytes, self.user)

    def leave(self) -> None:
        """Nothing is taken or waited for any more."""
        self._stop_waiting()
        self.give_back()

    def pass_on(self) -> None:
        """A connection that was woken and has no use for the room lets the next one have it."""
        if self._is_granted:
            self.give_back()

    def move(self, budget: AnnouncedBudget) -> None:
        """Another broker is reached, and it is that one's memory; in its own, others would be let in meanwhile."""
        if budget is self._budget:
            return
        taken_bytes, is_granted, waits = self.taken_bytes, self._is_granted, self._asked_bytes > 0
        self.give_back()
        self._stop_waiting()
        self._budget = budget
        if taken_bytes:
            budget.add(taken_bytes, self.user)
        self.taken_bytes, self._is_granted = taken_bytes, is_granted
        if waits:
            self._wake()  # to ask the other one

    def close(self) -> None:
        """Wait no more, and never wake again: with a method of the driver the two would be a cycle."""
        self._stop_waiting()
        self._wake = nobody

    def _stop_waiting(self) -> None:
        if self._asked_bytes:
            self._asked_bytes = 0
            self._budget.stop_waiting(self)
