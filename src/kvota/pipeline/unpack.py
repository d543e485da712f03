"""Turns chunks, sorted by counter, into rows in each counter's order. Pure.

Chunks of one counter may overlap (several gateways, a clock that was set back, files cut anyhow). A row
is final when no later chunk can begin before it, so the rows from the last chunk's begin on are held
back and merged with what follows. No result depends on how rows were cut into chunks and batches.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvota.model.errors import KvotaError
from kvota.pipeline import chunk_schema as s
from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.kernels import packing

# What is unpacked at once: with all columns about 50 MB.
_ROWS_AT_ONCE = 1 << 19
_CHUNKS_AT_ONCE = 1 << 13

# What is said of two counters whose names have the same hash.
SAME_ID = "two counters have the same counter_id"

_NAMES = ("counter_id", *s.COUNTER_COLUMNS)
_TIMES: Mapping[bool, tuple[str, ...]] = {True: ("seq",), False: ("ts_us", "run", "seq")}


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of some counters, in order.

    Attributes:
        names: a row per counter: counter_id and ``chunk_schema.COUNTER_COLUMNS``.
        starts: where each counter's rows start, and the end.
        continues: the first counter is the last one of the ``Rows`` before; of a counter there may be no
            rows here, if all are yet to come.
        columns: of the rows: those of a ``chunk_schema.Layout``, whole numbers as int64.
    """

    names: pa.RecordBatch
    starts: Array
    continues: bool
    columns: Mapping[str, Array]

    @property
    def charges(self) -> int:
        """Return how many charges the rows are of."""
        counted = self.columns.get("charges")
        return int(self.starts[-1]) if counted is None else int(counted.sum())

    def where(self, mask: Array) -> "Rows":
        """Return the rows for which the mask is true; a counter may be left with none."""
        if mask.all():
            return self
        kept = np.concatenate([[0], np.cumsum(mask)])
        columns = {name: column[mask] for name, column in self.columns.items()}
        return Rows(self.names, kept[self.starts], self.continues, columns)

    def spread(self, of_counters: Array) -> Array:
        """Return a value per row, made of one per counter."""
        return np.repeat(of_counters, np.diff(self.starts))


def unpack(
    batches: Iterable[pa.RecordBatch], *, as_recorded: bool, layout: s.Layout = s.CHARGES
) -> Iterator[Rows]:
    """Yield all rows, each counter's in order, from chunks sorted by counter_id and ``first``.

    Args:
        batches: ``chunk_schema.CHUNK`` and counter_id.
        as_recorded: the order is (seq), else (ts_us, run, seq).
        layout: the columns in payloads.

    Raises:
        KvotaError: two counters have the same counter_id.
    """
    held: _Held | None = None
    for batch in batches:
        for some in _slices(batch):
            rows, held = _merged(held, some, _TIMES[as_recorded], layout)
            yield rows
    if held is not None:
        yield Rows(held.name, np.array([0, held.length]), continues=True, columns=held.columns)


@dataclass(frozen=True, slots=True)
class _Held:
    """Rows of the running counter that a later chunk may come before."""

    name: pa.RecordBatch  # one row
    columns: Mapping[str, Array]
    length: int
    last: int  # the order of the last one


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch so that little is unpacked at once."""
    ends = np.cumsum(batch.column("rows").to_numpy())
    start = 0
    while start < len(ends):
        before = ends[start - 1] if start else 0
        end = int(np.searchsorted(ends, before + _ROWS_AT_ONCE, side="right"))
        end = min(max(end, start + 1), start + _CHUNKS_AT_ONCE)
        yield batch.slice(start, end - start)
        start = end


def _merged(
    held: _Held | None, batch: pa.RecordBatch, order: tuple[str, ...], layout: s.Layout
) -> tuple[Rows, _Held | None]:
    """Return what is final of the held rows and these chunks, and what is held back now."""
    ids = batch.column("counter_id").to_numpy()
    if held is not None:
        ids = np.concatenate([held.name.column("counter_id").to_numpy(), ids])
    chunks = np.concatenate(
        [[] if held is None else [held.length], batch.column("rows").to_numpy()]
    )
    row_starts = np.concatenate([[0], np.cumsum(chunks)]).astype(np.int64)
    columns = _columns(held, batch, row_starts, layout)
    is_new = np.concatenate([[True], ids[1:] != ids[:-1]])
    first_chunks = np.flatnonzero(is_new)
    named = batch.select(_NAMES)
    names = named if held is None else _joined(held.name, named)
    _check_names(names, is_new)
    names = names.take(pa.array(first_chunks))
    starts = np.append(row_starts[first_chunks], row_starts[-1])
    firsts, lasts = _column(batch, "first"), _column(batch, "last")
    if held is not None:
        firsts = np.concatenate([[columns[order[0]][0]], firsts])
        lasts = np.concatenate([[held.last], lasts])
    _sort(columns, starts, first_chunks, (firsts, lasts), order)
    # Of the last counter, rows from its last chunk's begin on may still have company.
    start, end = int(starts[-2]), int(starts[-1])
    final = start + int(np.searchsorted(columns[order[0]][start:end], firsts[-1]))
    rest = {name: column[final:end] for name, column in columns.items()}
    kept = _Held(names.slice(len(names) - 1), rest, end - final, int(rest[order[0]][-1]))
    starts[-1] = final
    done = {name: column[:final] for name, column in columns.items()}
    return Rows(names, starts, held is not None, done), kept


def _columns(
    held: _Held | None, batch: pa.RecordBatch, row_starts: Array, layout: s.Layout
) -> dict[str, Array]:
    """Unpack the chunks behind the rows that were held."""
    total = int(row_starts[-1])
    ints = np.empty((len(layout.ints), total), np.int64)
    doubles = np.empty((len(layout.doubles), total))
    columns = dict(zip(layout.names, (*ints, *doubles), strict=True))
    before = 0
    if held is not None:
        before = held.length
        for name, column in columns.items():
            column[:before] = held.columns[name]
    payload = batch.column("payload")
    _, offsets, data = payload.buffers()
    length = len(payload)
    width = np.dtype(np.int64 if pa.types.is_large_binary(payload.type) else np.int32)
    places = np.frombuffer(offsets, width, length + 1, width.itemsize * payload.offset)
    bits = doubles.view(np.int64)
    content = np.frombuffer(data, np.uint8)
    places = places.astype(np.int64)
    packing.get_columns(content, places, row_starts[-length - 1 :], ints, doubles, bits)
    return columns


def _column(batch: pa.RecordBatch, name: str) -> Array:
    column: Array = batch.column(name).to_numpy()
    return column


def _joined(first: pa.RecordBatch, second: pa.RecordBatch) -> pa.RecordBatch:
    return pa.Table.from_batches([first, second]).combine_chunks().to_batches()[0]


def _check_names(names: pa.RecordBatch, is_new: Array) -> None:
    """Refuse two counters of one id: they are never merged."""
    if len(names) == 1:
        return
    differ = np.zeros(len(names) - 1, np.bool_)
    for name in s.COUNTER_COLUMNS:
        column = names.column(name)
        differ |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    if (differ & ~is_new[1:]).any():
        place = int(np.flatnonzero(differ & ~is_new[1:])[0])
        first, second = names.slice(place, 2).to_pylist()
        msg = f"{SAME_ID}: {first} and {second}"
        raise KvotaError(msg)


def _sort(
    columns: Mapping[str, Array],
    starts: Array,
    first_chunks: Array,
    bounds: tuple[Array, Array],
    order: tuple[str, ...],
) -> None:
    """Sort the rows of counters of which chunks overlap."""
    firsts, lasts = bounds
    ends = np.append(first_chunks[1:], len(firsts))
    overlap = np.zeros(len(firsts), np.bool_)
    overlap[1:] = firsts[1:] <= lasts[:-1]
    overlap[first_chunks] = False
    if not overlap.any():
        return
    counter_of = np.repeat(np.arange(len(first_chunks)), ends - first_chunks)
    is_mixed = np.zeros(len(first_chunks), np.bool_)
    is_mixed[counter_of[overlap]] = True
    lengths = np.diff(starts)
    rows = np.flatnonzero(np.repeat(is_mixed, lengths))
    keys = [columns[name][rows] for name in reversed(order)]
    places = rows[np.lexsort((*keys, np.repeat(np.arange(len(lengths)), lengths)[rows]))]
    for column in columns.values():
        column[rows] = column[places]
