"""Turns a table of events into chunks: about one row per counter. Pure."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kvota.pipeline import chunk_schema as s
from kvota.pipeline.arrange import Arranged, arranged
from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.event_columns import Events, same_in_all
from kvota.pipeline.kernels import packing
from kvota.pipeline.packing_choice import Packing


def pack(events: Events, packing_: Packing) -> pa.RecordBatch | None:
    """Return the chunks of some events, in any order; None where none are wanted.

    In:  columns of the events table; they may be missing or null.
    Out: ``chunk_schema.CHUNK``; the rows of a chunk are in its counter's order.

    Raises:
        KeyError: a row is of a run that ``Packing.runs`` does not name.
    """
    found = arranged(events, packing_)
    if found is None:
        return None
    starts, counter_of = _cut(found.starts, packing_.chunk_rows_max)
    payload = _payload(found, starts)
    firsts, ends = found.order[starts[:-1]], found.order[starts[1:] - 1]
    return pa.RecordBatch.from_arrays(
        [
            *found.counter_columns(counter_of),
            pa.array(found.times[firsts]),
            pa.array(found.times[ends]),
            pa.array(np.diff(starts).astype(np.int32)),
            payload,
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


def _payload(found: Arranged, starts: Array) -> pa.Array:
    order = found.order
    every = [found.columns[name] for name in (*s.INTS, *s.DOUBLES)]
    width = len(every)
    places, constants = np.full(width, -1), np.zeros(width, np.int64)
    varying: tuple[list[Array], list[Array]] = ([], [])  # whole and floating ones
    for place, values in enumerate(every):
        same = same_in_all(values)
        if same is not None:
            constants[place] = same
            continue
        of_kind = varying[place >= len(s.INTS)]
        places[place] = len(of_kind)
        of_kind.append(np.asarray(values))
    whole = gathered(varying[0], order, np.dtype(np.int64))
    floating = gathered(varying[1], order, np.dtype(np.float64))
    chunks = len(starts) - 1
    most = width * (chunks * packing.COLUMN_HEAD_BYTES + 8 * len(order))
    out, ends = np.empty(most, np.uint8), np.empty(chunks + 1, np.int64)
    bits = floating.view(np.int64)
    packing.put_columns(starts, places, constants, len(s.INTS), whole, floating, bits, out, ends)
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
