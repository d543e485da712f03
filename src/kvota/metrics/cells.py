"""Sums of decisions by counter, as columns of numbers: a batch of rows is added in a few steps.

A cell is a place in the columns. There are at most ``CELLS_MAX``, however many names clients invent: those
that were idle longest make room, some each second. Of those some are *shown*, each as series of its own. All others
are shown as one, per quota type, so that sums over all series are exact. Whoever becomes shown starts from
0, and who is shown no more leaves its sums to the others: no counter ever falls.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from kvota.metrics.counter_key import CounterKey
from kvota.model.quota_type import QuotaType

# A cell is some 300 bytes and its name.
CELLS_MAX = 10_000
_CHARS_MAX = 4 * 2**20
# So many make room at once: looking for the idlest costs a walk over all.
_ROOM = 500
# Rates of token buckets look back so far; the running second is one of them.
RATE_S = 10
_RING = RATE_S + 2
# Kafka's means of throttle times have two samples of 30 s.
HALF_MS = 30_000

TYPES = tuple(QuotaType)

# Rows of ``sums``.
VALUE, ADMITTED, THROTTLED, REJECTED, THROTTLE_MS = range(5)
_SUMS = 5
# Rows of each half of ``halves``.
HALF_THROTTLE_MS, HALF_THROTTLES, HALF_VALUE = range(3)

Column = np.ndarray[Any, np.dtype[np.float64]]
Slots = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


class Cell:
    """The place of one counter; a memo refers to it, so it says when it is no place any more.

    Attributes:
        key: of the counter.
        slot: its place in the columns, -1 once it has made room.
        limit: in force with its last decision, per second; None: unlimited.
    """

    __slots__ = ("key", "limit", "slot")

    def __init__(self, key: CounterKey, slot: int) -> None:
        self.key = key
        self.slot = slot
        self.limit: float | None = None


class Cells:
    """All cells, and which of them are shown.

    The first slots, one per quota type, are for rows whose counter has no cell.

    Attributes:
        sums: by what is summed and slot, since the cell was made.
        base: the same, when the cell became shown: what stays with the others.
        last_ms: of the last decision.
        until_ms: how long its clients are held back, as far as decisions tell; 0: never yet.
        refused_ms: when somebody was last throttled or rejected.
        score: how busy it is; halves every ten seconds.
        halves: for two times 30 s, what was throttled and charged.
    """

    def __init__(self, *, shown_max: int) -> None:
        self.shown_max = shown_max
        self.of_key: dict[CounterKey, Cell] = {}
        self._shown: dict[int, Cell] = {}
        self._free: list[int] = []
        self._used = len(TYPES)
        self._chars = 0
        self._cells: list[Cell | None] = [None] * self._used
        self._make_columns(256)
        self._newest_s = 0
        self._half = 0
        self._is_full = False

    def _make_columns(self, capacity: int) -> None:
        self.sums: Column = np.zeros((_SUMS, capacity))
        self.base: Column = np.zeros((_SUMS, capacity))
        self.last_ms: Column = np.zeros(capacity)
        self.until_ms: Column = np.zeros(capacity)
        self.refused_ms: Column = np.zeros(capacity)
        self.score: Column = np.zeros(capacity)
        self.ring: Column = np.zeros((_RING, capacity))
        self.halves: Column = np.zeros((2, 3, capacity))

    # ------------------------------------------------------------------ places

    def cell_of(self, key: CounterKey, now_ms: float) -> Cell | None:
        """The cell of a counter; made at first use, and shown at once where there is room; None: no cell is free."""
        cell = self.of_key.get(key)
        if cell is not None:
            return cell
        if len(self.of_key) >= CELLS_MAX or self._chars + len(key.tags) > _CHARS_MAX:
            self._is_full = True
            return None
        cell = Cell(key, self._new_slot())
        self._cells[cell.slot] = cell
        self.of_key[key] = cell
        self._chars += len(key.tags)
        self.last_ms[cell.slot] = now_ms
        if len(self._shown) < self.shown_max:
            self._shown[cell.slot] = cell
        return cell

    def _new_slot(self) -> int:
        if self._free:
            return self._free.pop()
        slot = self._used
        if slot == len(self.last_ms):
            self._grow()
        self._used += 1
        self._cells.append(None)
        return slot

    def _grow(self) -> None:
        before = self._columns()
        self._make_columns(2 * len(self.last_ms))
        for column, old in zip(self._columns(), before, strict=True):
            column[..., : old.shape[-1]] = old

    def _columns(self) -> list[Column]:
        of_counter = [
            self.sums,
            self.base,
            self.last_ms,
            self.until_ms,
            self.refused_ms,
            self.score,
        ]
        return [*of_counter, self.ring, self.halves]

    def forget(self, keys: Iterable[CounterKey]) -> None:
        """These counters are no more: their series go, and what they add up to is with the others."""
        found = [self.of_key.pop(key, None) for key in keys]
        cells = [cell for cell in found if cell is not None]
        slots = [cell.slot for cell in cells]
        for column in self._columns():
            column[..., slots] = 0.0
        for cell in cells:
            self._chars -= len(cell.key.tags)
            self._shown.pop(cell.slot, None)
            self._cells[cell.slot] = None
            cell.slot = -1
        self._free += slots

    def make_room(self) -> None:
        """Where no cell was free, the idlest leave, of those that are not shown; due every second."""
        if not self._is_full:
            return
        self._is_full = False
        hidden = [cell for cell in self.of_key.values() if cell.slot not in self._shown]
        candidates = hidden or list(self.of_key.values())
        slots = np.array([cell.slot for cell in candidates])
        count = min(_ROOM, len(candidates))
        idlest = np.argpartition(self.last_ms[slots], count - 1)[:count]
        self.forget([candidates[index].key for index in idlest.tolist()])

    def forget_idle(self, before_ms: float) -> None:
        """Forget those whose last decision was made before that."""
        self.forget(
            [cell.key for cell in self.of_key.values() if self.last_ms[cell.slot] < before_ms]
        )

    # ------------------------------------------------------------------ adding

    @property
    def used(self) -> int:
        """Slots below this one may hold something."""
        return self._used

    def begin_time(self, now_ms: float) -> None:
        """Make room in the rings for now; what is older than they are long is over."""
        now_s, half = int(now_ms) // 1000, int(now_ms) // HALF_MS
        if not 0 <= now_s - self._newest_s < _RING:
            self.ring[:] = 0.0
        else:
            for second in range(self._newest_s + 1, now_s + 1):
                self.ring[second % _RING] = 0.0
        self._newest_s = now_s
        if half != self._half:
            self.halves[half % 2] = 0.0
            if abs(half - self._half) > 1:
                self.halves[:] = 0.0
            self._half = half

    def add_to_ring(self, slots: Slots, seconds: Slots, values: Column) -> None:
        """Add what was charged when; what is too old, or of a later second than now, is left out."""
        is_now = (seconds > self._newest_s - _RING) & (seconds <= self._newest_s)
        np.add.at(self.ring, (seconds[is_now] % _RING, slots[is_now]), values[is_now])

    @property
    def half(self) -> Column:
        """The running 30 s: throttle times, how many, and what was charged, by slot."""
        half: Column = self.halves[self._half % 2]
        return half

    # ------------------------------------------------------------------ looking

    @property
    def shown(self) -> list[Cell]:
        """Those that have series of their own."""
        return list(self._shown.values())

    def at(self, slot: int) -> Cell | None:
        """The cell in this slot; None: there is none."""
        return self._cells[slot]

    @property
    def hidden_count(self) -> int:
        """How many have not."""
        return len(self.of_key) - len(self._shown)

    def rates(self, slots: Slots, now_ms: float) -> Column:
        """What was charged per second in the last ten."""
        now_s = int(now_ms) // 1000
        whole = [second % _RING for second in range(now_s - RATE_S + 1, now_s + 1)]
        seconds = RATE_S - 1 + (now_ms / 1000 - now_s)
        rates: Column = self.ring[whole][:, slots].sum(axis=0) / seconds
        return rates

    def means(self, slots: Slots, now_ms: float) -> tuple[Column, Column]:
        """The mean throttle time in ms (NaN: none), and what was charged per second, of the last 30 to 60 s."""
        both = self.halves[:, :, slots].sum(axis=0)
        throttles = both[HALF_THROTTLES]
        mean_ms = np.full(len(slots), np.nan)
        np.divide(both[HALF_THROTTLE_MS], throttles, out=mean_ms, where=throttles > 0)
        seconds = (HALF_MS + now_ms % HALF_MS) / 1000
        return mean_ms, both[HALF_VALUE] / seconds

    def show_the_busiest(self) -> None:
        """Who is much busier than somebody who is shown takes that place; due every ten seconds."""
        self.score[: self._used] /= 2
        hidden = [cell for cell in self.of_key.values() if cell.slot not in self._shown]
        if not hidden:
            return
        shown = self.shown
        of_hidden = self.score[[cell.slot for cell in hidden]]
        of_shown = self.score[[cell.slot for cell in shown]]
        comes, leaves = np.argsort(-of_hidden), np.argsort(of_shown)
        free = self.shown_max - len(shown)
        for index in range(min(len(hidden), len(shown) // 10 + 1 + free)):
            coming = hidden[comes[index]]
            if index >= free:
                leaving = leaves[index - free] if index - free < len(shown) else None
                if leaving is None or of_hidden[comes[index]] < 2 * of_shown[leaving] + 1:
                    return
                del self._shown[shown[leaving].slot]
            self.base[:, coming.slot] = self.sums[:, coming.slot]
            self._shown[coming.slot] = coming
