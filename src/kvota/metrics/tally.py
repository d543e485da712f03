"""Sums decisions up, row by row as the record has them, on the thread that is shown the rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from kvota.metrics.cells import (
    ADMITTED,
    HALF_THROTTLE_MS,
    HALF_THROTTLES,
    HALF_VALUE,
    REJECTED,
    THROTTLE_MS,
    THROTTLED,
    TYPES,
    VALUE,
    Cell,
    Cells,
    Column,
    Flags,
    Slots,
)
from kvota.metrics.counter_key import CounterKey
from kvota.model import decision_sink
from kvota.model.decision_sink import NO_ANSWER, OUTCOMES, ChargeMemo
from kvota.model.quota_type import QuotaType

# As a counter lives in the engine.
IDLE_MS_MAX = 3_600_000
_RANK_MS = 10_000
# Whoever is held back is looked for: such a row counts as so many others.
_HELD_WEIGHT = 10
_CODE_OF_TYPE = {quota_type: code for code, quota_type in enumerate(TYPES)}

PackedRows = np.ndarray[Any, np.dtype[np.void]]


class HeldWatch(Protocol):
    """Who wants to know which counters hold somebody back."""

    def held(self, cells: Sequence[Cell], now_ms: int) -> None:
        """Somebody was throttled or rejected on these, in force."""
        ...

    def look(self, now_ms: int) -> None:
        """Some time has passed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeTotals:
    """All decisions of one quota type, enforced or in shadow mode.

    Attributes:
        decisions: by the code of the outcome (``model.decision_sink``), without what was given back.
        charged: in the unit of the type.
        given_back: the same; a number above 0.
        given_back_rows: how often.
    """

    quota_type: QuotaType
    enforced: bool
    decisions: tuple[int, ...]
    charged: float
    given_back: float
    given_back_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TallySnapshot:
    """What has been summed up, at one moment.

    Attributes:
        at_ms: when, Unix time.
        totals: by quota type and whether it was enforced; those of which there are any.
        produce_requests: how many Produce requests have rows.
        produce_bytes: their sizes.
        fetched_bytes: sizes of Fetch answers.
        keys: the counters that are shown.
        sums: their sums since they are shown (rows of ``cells.Cells.sums``).
        rates: per second, over 10 s.
        long_rates: per second, over 30 to 60 s.
        mean_throttle_ms: over the same; NaN where nobody was throttled.
        until_ms: how long each holds back, as far as decisions tell.
        last_ms: of its last decision.
        others: by quota type, the sums of all that are not shown.
        hidden: how many are summed up and not shown.
    """

    at_ms: int
    totals: tuple[TypeTotals, ...]
    produce_requests: int
    produce_bytes: int
    fetched_bytes: int
    keys: tuple[CounterKey, ...]
    sums: Column
    rates: Column
    long_rates: Column
    mean_throttle_ms: Column
    until_ms: Column
    last_ms: Column
    others: dict[QuotaType, tuple[float, ...]]
    hidden: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyCounter:
    """One counter as its decisions tell it.

    Attributes:
        key: of the counter.
        rate: charged per second, over 10 s.
        limit: in force with its last decision, per second; None: unlimited.
        refused_ms: when somebody was last throttled or rejected, Unix time; None: never yet.
        last_ms: of the last decision.
    """

    key: CounterKey
    rate: float
    limit: float | None
    refused_ms: int | None
    last_ms: int


class Tally:
    """All decisions of a gateway's run; a ``record.RowObserver``.

    Args:
        cells: where sums by counter go.
        watch: is told who is held back.
    """

    def __init__(self, cells: Cells, watch: HeldWatch) -> None:
        self.cells = cells
        self._watch = watch
        self._now_ms = 0
        self._ranked_ms = 0
        kinds = len(TYPES) * 2
        self._decisions = np.zeros((kinds, len(OUTCOMES) * 2), dtype=np.int64)
        self._charged = np.zeros(kinds)
        self._given_back = np.zeros(kinds)
        self._totals = np.zeros((5, len(TYPES)))  # as cells.sums, by type
        self._produced = [0, 0]
        self._fetched_bytes = 0

    # ------------------------------------------------------------------ rows

    def take(self, rows: PackedRows, memos: Sequence[ChargeMemo]) -> None:
        """Add rows; ``memos`` are those they refer to."""
        memo = rows["memo"].astype(np.int64)
        ts_us = rows["ts_us"]
        self._now_ms = max(self._now_ms, int(ts_us.max()) // 1000)
        self.cells.begin_time(self._now_ms)
        value, outcome = rows["value"].astype(np.float64), rows["outcome"].astype(np.int64)
        throttle_ms = rows["throttle_ms"].astype(np.float64)
        slot_of, kind_of = self._places(memo, memos)
        slots, kinds = slot_of[memo], kind_of[memo]
        is_given_back = value < 0
        is_counted = (outcome != decision_sink.REJECTED) & np.isfinite(value)
        charged = np.where(is_counted & ~is_given_back, value, 0.0)
        is_enforced = (kinds & 1).astype(bool)
        is_held = is_enforced & ((throttle_ms > 0) | (outcome == decision_sink.REJECTED))
        self._add_totals(kinds, outcome, charged, np.where(is_given_back, -value, 0.0))
        self._add_requests(rows, kinds, is_given_back)
        told_ms = np.where(is_held, np.maximum(throttle_ms, 0.0), 0.0)
        net = np.where(is_counted, value, 0.0)
        self.cells.add_to_ring(slots, ts_us // 1_000_000, net)
        # Before the sums: whoever watches sees them as they were when it began.
        self._add_times(slots, ts_us // 1000, told_ms, net, is_held)
        self._add_sums(slots, kinds // 2, outcome, is_given_back, charged, told_ms)

    def _places(self, memo: Slots, memos: Sequence[ChargeMemo]) -> tuple[Slots, Slots]:
        """Where the rows of each memo go: its slot, and its type with whether it is enforced."""
        is_used = np.zeros(len(memos), dtype=bool)
        is_used[memo] = True
        slot_of = np.zeros(len(memos), dtype=np.int64)
        kind_of = np.zeros(len(memos), dtype=np.int64)
        for index in np.flatnonzero(is_used).tolist():
            one = memos[index]
            kind_of[index] = 2 * _CODE_OF_TYPE[one.quota_type] + one.enforced
            cell = one.counted_as
            if not isinstance(cell, Cell) or cell.slot < 0:
                key = CounterKey(one.quota_type, one.tags, one.node_id)
                one.counted_as = cell = self.cells.cell_of(key, self._now_ms)
            if cell is None:
                slot_of[index] = kind_of[index] // 2  # one of the first slots
            else:
                slot_of[index] = cell.slot
                cell.limit = one.limit
        return slot_of, kind_of

    def _add_totals(
        self, kinds: Slots, outcome: Slots, charged: Column, given_back: Column
    ) -> None:
        count = len(self._charged)
        is_given_back = given_back > 0
        codes = kinds * len(OUTCOMES) * 2 + outcome * 2 + is_given_back
        self._decisions += np.bincount(codes, minlength=self._decisions.size).reshape(
            self._decisions.shape
        )
        self._charged += np.bincount(kinds, charged, count)
        self._given_back += np.bincount(kinds, given_back, count)

    def _add_requests(self, rows: PackedRows, kinds: Slots, is_given_back: Flags) -> None:
        types, is_enforced = kinds // 2, kinds % 2 == 1
        is_wait = rows["outcome"] == decision_sink.REJECTED
        # In shadow mode a rejected Produce has gone on, and has no other row.
        produced = (types == _CODE_OF_TYPE[QuotaType.PRODUCE]) & ~is_given_back
        produced &= ~(is_wait & is_enforced)
        self._produced[0] += int(produced.sum())
        self._produced[1] += int(rows["value"][produced].sum())
        # One that waits for room has brought nothing yet.
        fetched = types == _CODE_OF_TYPE[QuotaType.FETCH]
        fetched &= ~(is_wait & (rows["upstream_throttle_ms"] == NO_ANSWER))
        self._fetched_bytes += int(rows["value"][fetched].sum())

    def _add_sums(
        self,
        slots: Slots,
        types: Slots,
        outcome: Slots,
        is_given_back: Flags,
        charged: Column,
        told_ms: Column,
    ) -> None:
        count = self.cells.used
        weights: dict[int, Column] = {VALUE: charged, THROTTLE_MS: told_ms}
        for row, code in (
            (ADMITTED, decision_sink.ADMITTED),
            (THROTTLED, decision_sink.THROTTLED),
            (REJECTED, decision_sink.REJECTED),
        ):
            weights[row] = ((outcome == code) & ~is_given_back).astype(np.float64)
        for row, weight in weights.items():
            self.cells.sums[row, :count] += np.bincount(slots, weight, count)
            self._totals[row] += np.bincount(types, weight, len(TYPES))

    def _add_times(
        self, slots: Slots, ts_ms: Slots, told_ms: Column, net: Column, is_held: Flags
    ) -> None:
        cells, count = self.cells, self.cells.used
        half = cells.half
        half[HALF_VALUE, :count] += np.bincount(slots, net, count)
        np.maximum.at(cells.last_ms, slots, ts_ms)
        cells.score[:count] += np.bincount(slots, 1 + _HELD_WEIGHT * is_held, count)
        if not is_held.any():
            return
        held, when_ms = slots[is_held], ts_ms[is_held]
        is_told = told_ms[is_held] > 0
        half[HALF_THROTTLE_MS, :count] += np.bincount(held, told_ms[is_held], count)
        half[HALF_THROTTLES, :count] += np.bincount(held[is_told], minlength=count)
        np.maximum.at(cells.until_ms, held, when_ms + told_ms[is_held])
        np.maximum.at(cells.refused_ms, held, when_ms)
        found = (cells.at(slot) for slot in np.unique(held).tolist())
        self._watch.held([cell for cell in found if cell is not None], self._now_ms)

    def look(self, now_ms: int) -> None:
        """Some time has passed: forget the idle, show the busiest, say who is held back no more."""
        self._now_ms = now_ms
        self.cells.begin_time(now_ms)
        self._watch.look(now_ms)
        self.cells.make_room()
        if abs(now_ms - self._ranked_ms) >= _RANK_MS:
            self._ranked_ms = now_ms
            self.cells.forget_idle(now_ms - IDLE_MS_MAX)
            self.cells.show_the_busiest()

    # ------------------------------------------------------------------ looking

    def snapshot(self, now_ms: int) -> TallySnapshot:
        """All sums as they are now; to be taken on the thread that adds."""
        cells = self.cells
        cells.begin_time(now_ms)
        shown = cells.shown
        slots = np.array([cell.slot for cell in shown], dtype=np.int64)
        sums = cells.sums[:, slots] - cells.base[:, slots]
        mean_throttle_ms, long_rates = cells.means(slots, now_ms)
        types = np.array([_CODE_OF_TYPE[cell.key.quota_type] for cell in shown], dtype=np.int64)
        others = self._totals.copy()
        for row in range(len(others)):
            others[row] -= np.bincount(types, sums[row], len(TYPES))
        return TallySnapshot(
            at_ms=now_ms,
            totals=self._type_totals(),
            produce_requests=self._produced[0],
            produce_bytes=self._produced[1],
            fetched_bytes=self._fetched_bytes,
            keys=tuple(cell.key for cell in shown),
            sums=sums,
            rates=cells.rates(slots, now_ms),
            long_rates=long_rates,
            mean_throttle_ms=mean_throttle_ms,
            until_ms=cells.until_ms[slots],
            last_ms=cells.last_ms[slots],
            others={
                quota_type: tuple(others[:, code].tolist())
                for code, quota_type in enumerate(TYPES)
                if self._totals[:, code].any()
            },
            hidden=cells.hidden_count,
        )

    def _type_totals(self) -> tuple[TypeTotals, ...]:
        totals = []
        for kind, decisions in enumerate(self._decisions.tolist()):
            if any(decisions):
                totals.append(
                    TypeTotals(
                        quota_type=TYPES[kind // 2],
                        enforced=bool(kind % 2),
                        decisions=tuple(decisions[::2]),
                        charged=float(self._charged[kind]),
                        given_back=float(self._given_back[kind]),
                        given_back_rows=sum(decisions[1::2]),
                    )
                )
        return tuple(totals)

    @property
    def count(self) -> int:
        """So many counters are known. To be taken on the thread that adds."""
        return len(self.cells.of_key)

    def busiest(self, at_most: int, now_ms: int) -> list[BusyCounter]:
        """Those that hold somebody back, longest first, then by their share of the limit.

        To be taken on the thread that adds.
        """
        cells = self.cells
        cells.begin_time(now_ms)
        found = list(cells.of_key.values())
        slots = np.array([cell.slot for cell in found], dtype=np.int64)
        rates = cells.rates(slots, now_ms)
        limits = np.array(
            [np.inf if cell.limit is None else max(cell.limit, 1e-9) for cell in found]
        )
        left_ms = np.maximum(cells.until_ms[slots] - now_ms, 0.0)
        order = np.lexsort((-rates, -(rates / limits), -left_ms))[:at_most]
        return [
            BusyCounter(
                key=found[index].key,
                rate=float(rates[index]),
                limit=found[index].limit,
                refused_ms=int(cells.refused_ms[slots[index]]) or None,
                last_ms=int(cells.last_ms[slots[index]]),
            )
            for index in order.tolist()
        ]
