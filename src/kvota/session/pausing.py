"""Why the next request of a connection is not taken yet, and when that is looked at again.

There is one set of reasons. While it is not empty nothing behind the running frame is taken; the
reasons in ``AT_ONCE`` also leave the rest of the running frame in the socket. A mute ends at a
deadline: ``next_deadline_ms`` offers it, the driver keeps one timer and calls ``deadline_passed``.
"""

from enum import IntEnum


class Reason(IntEnum):
    """The reasons, a bit each.

    No ``IntFlag``: what is made of these with ``|``, ``&`` and ``~`` is a plain int, as the hot path wants it. A flag
    that once got into ``Pausing.reasons`` would stay in it, and every look at it would be a call.
    """

    MUTED = 1  # a quota says so
    WAITING = 2  # a mutation or a login is under way: a broker, too, has one request in hand
    BUDGET = 4  # the announced-bytes budget has no room for the next frame
    IN_FLIGHT = 8  # too many requests have not been answered yet
    DRAINING = 16  # the gateway is stopping
    ASKING = 32  # the quota callback has been asked about this client
    UPSTREAM_FULL = 64  # the broker reads slowly
    DIALLING = 128  # the broker has not accepted the connection yet
    CLIENT_FULL = 256  # the client reads its answers slowly
    IN_LINE = 512  # a request waits for its turn, or a Fetch for room (line_place, fetch_room)
    STEP = 1024  # one step has looked up as many clients as one may
    FETCHING = 2048  # a Fetch waits for the answer to the one before it
    ROOM = 4096  # no memory for a request that is kept whole (kvota.session.whole_requests)


# These hold up the rest of a frame that has begun, too: it has nowhere to go.
AT_ONCE = int(Reason.UPSTREAM_FULL | Reason.DIALLING | Reason.CLIENT_FULL)
_MUTED = int(Reason.MUTED)
_ASKING = int(Reason.ASKING)
_IN_LINE = int(Reason.IN_LINE)
_WAITING = int(Reason.WAITING)


class Pausing:
    """The reasons of one connection, and the deadlines among them, on a monotonic clock in ms.

    One mute lasts ``cap_ms`` at most, so that consumers do not time out; its deadline is not cut. After
    a capped mute one request is let through, then what is left until the deadline goes on. A Produce is
    not, nor a topic mutation that cannot be refused: for them the mute is the whole quota.

    Attributes:
        reasons: bits of ``Reason``.
        deadline_changed: true while the driver has not asked for the next deadline since it moved.
        passing_until_us: the deadline behind a capped mute (Unix µs) while one request is let through,
            else 0.
    """

    __slots__ = (
        "_asking_asked_ms",
        "_asking_deadline_ms",
        "_cap_ms",
        "_give_up_asked_ms",
        "_give_up_deadline_ms",
        "_mute_asked_ms",
        "_mute_deadline_ms",
        "_muted_since_ms",
        "_offered_ms",
        "_passing_left_ms",
        "_turn_asked_ms",
        "_turn_deadline_ms",
        "_waiting_asked_ms",
        "_waiting_deadline_ms",
        "deadline_changed",
        "passing_until_us",
        "reasons",
    )

    def __init__(self, *, cap_ms: int) -> None:
        self.reasons = 0
        self.deadline_changed = False
        self.passing_until_us = 0
        self._cap_ms = cap_ms
        self._mute_asked_ms = 0
        self._mute_deadline_ms = 0
        self._muted_since_ms: int | None = None
        self._passing_left_ms = 0
        self._asking_asked_ms = 0
        self._asking_deadline_ms = 0
        self._turn_asked_ms: int | None = None
        self._turn_deadline_ms: int | None = None
        self._give_up_asked_ms: int | None = None
        self._give_up_deadline_ms: int | None = None
        self._waiting_asked_ms: int | None = None
        self._waiting_deadline_ms: int | None = None
        self._offered_ms = 0

    # ------------------------------------------------------------------ what the machine says

    def mute(self, throttle_ms: int) -> None:
        """Take no request for so long from now on; a longer mute that already runs stays."""
        self.reasons |= _MUTED
        self.deadline_changed = True
        self._mute_asked_ms = max(self._mute_asked_ms, throttle_ms)

    @property
    def is_muting(self) -> bool:
        """True while a mute runs, or one request is let through in the middle of it."""
        return bool(self.reasons & _MUTED or self.passing_until_us)

    def mute_left_ms(self, monotonic_ms: int, now_us: int) -> int:
        """How long the running mute still lasts, with what goes on behind a pause in it; 0: none runs."""
        if self.reasons & _MUTED:
            return max(self._mute_deadline_ms - monotonic_ms, self._mute_asked_ms, 0)
        return self.passing_left_ms(now_us) if self.passing_until_us else 0

    def mute_again(self, now_us: int) -> bool:
        """What is left of the deadline behind a capped mute goes on; false: nothing is."""
        goes_on = now_us < self.passing_until_us
        if goes_on:
            self.mute(0)
        self.passing_until_us = 0
        return goes_on

    def passing_left_ms(self, now_us: int) -> int:
        """How long the mute goes on behind the request that is let through; > 0 while it does."""
        # A clock that steps back must not turn a mute into hours.
        return min((self.passing_until_us - now_us + 999) // 1000, self._passing_left_ms)

    def ask(self, at_most_ms: int) -> None:
        """Take no request until an answer from outside is here, for so long at most."""
        self.reasons |= _ASKING
        self.deadline_changed = True
        self._asking_asked_ms = at_most_ms

    def wait(self, at_most_ms: int | None) -> None:
        """Take no request until the broker has answered, for so long at most; None: for ever."""
        self.reasons |= _WAITING
        self.deadline_changed = True
        self._waiting_asked_ms = at_most_ms
        self._waiting_deadline_ms = None

    def give_up_waiting_in(self, at_most_ms: int | None) -> None:
        """A wait in line begins; it ends after so long at the latest, None: never."""
        self._give_up_asked_ms = at_most_ms
        self._give_up_deadline_ms = None

    def stand_in_line(self, turn_in_ms: int | None) -> None:
        """Take no request until its turn; None: the one before it wakes this one."""
        self.reasons |= _IN_LINE
        self.deadline_changed = True
        self._turn_asked_ms = turn_in_ms
        self._turn_deadline_ms = None

    def gives_up(self, monotonic_ms: int) -> bool:
        """True when a request has waited in line for as long as it may."""
        give_up_ms = self._give_up_deadline_ms
        return (
            bool(self.reasons & _IN_LINE)
            and give_up_ms is not None
            and (max(monotonic_ms, self._offered_ms) >= give_up_ms)
        )

    def has_waited_too_long(self, monotonic_ms: int) -> bool:
        """True when the broker has not answered for as long as may be waited."""
        end_ms = self._waiting_deadline_ms
        return (
            bool(self.reasons & _WAITING)
            and end_ms is not None
            and max(monotonic_ms, self._offered_ms) >= end_ms
        )

    def replace_mute(self, throttle_ms: int) -> None:
        """The counter behind the running mute has changed: it ends so long from now on, not before."""
        if self.reasons & _MUTED:
            self._mute_deadline_ms = 0
            self._mute_asked_ms = 0
            self.mute(throttle_ms)
        elif self.passing_until_us and not throttle_ms:
            self.passing_until_us = 0

    # ------------------------------------------------------------------ what the driver asks

    def next_deadline_ms(self, monotonic_ms: int) -> int | None:
        """When to call ``deadline_passed``; None while nothing ends by itself."""
        self.deadline_changed = False
        ends_ms = []
        if self.reasons & _MUTED:
            asked_ms, self._mute_asked_ms = self._mute_asked_ms, 0
            self._mute_deadline_ms = max(self._mute_deadline_ms, monotonic_ms + asked_ms)
            if self._muted_since_ms is None:
                self._muted_since_ms = monotonic_ms
            ends_ms.append(self._mute_end_ms())
        if self.reasons & _ASKING:
            if self._asking_asked_ms:
                self._asking_deadline_ms = monotonic_ms + self._asking_asked_ms
                self._asking_asked_ms = 0
            ends_ms.append(self._asking_deadline_ms)
        if self.reasons & _WAITING:
            ends_ms += self._end_of_waiting(monotonic_ms)
        if self.reasons & _IN_LINE:
            if self._turn_asked_ms is not None:
                self._turn_deadline_ms = monotonic_ms + self._turn_asked_ms
                self._turn_asked_ms = None
            if self._give_up_asked_ms is not None:
                self._give_up_deadline_ms = monotonic_ms + self._give_up_asked_ms
                self._give_up_asked_ms = None
            ends_ms += self._ends_in_line()
        if not ends_ms:
            return None
        self._offered_ms = min(ends_ms)
        return self._offered_ms

    def deadline_passed(self, monotonic_ms: int, now_us: int) -> int:
        """The offered time has come; returns the reasons that are over and must be resumed.

        A timer may fire a fraction of a millisecond early: what it was set for is over.
        """
        reached_ms = max(monotonic_ms, self._offered_ms)
        self.deadline_changed = True
        over = 0
        if self.reasons & _MUTED and reached_ms >= self._mute_end_ms():
            over |= _MUTED
            self._muted_since_ms = None
            left_ms = self._mute_deadline_ms - reached_ms
            if left_ms > 0:
                self._passing_left_ms = left_ms
                self.passing_until_us = now_us + left_ms * 1000
        if self.reasons & _ASKING and reached_ms >= self._asking_deadline_ms:
            over |= _ASKING
        if self.reasons & _IN_LINE and any(reached_ms >= end for end in self._ends_in_line()):
            over |= _IN_LINE
        return over

    def _end_of_waiting(self, monotonic_ms: int) -> list[int]:
        if self._waiting_asked_ms is not None:
            self._waiting_deadline_ms = monotonic_ms + self._waiting_asked_ms
            self._waiting_asked_ms = None
        return [] if self._waiting_deadline_ms is None else [self._waiting_deadline_ms]

    def _ends_in_line(self) -> list[int]:
        ends = (self._turn_deadline_ms, self._give_up_deadline_ms)
        return [end_ms for end_ms in ends if end_ms is not None]

    def _mute_end_ms(self) -> int:
        assert self._muted_since_ms is not None
        return min(self._mute_deadline_ms, self._muted_since_ms + self._cap_ms)
