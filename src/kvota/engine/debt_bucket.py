"""A token bucket for bandwidth that keeps its debt: the counter of ``algorithm = "token_bucket"``.

Kafka's sampled rate forgets what was used before its window, and tells every connection of a client the
same wait, which all of them wait at the same time. This one forgets nothing: a debt is paid by time
alone. Who comes while more than ``debt_max`` is owed is not charged but has to wait for its turn
(``MUST_WAIT``), so per counter, in every interval,

    sum of value / limit in force <= elapsed + burst + debt_max + one request

holds for whatever is charged by ``charge``, and by ``admit`` while ``turn_in_ms`` is 0, however many connections charge it.
"""

from math import ceil
from struct import Struct
from typing import Self

from kvota.engine.arithmetic import (
    INT32_MAX,
    UNLIMITED,
    debt_at,
    debt_throttle,
    debt_with,
    saturate_to_int32,
    unit_ms,
)
from kvota.model.quota_window import QuotaWindow

# What ``charge`` answers where a request has to wait for its turn; no throttle is as small.
MUST_WAIT = -(2**31) - 1

# Below every debt: nobody passes while others wait.
_CLOSED = float("-inf")

# Of a packed one: last record, debt.
_PACKED = Struct("<qd")


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
        "_full_ms",
        "_gate_ms",
        "_gone_back_ms",
        "_limit",
        "_unit_ms",
        "_window",
        "last_ms",
    )

    def __init__(
        self, window: QuotaWindow, limit: float | None, *, debt_max_ms: float, born_ms: int
    ) -> None:
        self.last_ms = born_ms
        self._gone_back_ms = 0
        self._debt_max_ms = self._gate_ms = float(debt_max_ms)
        self.configure(window, limit)
        # Full, whatever the burst is when the first one comes: only from then on there are rows.
        self._debt_ms = float("-inf")

    @property
    def window_ms(self) -> int:
        """The time whose tokens a full bucket holds."""
        return self._window.sample_ms

    def configure(self, window: QuotaWindow, limit: float | None) -> None:
        """Replace burst and limit; what is owed stays, as time."""
        self._window = window
        self._burst_ms = float(window.samples * window.sample_ms)
        self._full_ms = -self._burst_ms  # the debt of a full bucket
        self._limit = UNLIMITED if limit is None else float(limit)
        self._unit_ms = unit_ms(self._limit) if self._limit > 0 else 0.0

    def set_debt_max(self, debt_max_ms: float) -> None:
        """Replace what may be owed before others have to wait."""
        is_closed = self._gate_ms == _CLOSED
        self._debt_max_ms = float(debt_max_ms)
        self._gate_ms = _CLOSED if is_closed else self._debt_max_ms

    def close_gate(self) -> None:
        """Somebody waits: who comes now has to wait, too."""
        self._gate_ms = _CLOSED

    def open_gate(self) -> None:
        """Nobody waits any more."""
        self._gate_ms = self._debt_max_ms

    def is_as_new(self, now_ms: int) -> bool:
        """True when no decision from ``now_ms`` on would differ from that of a new counter."""
        return self._debt_at(now_ms) <= self._full_ms

    # ------------------------------------------------------------------ put away and taken out

    def packed(self) -> bytes:
        """What is owed, as few bytes; nobody may wait for a turn."""
        return _PACKED.pack(self.last_ms, self._debt_ms)

    @classmethod
    def unpacked(cls, contents: bytes, window: QuotaWindow, *, debt_max_ms: float) -> Self:
        """The counter that ``packed`` has made these bytes of; give it its limit by ``configure``."""
        last_ms, debt_ms = _PACKED.unpack(contents)
        bucket = cls(window, None, debt_max_ms=debt_max_ms, born_ms=last_ms)
        bucket._debt_ms = debt_ms
        return bucket

    # ------------------------------------------------------------------ charging

    def charge(self, value: float, now_ms: int, /) -> int:
        """Charge what comes (0 or more): the throttle in ms; or ``MUST_WAIT``, and nothing is changed."""
        # The hot path: debt_at and debt_with, without the calls.
        debt_ms = self._debt_ms
        elapsed_ms = now_ms - self.last_ms
        if elapsed_ms > 0:
            debt_ms -= elapsed_ms
        elif elapsed_ms:
            return self._charge_in_the_past(value, now_ms)
        if debt_ms < self._full_ms:  # noqa: PLR1730  (max() costs three times as much)
            debt_ms = self._full_ms
        if debt_ms > self._gate_ms:
            return MUST_WAIT
        debt_ms += value * self._unit_ms
        if debt_ms > 0.0:
            return self._owe(now_ms, debt_ms)
        self.last_ms = now_ms
        self._debt_ms = debt_ms
        return 0

    def _charge_in_the_past(self, value: float, now_ms: int) -> int:
        if self._debt_at(now_ms) > self._gate_ms:
            return MUST_WAIT
        return self.admit(value, now_ms)

    def admit(self, value: float, now_ms: int, /) -> int:
        """Charge what cannot wait, or whose turn it is, or give back (below 0): the throttle in ms."""
        debt_ms = debt_with(self._debt_at(now_ms), value, self._unit_ms, self._burst_ms)
        return self._owe(now_ms, debt_ms)

    def refuse(self, value: float, now_ms: int, /) -> int:
        """The throttle that a charge would be told; the value is not counted."""
        debt_ms = self._debt_at(now_ms)
        self._owe(now_ms, debt_ms)
        return debt_throttle(debt_with(debt_ms, value, self._unit_ms, self._burst_ms))

    def reject(self, now_ms: int) -> int:
        """A request has to wait: the throttle of what is owed without it."""
        return self._owe(now_ms, self._debt_at(now_ms))

    def begin(self, now_ms: int) -> int:
        """Owe whole ms, rounded up, from here on; returns them, so that a record can say where it begins."""
        self._debt_ms = float(ceil(self._debt_at(now_ms)))
        self.last_ms = now_ms
        return int(self._debt_ms)

    def _owe(self, now_ms: int, debt_ms: float) -> int:
        if now_ms < self.last_ms:
            self._gone_back_ms += self.last_ms - now_ms
        self.last_ms = now_ms
        self._debt_ms = debt_ms
        return debt_throttle(debt_ms)

    # ------------------------------------------------------------------ giving back

    def mark(self) -> int:
        """For ``left_of``: how far the clock has gone back so far."""
        return self._gone_back_ms

    def left_of(
        self, value: int, limit: float | None, charged_ms: int, mark: int, now_ms: int
    ) -> int:
        """How much of a value that was charged under this limit is still owed, in whole units.

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
        paid_ms = self.last_ms - charged_ms + self._gone_back_ms - mark
        paid_ms += max(0, now_ms - self.last_ms)
        left_ms = value * unit_ms(limit) - paid_ms
        if left_ms <= 0:
            return 0
        if self._unit_ms == 0.0:  # nothing costs anything now
            return value
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
        return debt_at(self._debt_ms, self.last_ms, now_ms, self._burst_ms)
