"""The way from a client to the counter it is charged on."""

from collections.abc import Callable
from typing import Protocol

from kvota.engine.arithmetic import (
    BLOCKED_THROTTLE_MS,
    INT32_MAX,
    is_blocked,
    saturate_to_int32,
)
from kvota.engine.waiting_line import WaitingLine
from kvota.model.quota_type import FACTS, QuotaType
from kvota.model.quota_window import QuotaWindow
from kvota.model.tags import Tags, tags_text


class Counter(Protocol):
    """An algorithm with its contents; ``SampledRate`` and ``BucketCounter`` are such."""

    @property
    def last_ms(self) -> int:
        """When something was last recorded, else when it was born."""
        ...

    @property
    def window_ms(self) -> int:
        """How long a window is in which nothing was recorded."""
        ...

    def configure(self, window: QuotaWindow, limit: float | None) -> None:
        """Replace window and limit; the contents stay, unless the window is another one."""
        ...

    def is_as_new(self, now_ms: int) -> bool:
        """True when no decision from now on would differ from that of a new counter."""
        ...

    def charge(self, value: float, now_ms: int, /) -> int:
        """Record, then check."""
        ...

    def allowance(self, now_ms: int, /) -> int:
        """Whole units that a charge may take before it violates."""
        ...

    def refuse(self, value: float, now_ms: int, /) -> int:
        """Charge, and take back at once."""
        ...

    def peek(self, now_ms: int, /) -> int:
        """The throttle that a charge of nothing would be told; changes nothing."""
        ...


class Lane:
    """One counter as its clients see it. Mutable and slotted: the hot path reads it for each request.

    ``charge(value, now_ms)`` records, then checks: 0, or the throttle in ms (<= 0 does not
    throttle). ``allowance(now_ms)``: whole units the window still takes, 0 to 2**31-1.
    ``refuse(value, now_ms)``: what a charge would be told, and nothing counted. ``peek(now_ms)``: what
    a charge of nothing would be told; it changes nothing, so observers may ask at any time. All four
    are bound methods of the counter, so that nothing stands between the hot path and it.

    Whoever keeps a lane compares ``version`` with the one it has seen; where it differs, anything of
    the lane may be another, and the engine has to be asked for it again.

    Attributes:
        configured_limit: per second, as the callback says; None: unlimited.
        factor: what the configured limit is multiplied by.
        limit: in force: both multiplied; None: unlimited.
        is_blocked: the limit is below the floor of the quota type: every charge is recorded and
            throttled by ``BLOCKED_THROTTLE_MS``.
        samples: of the window in force; 0: no quota of this type exists, charges are only observed.
        window_ms: how long an empty window is.
        window_bytes: what fits into it (Kafka's maxValueInQuotaWindow).
        line: those who wait for this counter, if any ever did.
    """

    __slots__ = (
        "_floor",
        "_window",
        "allowance",
        "charge",
        "configured_limit",
        "counter",
        "factor",
        "is_blocked",
        "limit",
        "line",
        "node_id",
        "peek",
        "quota_type",
        "refuse",
        "sample_ms",
        "samples",
        "tag_values",
        "tags",
        "version",
        "window_bytes",
        "window_ms",
    )

    charge: Callable[[float, int], int]
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
        self.version = 0
        self.line: WaitingLine | None = None
        self.configured_limit: float | None = None
        self.factor = 1.0
        self.limit: float | None = None
        self.is_blocked = False
        self.samples = self.sample_ms = 0
        self.window_ms = 0
        self.window_bytes = INT32_MAX
        self._window: QuotaWindow | None = None
        self._floor = FACTS[quota_type].floor if floor is None else floor
        self._lead_to(_NOTHING if counter is None else counter)

    def configure(
        self, *, window: QuotaWindow, configured_limit: float | None, factor: float = 1.0
    ) -> bool:
        """Put these in force; true when anything is another now, and so the version.

        Those who wait are not woken yet: call ``wake_waiters`` when all lanes are configured.
        """
        counter = self.counter
        assert counter is not None, "a lane without a counter has no limit"
        if (
            configured_limit == self.configured_limit
            and factor == self.factor
            and window == self._window
        ):
            return False
        limit = None if configured_limit is None else configured_limit * factor
        if limit is not None and factor == 0.0:
            limit = 0.0  # of an infinite one, too
        counter.configure(window, limit)
        self.configured_limit = configured_limit
        self.factor = factor
        self.limit = limit
        self._window = window
        self.samples = window.samples
        self.sample_ms = window.sample_ms
        self.window_ms = counter.window_ms
        self.is_blocked = limit is not None and is_blocked(limit, self._floor)
        if limit is None:
            self.window_bytes = INT32_MAX
        elif self.is_blocked:
            self.window_bytes = 0
        else:
            self.window_bytes = saturate_to_int32(limit * (self.window_ms / 1000))
        self._lead_to(_Blocked(counter) if self.is_blocked else counter)
        self.version += 1
        return True

    def outdate(self) -> None:
        """Whoever keeps this lane has to ask for its client's lane again; those who wait are woken."""
        self.version += 1
        self.wake_waiters()

    def waiting_line(self) -> WaitingLine:
        """Those who wait for this counter; made at first use."""
        if self.line is None:
            self.line = WaitingLine()
        return self.line

    def wake_waiters(self) -> None:
        """Let all who wait look again, once."""
        if self.line is not None:
            self.line.wake_all()

    def _lead_to(self, target: "Counter | _Blocked | _Nothing") -> None:
        self.charge = target.charge
        self.allowance = target.allowance
        self.refuse = target.refuse
        self.peek = target.peek


class _Blocked:
    """A counter whose limit is below the floor: it counts on, and lets nothing pass freely."""

    __slots__ = ("_counter",)

    def __init__(self, counter: Counter) -> None:
        self._counter = counter

    def charge(self, value: float, now_ms: int, /) -> int:
        self._counter.charge(value, now_ms)
        return BLOCKED_THROTTLE_MS

    def allowance(self, _now_ms: int, /) -> int:
        return 0

    def refuse(self, value: float, now_ms: int, /) -> int:
        self._counter.refuse(value, now_ms)
        return BLOCKED_THROTTLE_MS

    def peek(self, _now_ms: int, /) -> int:
        return BLOCKED_THROTTLE_MS


class _Nothing:
    """No counter at all: nothing is recorded, nobody is throttled."""

    __slots__ = ()

    def charge(self, _value: float, _now_ms: int, /) -> int:
        return 0

    def allowance(self, _now_ms: int, /) -> int:
        return INT32_MAX

    refuse = charge

    def peek(self, _now_ms: int, /) -> int:
        return 0


_NOTHING = _Nothing()
