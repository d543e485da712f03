"""Kafka's sampled rate (``Rate`` over ``SampledStat``), with the one check every charge needs.

By the letter a charge scans all samples twice. Between two events that can change anything but the
current sample's sum, nothing has to be scanned, so the object has two states:

* *open*: the lists of samples are the truth. Every charge goes by the letter.
* *running* (``_until_ms`` is in the future): the current sample's sum and last event live in
  ``_total`` and ``_last_ms`` only. True while the clock does not go back, the current sample is
  not over and no other sample expires. Sums are Python integers in this state: exact, like Kafka's
  doubles, because everything is a whole number below 2**52. A fraction opens the state.

``tests/properties/test_sampled_rate.py`` compares both states on random operations, and
``tests/differential`` compares them with Kafka's classes.
"""

from struct import Struct, pack, unpack_from
from typing import Self

from kvota.engine import arithmetic
from kvota.engine.arithmetic import (
    COUNTER_EXPIRES_MS,
    INT32_MAX,
    UNLIMITED,
    rate_throttle,
    rate_window_ms,
)
from kvota.model.quota_window import QuotaWindow

# Up to here every partial sum of whole numbers, in any order of slots, is exact in a double.
_EXACT_MAX = 2**52

# A limit must be further away than this share for the test without a division.
_SURELY = 1 - 1e-9

_NEVER_MS = -(2**63)

# Of a packed one: last record, samples and sample_ms of the window it counts by, current slot, slots.
_PACKED_HEAD = Struct("<5q")


class SampledRate:
    """What was used in the last window, per second, held against a limit.

    Source: Kafka ``Rate``, ``SampledStat``, ``QuotaUtils.throttleTime``. Record first, check
    second: what violates the limit stays recorded.

    >>> rate = SampledRate(QuotaWindow(11, 1000), 1000.0)
    >>> [rate.charge(value, 0) for value in (10_000, 0, 10_000)]
    [0, 0, 10000]
    """

    __slots__ = (
        "_current",
        "_forget_after_ms",
        "_fractions",
        "_last_ms",
        "_lasts",
        "_limit",
        "_magnitude",
        "_next_expiry_ms",
        "_next_window",
        "_oldest_ms",
        "_others",
        "_sample_ms",
        "_samples",
        "_starts",
        "_surely",
        "_total",
        "_until_ms",
        "_values",
        "_window",
    )

    def __init__(
        self,
        window: QuotaWindow,
        limit: float | None = None,
        *,
        forget_after_ms: int | None = None,
        born_ms: int = 0,
    ) -> None:
        """A limit of None is Kafka's 2**63-1; more than ``forget_after_ms`` of idleness: anew."""
        self._forget_after_ms = forget_after_ms
        self._current = 0
        self._fractions = 0
        self._last_ms = born_ms
        self._total = 0
        self._others = 0
        self._oldest_ms = 0
        self._magnitude = 0.0
        self._next_expiry_ms = 0
        self._start_anew(window)
        self.configure(window, limit)

    @property
    def last_ms(self) -> int:
        """When something was last recorded, else when it was born."""
        return self._last_ms

    def is_as_new(self, now_ms: int) -> bool:
        """True when no decision from ``now_ms`` on would differ from that of a new counter.

        All samples have expired then, and expired samples start anew as the first one does. (For
        whole numbers: fractions are summed in the order of slots, and that may differ.)
        """
        newest_ms = max(self._last_ms, *self._lasts) if self._lasts else self._last_ms
        return not self._fractions and now_ms - newest_ms >= self._samples * self._sample_ms

    def configure(self, window: QuotaWindow, limit: float | None) -> None:
        """Replace window and limit. The contents stay; another window starts anew when charged."""
        self._settle()
        self._next_window = window
        self._limit = UNLIMITED if limit is None else float(limit)
        spare_s = (window.samples - 1) * window.sample_ms / 1000.0
        surely = self._limit * spare_s * _SURELY
        if window.samples == 1 or not surely >= 0:
            self._surely = -1
        else:
            self._surely = int(min(surely, _EXACT_MAX))

    @property
    def window_ms(self) -> int:
        """How long the rate looks back when nothing was recorded before."""
        return (self._next_window.samples - 1) * self._next_window.sample_ms

    def charge(self, value: float, now_ms: int, /) -> int:
        """Record, then check: 0 within the limit, else the throttle in ms, narrowed as Kafka does.

        A result below 0 (Kafka's wrap-around) does not throttle either. Whole numbers given as
        ``int`` take the fast way. Negative values give back.
        """
        # The hot path of the whole gateway: no scan, no division, no call while under the limit.
        if type(value) is int and self._last_ms <= now_ms < self._until_ms:
            running = self._total + value
            if 0 <= running <= self._surely:
                self._total = running
                self._last_ms = now_ms
                return 0
            if -_EXACT_MAX <= running <= _EXACT_MAX:
                self._total = running
                self._last_ms = now_ms
                window_ms = rate_window_ms(self._oldest_ms, now_ms, self._samples, self._sample_ms)
                return rate_throttle(running, self._limit, window_ms)
        self.record(value, now_ms)
        total, oldest_ms = self._scan(now_ms)
        self._run(total, oldest_ms, now_ms)
        window_ms = rate_window_ms(oldest_ms, now_ms, self._samples, self._sample_ms)
        return rate_throttle(total, self._limit, window_ms)

    # Nobody waits for a turn.
    admit = charge

    def refuse(self, value: float, now_ms: int, /) -> int:
        """The throttle of a charge that is taken back at once: what it would have to wait.

        Source: Kafka ``KafkaApis.handleFetchRequest``: record, check, unrecord.
        """
        throttle_ms = self.charge(value, now_ms)
        self.record(-value, now_ms)
        return throttle_ms

    def record(self, value: float, now_ms: int) -> None:
        """Record without a check (Kafka ``SampledStat.record``); a negative value gives back."""
        self._settle()
        forget_after_ms = self._forget_after_ms
        if self._next_window != self._window or (
            forget_after_ms is not None and now_ms - self._last_ms > forget_after_ms
        ):
            self._start_anew(self._next_window)
        if not self._starts:
            self._begin_sample(0, now_ms)
        elif arithmetic.sample_complete(self._starts[self._current], now_ms, self._sample_ms):
            self._current = arithmetic.next_slot(self._current, self._samples)
            self._begin_sample(self._current, now_ms)
        amount = float(value)
        if not amount.is_integer():
            self._fractions |= 1 << self._current
        self._values[self._current] += amount
        self._lasts[self._current] = now_ms
        self._last_ms = now_ms

    def measure(self, now_ms: int) -> float:
        """The rate per second (Kafka ``Rate.measure``); starts expired samples anew, as Kafka."""
        self._settle()
        if not self._starts:
            self._begin_sample(0, now_ms)
        total, oldest_ms = self._scan(now_ms)
        window_ms = rate_window_ms(oldest_ms, now_ms, self._samples, self._sample_ms)
        return arithmetic.rate_per_s(total, window_ms)

    def allowance(self, now_ms: int, /) -> int:
        """Whole units a charge at ``now_ms`` may take before it violates, 0 to 2**31-1.

        Changes nothing, so an observer never moves a decision.
        """
        if self._limit == UNLIMITED:
            return INT32_MAX
        total, window_ms = self._foresee(now_ms)
        room = arithmetic.saturate_to_int32(self._limit * (window_ms / 1000.0) - total)
        return max(room, 0)

    def peek(self, now_ms: int, /) -> int:
        """The throttle that a charge of nothing would be told at ``now_ms``; changes nothing.

        Kafka's own ``measure`` starts expired samples anew, which moves later decisions.
        """
        total, window_ms = self._foresee(now_ms)
        return rate_throttle(total, self._limit, window_ms)

    def peek_rate(self, now_ms: int) -> float:
        """The rate per second that ``measure`` would give at ``now_ms``; changes nothing."""
        total, window_ms = self._foresee(now_ms)
        return arithmetic.rate_per_s(total, window_ms)

    # ------------------------------------------------------------------ put away and taken out

    def packed(self) -> bytes:
        """All that was recorded, as few bytes; the limit is not in it."""
        self._settle()
        slots = len(self._starts)
        window = self._window
        head = _PACKED_HEAD.pack(
            self._last_ms, window.samples, window.sample_ms, self._current, slots
        )
        samples = pack(f"<{slots}q{slots}q{slots}d", *self._starts, *self._lasts, *self._values)
        fractions = self._fractions
        return head + samples + fractions.to_bytes((fractions.bit_length() + 7) // 8, "little")

    @classmethod
    def unpacked(cls, contents: bytes, window: QuotaWindow) -> Self:
        """The counter that ``packed`` has made these bytes of; give it its limit by ``configure``.

        ``window`` is the one now in force: under another one it starts anew when it is charged.
        """
        last_ms, samples, sample_ms, current, slots = _PACKED_HEAD.unpack_from(contents)
        if samples != window.samples or sample_ms != window.sample_ms:
            counts_by = QuotaWindow(samples, sample_ms)
        else:
            counts_by = window
        rate = cls(counts_by, forget_after_ms=COUNTER_EXPIRES_MS, born_ms=last_ms)
        of_slots = unpack_from(f"<{slots}q{slots}q{slots}d", contents, _PACKED_HEAD.size)
        rate._current = current
        rate._starts = list(of_slots[:slots])
        rate._lasts = list(of_slots[slots : 2 * slots])
        rate._values = list(of_slots[2 * slots :])
        rate._fractions = int.from_bytes(contents[_PACKED_HEAD.size + 24 * slots :], "little")
        rate._next_window = window
        return rate

    # ------------------------------------------------------------------ samples

    def _start_anew(self, window: QuotaWindow) -> None:
        self._window = window
        self._samples = window.samples
        self._sample_ms = window.sample_ms
        self._current = 0
        self._starts: list[int] = []
        self._lasts: list[int] = []
        self._values: list[float] = []
        self._fractions = 0  # bit per slot that a fraction went into
        self._until_ms = _NEVER_MS

    def _begin_sample(self, slot: int, now_ms: int) -> None:
        if slot == len(self._starts):
            self._starts.append(now_ms)
            self._lasts.append(now_ms)
            self._values.append(0.0)
        else:
            self._starts[slot] = self._lasts[slot] = now_ms
            self._values[slot] = 0.0
            self._fractions &= ~(1 << slot)

    def _settle(self) -> None:
        """From running to open: give the current sample what the running state knows of it."""
        if self._until_ms != _NEVER_MS:
            self._values[self._current] = float(self._total - self._others)
            self._lasts[self._current] = self._last_ms
            self._until_ms = _NEVER_MS

    def _scan(self, now_ms: int) -> tuple[float, int]:
        """Sum in slot order and smallest start, after expired samples were started anew."""
        horizon_ms = now_ms - self._samples * self._sample_ms
        current, values = self._current, self._values
        total = magnitude = 0.0
        earliest_ms = now_ms
        for slot, last_ms in enumerate(self._lasts):
            if last_ms <= horizon_ms:
                self._begin_sample(slot, now_ms)
            else:
                total += values[slot]
                magnitude += abs(values[slot])
                if last_ms < earliest_ms and slot != current:
                    earliest_ms = last_ms
        self._magnitude = magnitude
        self._next_expiry_ms = earliest_ms + self._samples * self._sample_ms
        return total, min(self._starts)

    def _run(self, total: float, oldest_ms: int, now_ms: int) -> None:
        """From open to running, where that is exact; ``now_ms`` was just recorded and scanned."""
        if self._fractions or now_ms < oldest_ms or not self._magnitude <= _EXACT_MAX:
            return
        until_ms = min(self._starts[self._current] + self._sample_ms, self._next_expiry_ms)
        if self._forget_after_ms is not None:
            until_ms = min(until_ms, now_ms + self._forget_after_ms + 1)
        self._until_ms = until_ms
        self._oldest_ms = oldest_ms
        self._total = int(total)
        self._others = self._total - int(self._values[self._current])

    def _foresee(self, now_ms: int) -> tuple[float, int]:
        """Sum and rate window that a charge of nothing at ``now_ms`` would see."""
        if self._last_ms <= now_ms < self._until_ms:
            window_ms = rate_window_ms(self._oldest_ms, now_ms, self._samples, self._sample_ms)
            return self._total, window_ms
        window = self._next_window
        forget_after_ms = self._forget_after_ms
        if window != self._window or (
            forget_after_ms is not None and now_ms - self._last_ms > forget_after_ms
        ):
            return 0.0, rate_window_ms(now_ms, now_ms, window.samples, window.sample_ms)
        return self._foresee_open(now_ms)

    def _foresee_open(self, now_ms: int) -> tuple[float, int]:
        """What ``record`` of nothing and ``_scan`` would find, without either: by the letter, but on no copy."""
        starts, lasts, values, current = self._starts, self._lasts, self._values, self._current
        if not starts:
            return 0.0, rate_window_ms(now_ms, now_ms, self._samples, self._sample_ms)
        is_over = arithmetic.sample_complete(starts[current], now_ms, self._sample_ms)
        begun = arithmetic.next_slot(current, self._samples) if is_over else -1
        horizon_ms = now_ms - self._samples * self._sample_ms
        total = 0.0
        # A slot that begins with this record, or whose events have all expired, starts now.
        oldest_ms = now_ms if begun == len(starts) else None
        for slot, last_ms in enumerate(lasts):
            start_ms, value = starts[slot], values[slot]
            if slot == current:
                if self._until_ms != _NEVER_MS:
                    value, last_ms = float(self._total - self._others), self._last_ms  # noqa: PLW2901
                if not is_over:
                    last_ms = now_ms  # noqa: PLW2901
            if slot == begun or last_ms <= horizon_ms:
                start_ms = now_ms
            else:
                total += value
            if oldest_ms is None or start_ms < oldest_ms:
                oldest_ms = start_ms
        assert oldest_ms is not None
        return total, rate_window_ms(oldest_ms, now_ms, self._samples, self._sample_ms)
