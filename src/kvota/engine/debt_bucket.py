"""A token bucket for bandwidth that keeps its debt: the counter of ``algorithm = "token_bucket"``.

Kafka's sampled rate forgets what was used before its window, and tells every connection of a client the
same wait, which all of them wait at the same time. This one forgets nothing: a debt is paid by time
alone. Who comes while more than ``debt_max`` is owed is not charged but has to wait for its turn
(``MUST_WAIT``), so per counter, in every interval,

    sum of value / limit in force <= elapsed + burst + debt_max + one request

holds for whatever is charged by ``charge``, and by ``admit`` while ``turn_in_ms`` is 0, however many connections charge it,
as long as the limit is not raised. Where it is, what is owed stays as many bytes: who has asked for a thousand seconds
of a limit that was far too low, or that a full disk had lowered, does not have to wait for them. What holds in every
interval, whatever the limit does, is the same with the highest limit of the interval in the place of the one in force. Without a
limit nobody waits. A limit that falls keeps what is owed as time.
"""

from math import ceil
from struct import Struct
from typing import NamedTuple, Self

from kvota.engine.arithmetic import (
    INT32_MAX,
    UNLIMITED,
    debt_at,
    debt_throttle,
    debt_under,
    debt_with,
    saturate_to_int32,
    unit_ms,
    worth_with,
)
from kvota.model.quota_window import QuotaWindow

# What ``charge`` answers where a request has to wait for its turn; no throttle is as small.
MUST_WAIT = -(2**31) - 1

# Below every debt: nobody passes while others wait.
_CLOSED = float("-inf")

# Of a packed one: last record, debt, and under which limit that was charged.
_PACKED = Struct("<qdd")
# What is left of a charge after so many raises is less than any charge.
_LEFT_MIN = 1e-100


class Mark(NamedTuple):
    """A moment, for ``DebtBucket.left_of``.

    Attributes:
        gone_back_ms: how far the clock had gone back.
        left: what raises had left of debts that were never paid, as a share.
        freed: how often nothing was.
    """

    gone_back_ms: int
    left: float
    freed: int


class DebtBucket:
    """What is owed, in time; the module's docstring says what it holds.

    Nothing but ``charge`` (unless it answers ``MUST_WAIT``), ``admit``, ``refuse`` and ``reject``
    changes it, and each of them has a row in the record: so the record can be replayed exactly.

    >>> bucket = DebtBucket(QuotaWindow(1, 1000), 1000.0, debt_max_ms=15_000, born_ms=0)
    >>> [bucket.charge(2_000, 0), bucket.charge(20_000, 0), bucket.charge(1, 0) == MUST_WAIT]
    [1000, 21000, True]
    >>> bucket.turn_in_ms(0), bucket.peek(0)
    (6000, 21000)
    """

    __slots__ = (
        "_burst_ms",
        "_debt_max_ms",
        "_debt_ms",
        "_freed",
        "_full_ms",
        "_gate_ms",
        "_gone_back_ms",
        "_left",
        "_limit",
        "_look_ms",
        "_unit_ms",
        "_window",
        "_worth",
        "last_ms",
    )

    def __init__(
        self, window: QuotaWindow, limit: float | None, *, debt_max_ms: float, born_ms: int
    ) -> None:
        self.last_ms = born_ms
        self._gone_back_ms = 0
        self._left, self._freed = 1.0, 0
        self._debt_max_ms = self._gate_ms = float(debt_max_ms)
        self._worth = 0.0
        self.configure(window, limit, keeps_time=True)
        # Full, whatever the burst is when the first one comes: only from then on there are rows.
        self._debt_ms = float("-inf")

    @property
    def window_ms(self) -> int:
        """The time whose tokens a full bucket holds."""
        return self._window.sample_ms

    def configure(
        self, window: QuotaWindow, limit: float | None, *, keeps_time: bool = False
    ) -> None:
        """Replace burst and limit.

        Under a higher limit what is owed stays as bytes, from the next charge on; under a lower one as time.

        Args:
            window: whose length is the burst.
            limit: per second; None: none.
            keeps_time: what is owed stays as time under a higher one, too.
        """
        self._window = window
        self._burst_ms = float(window.samples * window.sample_ms)
        self._full_ms = -self._burst_ms  # the debt of a full bucket
        self._limit = UNLIMITED if limit is None else float(limit)
        self._unit_ms = unit_ms(self._limit) if self._limit > 0 else 0.0
        if keeps_time:
            self._worth = self._limit
        self._look()

    def set_debt_max(self, debt_max_ms: float) -> None:
        """Replace what may be owed before others have to wait."""
        is_closed = self._gate_ms == _CLOSED
        self._debt_max_ms = float(debt_max_ms)
        self._gate_ms = _CLOSED if is_closed else self._debt_max_ms
        self._look()

    def close_gate(self) -> None:
        """Somebody waits: who comes now has to wait, too."""
        self._gate_ms = _CLOSED
        self._look()

    def open_gate(self) -> None:
        """Nobody waits any more."""
        self._gate_ms = self._debt_max_ms
        self._look()

    def _look(self) -> None:
        """Find the debt above which a charge is no plain one."""
        is_plain = self._worth == self._limit
        self._look_ms = self._gate_ms if is_plain else min(self._gate_ms, 0.0)

    def is_as_new(self, now_ms: int) -> bool:
        """True when no decision from ``now_ms`` on would differ from that of a new counter."""
        return self._debt_at(now_ms) <= self._full_ms

    # ------------------------------------------------------------------ put away and taken out

    def packed(self) -> bytes:
        """What is owed, as few bytes; nobody may wait for a turn."""
        return _PACKED.pack(self.last_ms, self._debt_ms, self._worth)

    @classmethod
    def unpacked(cls, contents: bytes, window: QuotaWindow, *, debt_max_ms: float) -> Self:
        """The counter that ``packed`` has made these bytes of; give it its limit by ``configure``."""
        last_ms, debt_ms, worth = _PACKED.unpack(contents)
        return cls.owing(last_ms, debt_ms, window, debt_max_ms=debt_max_ms, worth=worth)

    @classmethod
    def owing(
        cls,
        last_ms: int,
        debt_ms: float,
        window: QuotaWindow,
        *,
        debt_max_ms: float,
        worth: float = UNLIMITED,
    ) -> Self:
        """A counter that owed so much at its last record; give it its limit by ``configure``."""
        bucket = cls(window, worth, debt_max_ms=debt_max_ms, born_ms=last_ms)
        bucket._debt_ms = debt_ms
        return bucket

    @property
    def owed(self) -> tuple[int, float]:
        """When the last record was, in ms, and what was owed then."""
        return self.last_ms, self._debt_ms

    # ------------------------------------------------------------------ charging

    def charge(self, value: float, now_ms: int, /) -> int:
        """Charge what comes (0 or more): the throttle in ms; or ``MUST_WAIT``, and nothing is changed."""
        # The hot path: debt_at and debt_with, without the calls.
        debt_ms = self._debt_ms
        elapsed_ms = now_ms - self.last_ms
        if elapsed_ms > 0:
            debt_ms -= elapsed_ms
        elif elapsed_ms:
            return self._charge_after_a_look(value, now_ms)
        if debt_ms < self._full_ms:  # noqa: PLR1730  (max() costs three times as much)
            debt_ms = self._full_ms
        if debt_ms > self._look_ms:
            return self._charge_after_a_look(value, now_ms)
        debt_ms += value * self._unit_ms
        if debt_ms > 0.0:
            if self._worth != self._limit:  # nothing was owed
                self._worth = self._limit
                self._look()
            return self._owe(now_ms, debt_ms)
        self.last_ms = now_ms
        self._debt_ms = debt_ms
        return 0

    def _charge_after_a_look(self, value: float, now_ms: int) -> int:
        """The clock has stepped back, or something is owed: too much, or under another limit."""
        if self._debt_at(now_ms) > self._gate_ms:
            return MUST_WAIT
        return self.admit(value, now_ms)

    def admit(self, value: float, now_ms: int, /) -> int:
        """Charge what cannot wait, or whose turn it is, or give back (below 0): the throttle in ms."""
        before_ms = self._debt_at(now_ms)
        debt_ms = debt_with(before_ms, value, self._unit_ms, self._burst_ms)
        return self._settle(before_ms, value, now_ms, debt_ms)

    def refuse(self, value: float, now_ms: int, /) -> int:
        """The throttle that a charge would be told; the value is not counted."""
        debt_ms = self._debt_at(now_ms)
        self._settle(debt_ms, 0.0, now_ms, debt_ms)
        return debt_throttle(debt_with(debt_ms, value, self._unit_ms, self._burst_ms))

    def reject(self, now_ms: int) -> int:
        """A request has to wait: the throttle of what is owed without it."""
        debt_ms = self._debt_at(now_ms)
        return self._settle(debt_ms, 0.0, now_ms, debt_ms)

    def begin(self, now_ms: int) -> int:
        """Owe whole ms, rounded up, from here on; returns them, so that a record can say where it begins."""
        self._debt_ms = float(ceil(self._debt_at(now_ms)))
        self.last_ms = now_ms
        return int(self._debt_ms)

    def _settle(self, before_ms: float, value: float, now_ms: int, debt_ms: float) -> int:
        """Owe so much, of which ``before_ms`` was owed before; the throttle in ms."""
        worth, limit = self._worth, self._limit
        if worth != limit:
            if worth < limit:
                self._let_off(worth / limit if limit < UNLIMITED else 0.0)
            self._worth = worth_with(before_ms, worth, value, limit, debt_ms)
            self._look()
        return self._owe(now_ms, debt_ms)

    def _let_off(self, left: float) -> None:
        """A raise has left so much of each debt, as a share."""
        self._left *= left
        if self._left < _LEFT_MIN:
            self._left = 1.0
            self._freed += 1

    def _owe(self, now_ms: int, debt_ms: float) -> int:
        if now_ms < self.last_ms:
            self._gone_back_ms += self.last_ms - now_ms
        self.last_ms = now_ms
        self._debt_ms = debt_ms
        return debt_throttle(debt_ms)

    # ------------------------------------------------------------------ giving back

    def mark(self) -> Mark:
        """For ``left_of``, when something has been charged."""
        return Mark(self._gone_back_ms, self._left, self._freed)

    def left_of(
        self, value: int, limit: float | None, charged_ms: int, mark: Mark, now_ms: int
    ) -> int:
        """How much of a value that was charged under this limit is still owed, in whole units; never more.

        Args:
            value: that is to be given back.
            limit: in force when it was charged, None: none.
            charged_ms: when.
            mark: ``mark()`` then.
            now_ms: by the same clock, wherever it went meanwhile.
        """
        if limit is None:
            return value if self._limit == UNLIMITED else 0
        if limit <= 0:
            return 0
        paid_ms = self.last_ms - charged_ms + self._gone_back_ms - mark.gone_back_ms
        paid_ms += max(0, now_ms - self.last_ms)
        if self._unit_ms == 0.0:  # nothing costs anything now
            return value if value * unit_ms(limit) > paid_ms else 0
        if self._freed != mark.freed:
            return 0
        left = self._left / mark.left
        if self._worth < self._limit:
            left *= self._worth / self._limit
        # Of what was paid before a raise less would have to be taken off.
        left_ms = value * unit_ms(limit) * left - paid_ms
        if left_ms <= 0:
            return 0
        return int(min(value, value * (self._limit / limit), left_ms / self._unit_ms))

    # ------------------------------------------------------------------ looking

    def turn_in_ms(self, now_ms: int) -> int:
        """How long it takes until no more than ``debt_max`` is owed; 0: the next one may go on."""
        return debt_throttle(self._debt_at(now_ms) - self._debt_max_ms)

    def allowance(self, now_ms: int, /) -> int:
        """Whole units a charge may take without a debt, 0 to 2**31-1."""
        tokens_ms = -self._debt_at(now_ms)
        if self._unit_ms == 0.0:
            return INT32_MAX if self._limit > 0 else 0
        return max(0, saturate_to_int32(tokens_ms / self._unit_ms))

    def peek(self, now_ms: int, /) -> int:
        """The throttle that a charge of nothing would be told at ``now_ms``."""
        return debt_throttle(self._debt_at(now_ms))

    def peek_debt_ms(self, now_ms: int) -> float:
        """What is owed at ``now_ms``, below 0 what is left of the burst; changes nothing."""
        return self._debt_at(now_ms)

    def went_back(self, now_ms: int) -> bool:
        """True when the clock stands before the last touch: no time counts until that has a row."""
        return now_ms < self.last_ms

    def _debt_at(self, now_ms: int) -> float:
        debt_ms = debt_at(self._debt_ms, self.last_ms, now_ms, self._burst_ms)
        return debt_under(debt_ms, self._worth, self._limit)
