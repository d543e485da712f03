"""Turns a table of events into chunks: about one row per counter; of charges, or of parts of seconds. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from kvota.pipeline import chunk_schema as s
from kvota.pipeline.arrange import Arranged, Counters, Grouped, arranged, grouped
from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.event_columns import Events, same_in_all
from kvota.pipeline.kernels import packing
from kvota.pipeline.kernels.second_sums import TS_US
from kvota.pipeline.packing_choice import Packing
from kvota.pipeline.seconds import parts_of


def pack(events: Events, packing_: Packing) -> pa.RecordBatch | None:
    """Return the chunks of some events, in any order; None where none are wanted.

    In:  columns of the events table; they may be missing or null.
    Out: ``chunk_schema.CHUNK``; the rows of a chunk are in its counter's order.

    Raises:
        KeyError: a row is of a run that ``Packing.runs`` does not name.
    """
    if packing_.is_summed:
        of_counters = grouped(events, packing_)
        return None if of_counters is None else _packed(_of_parts(of_counters), packing_)
    found = arranged(events, packing_)
    return None if found is None else _packed(_of_charges(found), packing_)


@dataclass(frozen=True, slots=True)
class _Ordered:
    """Rows counter by counter, each one's in order.

    Attributes:
        starts: where each counter's rows start, and the end.
        counters: who they are.
        times: of each row its place in its counter's order.
        places: of each column of the layout in ``ints`` or ``doubles``; -1: all rows are the same.
        constants: the number of each column of which all rows are the same.
        ints: a row per column.
        doubles: a row per column.
    """

    starts: Array
    counters: Counters
    times: Array
    places: Array
    constants: Array
    ints: Array
    doubles: Array


def _of_charges(found: Arranged) -> _Ordered:
    every = [found.columns[name] for name in s.CHARGES.names]
    same = [same_in_all(values) for values in every]
    varying: tuple[list[Array], list[Array]] = ([], [])  # whole and floating ones
    places = []
    for place, (values, number) in enumerate(zip(every, same, strict=True)):
        of_kind = varying[place >= len(s.INTS)]
        places.append(len(of_kind) if number is None else -1)
        if number is None:
            of_kind.append(np.asarray(values))
    return _Ordered(
        found.starts,
        found.counters,
        found.times[found.order],
        np.array(places),
        np.array([number or 0 for number in same]),
        gathered(varying[0], found.order, np.dtype(np.int64)),
        gathered(varying[1], found.order, np.dtype(np.float64)),
    )


def _of_parts(found: Grouped) -> _Ordered:
    parts = parts_of(found)
    every = (*parts.ints, *parts.doubles)
    same = [same_in_all(values) for values in every]
    places = [*range(len(parts.ints)), *range(len(parts.doubles))]
    return _Ordered(
        parts.starts,
        found.counters,
        parts.ints[TS_US],
        np.array([place if n is None else -1 for place, n in zip(places, same, strict=True)]),
        np.array([number or 0 for number in same]),
        parts.ints,
        parts.doubles,
    )


def _packed(rows: _Ordered, packing_: Packing) -> pa.RecordBatch:
    starts, counter_of = _cut(rows.starts, packing_.chunk_rows_max)
    return pa.RecordBatch.from_arrays(
        [
            *rows.counters.columns(counter_of),
            pa.array(rows.times[starts[:-1]]),
            pa.array(rows.times[starts[1:] - 1]),
            pa.array(np.diff(starts).astype(np.int32)),
            _payload(rows, starts, packing_.layout),
        ],
        schema=s.CHUNK,
    )


def _cut(starts: Array, rows_max: int) -> tuple[Array, Array]:
    """Cut groups into chunks of bounded size; return where they start, and each one's group."""
    counts = np.diff(starts)
    pieces = -(-counts // rows_max)
    group_of = np.repeat(np.arange(len(counts)), pieces)
    if len(group_of) == len(counts):
        return starts, group_of
    before = np.repeat(np.cumsum(pieces) - pieces, pieces)
    within = (np.arange(len(group_of)) - before) * rows_max
    return np.append(starts[group_of] + within, starts[-1]), group_of


def _payload(rows: _Ordered, starts: Array, layout: s.Layout) -> pa.Array:
    chunks = len(starts) - 1
    most = len(layout.names) * (chunks * packing.COLUMN_HEAD_BYTES + 8 * int(starts[-1]))
    out, ends = np.empty(most, np.uint8), np.empty(chunks + 1, np.int64)
    packing.put_columns(
        *(starts, rows.places, rows.constants, len(layout.ints)),
        *(rows.ints, rows.doubles, rows.doubles.view(np.int64), out, ends),
    )
    content = out[: ends[-1]].copy()  # most of ``out`` was never touched
    offsets = pa.py_buffer(ends.astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), chunks, [None, offsets, pa.py_buffer(content)])


def gathered(columns: Sequence[Array], order: Array, dtype: np.dtype[Any]) -> Array:
    """Return a row per column, in this order."""
    rows = np.empty((len(columns), len(order)), dtype)
    if len(order) and (order[1:] == order[:-1] + 1).all():  # every row stays where it is
        for row, values in zip(rows, columns, strict=True):
            row[:] = values[order[0] : order[-1] + 1]
        return rows
    for row, values in zip(rows, columns, strict=True):
        np.take(values, order, out=row, mode="clip")  # without "clip" it is copied once more
    return rows
