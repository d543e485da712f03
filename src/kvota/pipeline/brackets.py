"""Brackets the need of each counter on each day, where the rows are: only these numbers leave a worker."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kvota.pipeline.any_session import arrow_table
from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.charged import Counted
from kvota.pipeline.chunks import Chunks
from kvota.pipeline.counters import REPLAYED_TYPES
from kvota.pipeline.days import Days
from kvota.pipeline.grid import Grid, GridRun
from kvota.pipeline.unpack import Rows
from kvota.planning.need import Bracket, Tolerance, Trial, between, bracket, geometric_grid

_BRACKETS = pa.schema(
    [
        ("counter_id", pa.int64()),
        ("day", pa.int32()),
        ("fails", pa.float64()),
        ("passes", pa.float64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Ends:
    """The ends of many grids: each counter's, which is the same on all days.

    Attributes:
        keys: counter_id, in order.
        lows: the smallest candidate of each.
        highs: the largest.
    """

    keys: Array
    lows: Array
    highs: Array

    def candidates(self, counter_id: int, _key: int) -> tuple[float, ...]:
        """Return the candidates of a counter on a day; none: it is left out."""
        place = _place(self.keys, counter_id)
        return () if place is None else geometric_grid(self.lows[place], self.highs[place])


@dataclass(frozen=True, slots=True)
class Brackets:
    """What was found of each counter on each day; NaN: no candidate did.

    Attributes:
        keys: of counter and day (``Days.key``), in order.
        counter_ids: the counters of these.
        fails: too small.
        passes: large enough.
    """

    keys: Array
    counter_ids: Array
    fails: Array
    passes: Array

    def candidates(self, _counter_id: int, key: int) -> tuple[float, ...]:
        """Return candidates inside a bracket, and its upper end; none: nothing is left to find."""
        place = _place(self.keys, key)
        if place is None or np.isnan(self.fails[place]) or np.isnan(self.passes[place]):
            return ()
        return between(Bracket(self.fails[place], self.passes[place]))

    def refined(self, inner: "Brackets") -> "Brackets":
        """Return these, with what was found inside of them."""
        passes = self.passes.copy()
        # An inner grid ends where the outer one passed, so it says all that both say.
        passes[np.searchsorted(self.keys, inner.keys)] = inner.passes
        return Brackets(self.keys, self.counter_ids, self.fails, passes)

    def by_counter(self) -> dict[int, list[float | None]]:
        """Return the need of each day; None where no candidate was enough."""
        found: dict[int, list[float | None]] = {}
        passes = self.passes.tolist()
        for counter_id, need in zip(self.counter_ids.tolist(), passes, strict=True):
            found.setdefault(counter_id, []).append(None if np.isnan(need) else need)
        return found


def brackets(
    chunks: Chunks, days: Days, grids: Ends | Brackets, tolerance: Tolerance, counted: Counted
) -> Brackets:
    """Replay candidates for each counter on each day, open loop; this runs a Spark job."""
    stage = _stage(days, grids, tolerance, counted)
    table = arrow_table(chunks.of_types(REPLAYED_TYPES).stage(stage, _BRACKETS))
    ids, day = (table[name].to_numpy() for name in ("counter_id", "day"))
    keys = days.key(ids, day.astype(np.int64))
    order = np.argsort(keys)
    fails, passes = (
        table[name].to_numpy().astype(np.float64)[order] for name in ("fails", "passes")
    )
    return Brackets(keys[order], ids[order], fails, passes)


def _place(keys: Array, key: int) -> int | None:
    place = int(np.searchsorted(keys, key))
    return place if place < len(keys) and keys[place] == key else None


def _stage(
    days: Days, grids: Ends | Brackets, tolerance: Tolerance, counted: Counted
) -> Callable[[Iterator[Rows]], Iterator[pa.RecordBatch]]:
    def stage(parts: Iterator[Rows]) -> Iterator[pa.RecordBatch]:
        candidates: dict[int, tuple[float, ...]] = {}
        run = GridRun(Grid(of_counters=candidates, counted=counted))
        day_of: dict[int, int] = {}
        last: pa.RecordBatch | None = None
        for rows, of_day in days.cut(parts):
            keys = rows.names.column("counter_id").to_numpy()
            ids = days.counter_id(keys, of_day)
            candidates.clear()
            day_of = dict(zip(keys.tolist(), of_day.tolist(), strict=True))
            for counter_id, key in zip(ids.tolist(), day_of, strict=True):
                candidates[key] = grids.candidates(counter_id, key)
            done, last = run.replay(rows)
            if len(done):
                yield _brackets_of(done, days, day_of, tolerance)
        if last is not None and len(last):
            yield _brackets_of(last, days, day_of, tolerance)

    return stage


def _brackets_of(
    replayed: pa.RecordBatch, days: Days, day_of: dict[int, int], tolerance: Tolerance
) -> pa.RecordBatch:
    """Return a row per counter and day; those of one are neighbours, and all of them are here."""
    keys = replayed.column("counter_id").to_numpy()
    is_new = np.ones(len(keys), np.bool_)
    is_new[1:] = keys[1:] != keys[:-1]
    starts = np.flatnonzero(is_new).tolist()
    columns = (replayed.column(name).to_pylist() for name in ("quota", "share_over", "worst_ms"))
    trials = [
        Trial(quota=quota, share_over=over, worst_ms=worst)
        for quota, over, worst in zip(*columns, strict=True)
    ]
    found = [
        bracket(trials[start:end], tolerance)
        for start, end in zip(starts, [*starts[1:], len(trials)], strict=True)
    ]
    of_day = np.array([day_of[key] for key in keys[starts].tolist()], np.int64)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(days.counter_id(keys[starts], of_day)),
            pa.array(of_day.astype(np.int32)),
            pa.array([item.fails for item in found], pa.float64()),
            pa.array([item.passes for item in found], pa.float64()),
        ],
        schema=_BRACKETS,
    )
