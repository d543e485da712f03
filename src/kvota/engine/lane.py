"""The way from a client to the counter it is charged on."""

from collections.abc import Callable

from kvota.engine.answer_room import AnswerRoom
from kvota.engine.arithmetic import (
    BLOCKED_THROTTLE_MS,
    INT32_MAX,
    is_blocked,
    saturate_to_int32,
)
from kvota.engine.blocked_counter import BlockedCounter
from kvota.engine.counter import Counter
from kvota.engine.counting import Counting
from kvota.engine.debt_bucket import DebtBucket
from kvota.engine.kept_places import PlaceKey
from kvota.engine.sampled_rate import SampledRate
from kvota.engine.waiting_line import Turn, WaitingLine
from kvota.model.quota_type import FACTS, Algorithm, QuotaType
from kvota.model.tags import Tags, tags_text


class Lane:
    """One counter as its clients see it. Mutable and slotted: the hot path reads it for each request.

    ``charge``, ``admit``, ``allowance``, ``refuse`` and ``peek`` are bound methods of the counter (``Counter``
    says what they do), so that nothing stands between the hot path and it. ``peek`` changes nothing.

    Whoever keeps a lane compares ``version`` with the one it has seen; where it differs, anything of
    the lane may be another. Where ``moves`` differs, too, so may be the lane, and the engine has to be asked for
    it again; where it does not, the lane is still its client's, and says what is in force.

    Attributes:
        algorithm: in force; the counter may still be another one, until it is charged.
        configured_limit: per second, as the callback says; None: unlimited.
        factor: what the configured limit is multiplied by.
        limit: in force: both multiplied; None: unlimited. A factor of 0 makes it 0 where there is none, too.
        is_blocked: the limit is below the floor of the quota type: every charge is recorded and
            throttled by ``BLOCKED_THROTTLE_MS``.
        is_shut: a factor of 0 lies over PRODUCE: requests wait, uncharged, however it counts.
        samples: of the window in force; 0: no quota of this type exists, charges are only observed.
        window_ms: how long an empty window is.
        window_bytes: what fits into it (Kafka's maxValueInQuotaWindow).
        line: those who wait for this counter, if any ever did.
        room: of a counter of FETCH, once an answer was expected: those on their way, and who waits.
        is_forgotten: the engine leads nobody here any more; the counter counts elsewhere, or nowhere.
        source: whose answer the limit is from (``engine.counters``).
    """

    __slots__ = (
        "_counting",
        "_counts_by",
        "_floor",
        "admit",
        "algorithm",
        "allowance",
        "charge",
        "configured_limit",
        "counter",
        "factor",
        "is_blocked",
        "is_forgotten",
        "is_shut",
        "limit",
        "line",
        "moves",
        "node_id",
        "peek",
        "quota_type",
        "refuse",
        "room",
        "sample_ms",
        "samples",
        "source",
        "tag_values",
        "tags",
        "version",
        "window_bytes",
        "window_ms",
    )

    charge: Callable[[float, int], int]
    admit: Callable[[float, int], int]
    allowance: Callable[[int], int]
    refuse: Callable[[float, int], int]
    peek: Callable[[int], int]

    def __init__(
        self,
        quota_type: QuotaType,
        node_id: int,
        tags: Tags,
        counter: Counter | None = None,
        *,
        text: str | None = None,
        floor: float | None = None,
    ) -> None:
        """Without a counter: the lane of a type that has no quota; else ``configure`` it first.

        ``text`` is that of the tags, where it is known; ``floor`` that of the quota type unless given.
        """
        self.quota_type = quota_type
        self.node_id = node_id
        self.tag_values = tags
        self.tags = tags_text(tags) if text is None else text
        self.counter = counter
        self.version = self.moves = 0
        self.line: WaitingLine | None = None
        self.room: AnswerRoom | None = None
        self.configured_limit: float | None = None
        self.factor = 1.0
        self.limit: float | None = None
        self.is_blocked = False
        self.is_shut = False
        self.is_forgotten = False
        self.source = 1
        self.samples = self.sample_ms = 0
        self.window_ms = 0
        self.window_bytes = INT32_MAX
        self._counting: Counting | None = None
        self.algorithm = FACTS[quota_type].algorithms[0]
        self._counts_by = self.algorithm if counter is None else _algorithm_of(counter)
        self._floor = FACTS[quota_type].floor if floor is None else floor
        self._lead_to(_NOTHING if counter is None else counter)

    def configure(
        self, *, counting: Counting, configured_limit: float | None, factor: float = 1.0
    ) -> bool:
        """Put these in force; true when anything is another now, and so the version.

        Those who wait are not woken yet: call ``wake_waiters`` when all lanes are configured.
        """
        counts_as_before = counting == self._counting
        if configured_limit == self.configured_limit and factor == self.factor and counts_as_before:
            return False
        assert self.counter is not None, "a lane without a counter has no limit"
        limit = None if configured_limit is None else configured_limit * factor
        if factor == 0.0:
            limit = 0.0  # of an infinite one, and of none at all: a disk is as full for these
        self.configured_limit = configured_limit
        self.factor = factor
        if limit is None and self.limit is None and counts_as_before:
            return False  # nothing that anybody was told, or that is in a row
        self.limit = limit
        self.is_blocked = limit is not None and is_blocked(limit, self._floor)
        # A request let through for each new connection, and after each mute, would fill a disk all the same.
        self.is_shut = self.is_blocked and factor == 0.0 and self.quota_type is QuotaType.PRODUCE
        self._counting = counting
        self.algorithm = counting.algorithm
        self.samples = counting.window.samples
        self.sample_ms = counting.window.sample_ms
        if counting.algorithm is self._counts_by:
            self._configure_counter(self.counter)
        else:
            # At its first charge; without one the counter is as it was when this is taken back.
            self.window_ms = self.new_counter(0).window_ms
            self._lead_to(_Successor(self))
        self.window_bytes = INT32_MAX
        if limit is not None:
            window_bytes = saturate_to_int32(limit * (self.window_ms / 1000))
            self.window_bytes = 0 if self.is_blocked else window_bytes
        self.version += 1
        return True

    def start_anew(self, now_ms: int) -> Counter:
        """Count by the algorithm in force from now on, in a new counter."""
        assert self._counting is not None
        self.counter = counter = self.new_counter(now_ms)
        self._counts_by = self._counting.algorithm
        self._configure_counter(counter)
        self.version += 1
        return counter

    def new_counter(self, now_ms: int) -> Counter:
        """An empty counter of the algorithm in force; the lane goes on with its own."""
        assert self._counting is not None
        return self._counting.new_counter(self.limit, now_ms)

    def _configure_counter(self, counter: Counter) -> None:
        assert self._counting is not None
        limit = self.limit
        if isinstance(counter, DebtBucket):
            counter.set_debt_max(self._counting.debt_max_ms)
            if self.is_blocked:
                limit = 0.0  # what is charged all the same adds no debt: it would never be paid
            if self.line:
                counter.close_gate()
        counter.configure(self._counting.window, limit)
        self.window_ms = counter.window_ms
        self._lead_to(BlockedCounter(counter, is_shut=self.is_shut) if self.is_blocked else counter)

    # ------------------------------------------------------------------ waiting for a turn

    @property
    def makes_wait(self) -> bool:
        """True while a request can have to wait for its turn: in a debt bucket, or where nothing may pass."""
        is_bucket = isinstance(self.counter, DebtBucket) and self._counts_by is self.algorithm
        return is_bucket or self.is_shut

    @property
    def is_charged_at_the_head(self) -> bool:
        """True where a request counts before all of it is here: in a debt bucket, from the first charge on."""
        return self.counter is not None and self.algorithm is Algorithm.TOKEN_BUCKET

    @property
    def ahead_bytes(self) -> int:
        """What may be used ahead of time: a window of it, or what a bucket holds and what may be owed."""
        debt_max_ms = self._counting.debt_max_ms if self._counting is not None else 0
        if self.limit is None or self.is_blocked or not debt_max_ms:
            return self.window_bytes
        return saturate_to_int32(self.limit * (self.window_ms + debt_max_ms) / 1000)

    @property
    def is_counting_so(self) -> bool:
        """True unless the counter's algorithm is no longer in force: the next charge starts another."""
        return self._counts_by is self.algorithm

    def turn_in_ms(self, now_ms: int) -> int:
        """How long it takes until the next of those who wait may go on; 0: it may."""
        if self.is_shut:
            return BLOCKED_THROTTLE_MS
        counter = self.counter
        if not isinstance(counter, DebtBucket) or not self.makes_wait:
            return 0
        return BLOCKED_THROTTLE_MS if self.is_blocked else counter.turn_in_ms(now_ms)

    def reject(self, value: float, now_ms: int) -> int:
        """A request of so many bytes has to wait, uncharged: the throttle for its row.

        In a debt bucket that of what is owed without it; a sampled rate takes it back at once, as of a Fetch.
        """
        assert self.makes_wait, "who waits has something to wait for"
        counter = self.counter if self.is_counting_so else self.start_anew(now_ms)
        assert counter is not None, "a lane without a counter has no limit"
        if isinstance(counter, DebtBucket):
            throttle_ms = counter.reject(now_ms)
        else:
            throttle_ms = counter.refuse(value, now_ms)
        return BLOCKED_THROTTLE_MS if self.is_blocked else throttle_ms

    def went_back(self, now_ms: int) -> bool:
        """True when the clock stands before the last row: waiting ends only behind another one."""
        return isinstance(self.counter, DebtBucket) and self.counter.went_back(now_ms)

    def join(self, wake: Callable[[], None], key: PlaceKey | None = None, now_ms: int = 0) -> Turn:
        """Wait behind all others, or where a place is kept for ``key``; nobody passes without a turn now."""
        turn = self.waiting_line().join(wake, key, now_ms)
        if isinstance(self.counter, DebtBucket):
            self.counter.close_gate()
        return turn

    def leave(self, turn: Turn) -> None:
        """Give the turn up: it has come, or the request is gone. The next one is woken."""
        self.waiting_line().leave(turn)
        self._open_gate_if_empty()

    def give_up(self, turn: Turn, key: PlaceKey, now_ms: int) -> None:
        """Leave before the turn has come; the place is kept for who comes back with this key."""
        self.waiting_line().give_up(turn, key, now_ms)
        self._open_gate_if_empty()

    def _open_gate_if_empty(self) -> None:
        if not self.line and isinstance(self.counter, DebtBucket):
            self.counter.open_gate()

    def outdate(self) -> None:
        """Whoever keeps this lane has to ask for its client's lane again; those who wait are woken."""
        self.version += 1
        self.moves += 1
        self.wake_waiters()

    def waiting_line(self) -> WaitingLine:
        """Those who wait for this counter; made at first use."""
        if self.line is None:
            self.line = WaitingLine()
        return self.line

    def answer_room(self) -> AnswerRoom:
        """What is known of the answers on their way to those who share this counter; made at first use.

        Who waits for room has a line of its own: it closes no gate.
        """
        if self.room is None:
            self.room = AnswerRoom()
        return self.room

    def wake_next(self) -> None:
        """Let the next of those who wait look again: something was given back."""
        if self.line is not None:
            self.line.wake_first()

    def wake_waiters(self) -> None:
        """Let all who wait look again, once."""
        if self.line is not None:
            self.line.wake_all()
        if self.room is not None:
            self.room.line.wake_all()

    def _lead_to(self, target: "Counter | BlockedCounter | _Successor | _Nothing") -> None:
        self.charge = target.charge
        self.admit = target.admit
        self.allowance = target.allowance
        self.refuse = target.refuse
        self.peek = target.peek


class _Successor:
    """The lane of a counter whose algorithm is no longer in force: the first charge starts another."""

    __slots__ = ("_lane",)

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

    def charge(self, value: float, now_ms: int, /) -> int:
        self._lane.start_anew(now_ms)
        return self._lane.charge(value, now_ms)

    def admit(self, value: float, now_ms: int, /) -> int:
        self._lane.start_anew(now_ms)
        return self._lane.admit(value, now_ms)

    def refuse(self, value: float, now_ms: int, /) -> int:
        self._lane.start_anew(now_ms)
        return self._lane.refuse(value, now_ms)

    def allowance(self, now_ms: int, /) -> int:
        return 0 if self._lane.is_blocked else self._lane.new_counter(now_ms).allowance(now_ms)

    def peek(self, _now_ms: int, /) -> int:
        return BLOCKED_THROTTLE_MS if self._lane.is_blocked else 0


class _Nothing:
    """No counter at all: nothing is recorded, nobody is throttled."""

    __slots__ = ()

    def charge(self, _value: float, _now_ms: int, /) -> int:
        return 0

    def allowance(self, _now_ms: int, /) -> int:
        return INT32_MAX

    admit = refuse = charge

    def peek(self, _now_ms: int, /) -> int:
        return 0


_NOTHING = _Nothing()


def _algorithm_of(counter: Counter) -> Algorithm:
    sampled = isinstance(counter, SampledRate)
    return Algorithm.SAMPLED_RATE if sampled else Algorithm.TOKEN_BUCKET
