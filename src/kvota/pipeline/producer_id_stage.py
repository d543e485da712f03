"""Goes through one task's rows of new producer ids: what came, and what candidate quotas would have refused. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa

from kvota.model.decision_sink import ADMITTED, REJECTED
from kvota.model.quota_type import Algorithm
from kvota.pipeline import chunk_schema as s
from kvota.pipeline import counters as c
from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.distinct_ids import DistinctIds
from kvota.pipeline.grid import RESULT, result_columns
from kvota.pipeline.kernels import grid_sums as k
from kvota.pipeline.kernels.producer_id_open import id_open_rows, most_in_a_window
from kvota.pipeline.unpack import Rows

CAME = pa.schema(
    [
        ("counter_id", pa.int64()),
        ("user", pa.string()),
        ("client_id", pa.string()),
        ("tags", pa.string()),
        ("enforced", pa.bool_()),
        ("new_ids", pa.int64()),
        ("most_in_window", pa.int64()),
        ("distinct_ids", pa.int64()),
        ("unnamed_ids", pa.int64()),
        ("refused_ids", pa.int64()),
        ("refusals", pa.int64()),
        ("window_ms", pa.int64()),
        ("limit_last", pa.float64()),
        ("start_us", pa.int64()),
        ("end_us", pa.int64()),
    ]
)
_NOBODY = np.zeros(0, np.int64)

Columns = Mapping[str, Array]


class _Counter(Protocol):
    """What is made of the rows of one counter, which come piece by piece."""

    def take(self, columns: Columns) -> None:
        """Some more rows, in order."""
        ...


_AnyCounter = TypeVar("_AnyCounter", bound=_Counter)


def _counters(
    parts: Iterator[Rows], begin: Callable[[pa.RecordBatch], _AnyCounter]
) -> Iterator[_AnyCounter]:
    """Yield each counter that has rows when all of them are taken; ``begin`` is given its name, one row."""
    running: _AnyCounter | None = None
    for rows in parts:
        for place in range(len(rows.names)):
            start, end = rows.starts[place], rows.starts[place + 1]
            if not (place == 0 and rows.continues):
                if running is not None:
                    yield running
                running = None
            if start < end:
                if running is None:
                    running = begin(rows.names.slice(place, 1))
                running.take({name: column[start:end] for name, column in rows.columns.items()})
    if running is not None:
        yield running


# ---------------------------------------------------------------------- what came


class _Came:
    """Sums up the ids of one counter."""

    def __init__(self, name: pa.RecordBatch) -> None:
        self._name = name
        self._named, self._refused = DistinctIds(), DistinctIds()
        self._new = self._refusals = self._unnamed = self._most = 0
        # New ones of the last window: when, how many, and the window.
        self._latest: tuple[Array, ...] = (_NOBODY, np.zeros(0), _NOBODY)
        self._start_us, self._end_us = 2**62, -(2**62)
        self._window_ms, self._limit = 0, np.nan

    def take(self, columns: Columns) -> None:
        ids, value, ts_us = columns[s.SHARED_INT], columns["value"], columns["ts_us"]
        outcome = columns["marks"] & s.OUTCOME_MASK
        is_new, is_refused, is_named = outcome == ADMITTED, outcome == REJECTED, ids != s.NOT_TOLD
        self._named.add(ids[is_named])
        self._refused.add(ids[is_named & is_refused])
        self._new += int(value[is_new].sum())
        self._refusals += int(value[is_refused].sum())
        self._unnamed += int(value[~is_named].sum())
        self._look_at_windows(ts_us[is_new] // 1000, value[is_new], columns["sample_ms"][is_new])
        self._start_us = min(self._start_us, int(ts_us.min()))
        self._end_us = max(self._end_us, int(ts_us.max()))
        self._window_ms, self._limit = int(columns["sample_ms"][-1]), columns["limit"][-1]

    def _look_at_windows(self, *new: Array) -> None:
        times, value, window_ms = (
            np.concatenate([before, more]) for before, more in zip(self._latest, new, strict=True)
        )
        if not len(times):
            return
        times = np.maximum.accumulate(times)  # a clock that goes back stands still meanwhile
        self._most = max(self._most, int(most_in_a_window(times, value, window_ms)))
        latest = times > times[-1] - window_ms.max()
        self._latest = times[latest], value[latest], window_ms[latest]

    def row(self) -> dict[str, object]:
        """As ``CAME`` has it."""
        named = c.named(self._name).to_pylist()[0]
        return {
            **{key: named[key] for key in ("counter_id", "user", "client_id", "tags")},
            "enforced": self._name.column("enforcing")[0].as_py() == s.ENFORCED_ROWS,
            "new_ids": self._new,
            "most_in_window": self._most,
            "distinct_ids": len(self._named),
            "unnamed_ids": self._unnamed,
            "refused_ids": len(self._refused),
            "refusals": self._refusals,
            "window_ms": self._window_ms,
            "limit_last": None if np.isnan(self._limit) else float(self._limit),
            "start_us": self._start_us,
            "end_us": self._end_us,
        }


def came(parts: Iterator[Rows]) -> Iterator[pa.RecordBatch]:
    """Sum up which ids came; ``CAME``."""
    found = [counter.row() for counter in _counters(parts, _Came)]
    yield from pa.Table.from_pylist(found, CAME).to_batches()


# ---------------------------------------------------------------------- candidates


class _Replayed:
    """Replays one counter; remembers the ids that the gateway has refused within the window."""

    def __init__(self, quotas: Sequence[float], name: pa.RecordBatch) -> None:
        self._name = name
        self._quotas = np.array(quotas)
        count = len(self._quotas)
        self._clock, self._sums = np.zeros(k.CLOCK_SIZE, np.int64), np.zeros((k.SUMS, count))
        self._clock[k.FIRST_MS] = self._clock[k.RECORD_MS] = k.LONG_AGO_MS
        self._sums[k.COVERED_MS] = k.LONG_AGO_MS
        self._debts = np.zeros(count)
        self._ids = self._came_ms = _NOBODY
        self._let_in = np.zeros((0, count), np.bool_)

    def take(self, columns: Columns) -> None:
        told = columns[s.SHARED_INT]
        is_named = told != s.NOT_TOLD
        self._make_room(told[is_named])
        ids = np.where(is_named, np.searchsorted(self._ids, told), -1)
        id_open_rows(
            columns["ts_us"],
            columns["value"],
            columns["sample_ms"],
            columns["marks"] & s.OUTCOME_MASK,
            (columns["marks"] & s.COMPLETE) != 0,
            ids,
            self._quotas,
            float(c.floors(self._name)[0]),
            self._clock,
            self._debts,
            self._came_ms,
            self._let_in,
            self._sums,
        )
        now_ms, window_ms = self._clock[k.TOUCHED_MS], self._clock[k.SAMPLE_MS]
        kept = (self._came_ms != k.LONG_AGO_MS) & (now_ms < self._came_ms + window_ms)
        self._ids, self._came_ms = self._ids[kept], self._came_ms[kept]
        self._let_in = self._let_in[kept]

    def _make_room(self, more: Array) -> None:
        every = np.union1d(self._ids, more)
        places = np.searchsorted(every, self._ids)
        came_ms = np.full(len(every), k.LONG_AGO_MS)
        let_in = np.zeros((len(every), len(self._quotas)), np.bool_)
        came_ms[places], let_in[places] = self._came_ms, self._let_in
        self._ids, self._came_ms, self._let_in = every, came_ms, let_in

    def result(self) -> pa.RecordBatch:
        """A row per candidate, as ``grid.RESULT`` has it."""
        count = len(self._quotas)
        names = c.named(self._name).take(pa.array(np.zeros(count, np.int64)))
        columns = result_columns(
            self._sums,
            np.broadcast_to(self._clock, (count, k.CLOCK_SIZE)),
            mode="open",
            algorithm=pa.array([Algorithm.TOKEN_BUCKET.value] * count),
            place=np.arange(count),
            quota=self._quotas * 1000.0 / self._clock[k.SAMPLE_MS],
            value=np.full(count, self._sums[k.VALUE, 0]),
        )
        return pa.RecordBatch.from_arrays([*names.columns, *columns], schema=RESULT)


def id_grid_stage(quotas: Sequence[float]) -> Callable[[Iterator[Rows]], Iterator[pa.RecordBatch]]:
    """Make the function that replays all counters under so many new ids per window; ``grid.RESULT``."""

    def stage(parts: Iterator[Rows]) -> Iterator[pa.RecordBatch]:
        for counter in _counters(parts, lambda name: _Replayed(quotas, name)):
            yield counter.result()

    return stage
