"""Turns a table of events into chunks: about one row per counter. Pure."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvota.model.quota_type import CLUSTER_NODE_ID
from kvota.model.tags import CLIENT_ID_TAG, USER_TAG, sanitise
from kvota.pipeline import chunk_schema as s
from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.event_columns import Part, doubles, ints, ints_or_one, same_in_all, texts_of
from kvota.pipeline.kernels import packing
from kvota.pipeline.marks import enforced_in, marks_of
from kvota.pipeline.packing_choice import NAMES_OF, Packing
from kvota.record.period import ALWAYS

# A broker's number that a row lacks: it is not known.
_UNKNOWN_NODE = CLUSTER_NODE_ID - 1

# Counters are told apart by a table of all combinations up to this size, beyond it by sorting.
_COMBINATIONS_MAX = 1 << 22


def pack(events: pa.Table, packing_: Packing) -> pa.RecordBatch | None:
    """Return the chunks of some events, in any order; None where none are wanted.

    In:  columns of the events table; texts as dictionaries or plain; columns may be missing or null.
    Out: ``chunk_schema.CHUNK``; the rows of a chunk are in its counter's order.

    Raises:
        KeyError: a row is of a run that ``Packing.runs`` does not name.
    """
    wanted = _wanted(events, packing_)
    if not wanted.num_rows:
        return None
    table = wanted.unify_dictionaries().combine_chunks()
    part = {name: texts_of(table, name) for name in ("gateway", "run_id", "quota_type")}
    rank, complete = _runs(part["gateway"], part["run_id"], packing_.runs)
    ts_us, seq = ints(table, "ts_us", 0), ints(table, "seq", 0)
    names = _names(table, part, packing_)
    group, codes = _groups(names)
    order, starts, codes = _together(group, codes)
    times = seq if packing_.by == "counter" else ts_us
    if not packing.sort_groups(order, starts, times, rank, seq):
        place = np.empty(len(order), np.int64)
        place[order] = np.repeat(np.arange(len(codes)), np.diff(starts))
        order = np.lexsort((seq, rank, times, place))
    starts, group_of = _cut(starts)
    columns: dict[str, Array | int] = {
        "ts_us": ts_us,
        "seq": seq,
        "run": rank,
        "samples": ints_or_one(table, "samples", 0),
        "sample_ms": ints_or_one(table, "sample_ms", 0),
        "marks": marks_of(table, part["quota_type"], complete, packing_),
        "throttle_ms": _further(table, "throttle_ms", packing_, s.NO_NUMBER),
        s.SHARED_INT: _sharing(table, packing_),
    }
    payload = _payload(columns, table, order, starts)
    firsts, ends = order[starts[:-1]], order[starts[1:] - 1]
    texts = _name_columns(names, codes[group_of], packing_.by)
    return pa.RecordBatch.from_arrays(
        [
            *texts,
            pa.array(times[firsts]),
            pa.array(times[ends]),
            pa.array(np.diff(starts).astype(np.int32)),
            payload,
        ],
        schema=s.CHUNK,
    )


def _wanted(events: pa.Table, packing_: Packing) -> pa.Table:
    mask = None
    if packing_.quota_types is not None:
        mask = pc.is_in(events["quota_type"], value_set=pa.array(sorted(packing_.quota_types)))
    if packing_.period != ALWAYS:
        since = pc.greater_equal(events["ts_us"], packing_.period.since_us)
        inside = pc.and_(since, pc.less(events["ts_us"], packing_.period.until_us))
        mask = inside if mask is None else pc.and_(mask, inside)
    if mask is None or pc.all(mask).as_py():
        return events
    return events.filter(mask)


def _further(table: pa.Table, name: str, packing_: Packing, missing: int) -> Array | int:
    return ints_or_one(table, name, missing) if name in packing_.further else missing


def _sharing(table: pa.Table, packing_: Packing) -> Array | int:
    for name, missing in s.SHARING.items():
        if name in packing_.further:
            return ints_or_one(table, name, missing)
    return 0


def _runs(
    gateway: Part, run_id: Part, runs: Mapping[tuple[str, str], tuple[int, bool]]
) -> tuple[Array, Array]:
    """Return the rank of each row's run, and whether the run is complete."""
    ranks = np.full((len(gateway.texts), len(run_id.texts)), -1, np.int64)
    completes = np.zeros(ranks.shape, np.int64)
    for first, name in enumerate(gateway.texts):
        for second, run in enumerate(run_id.texts):
            if (name, run) in runs:
                ranks[first, second], completes[first, second] = runs[name, run]
    if ranks.size == 1:
        rows = len(gateway.codes)
        rank, complete = np.full(rows, ranks[0, 0]), np.full(rows, completes[0, 0])
    else:
        rank = ranks[gateway.codes, run_id.codes]
        complete = completes[gateway.codes, run_id.codes]
    if rank.min() < 0:
        row = int(rank.argmin())
        raise KeyError((gateway.texts[gateway.codes[row]], run_id.texts[run_id.codes[row]]))
    return rank, complete


def _names(table: pa.Table, part: Mapping[str, Part], packing_: Packing) -> list[Part]:
    """Return the parts of a counter's name, of which the combinations are the counters."""
    by = packing_.by
    enforcing = Part(np.zeros(table.num_rows, np.int64), np.array([s.ALL_ROWS]))
    if packing_.modes_apart:
        modes = np.array([s.SHADOW_ROWS, s.ENFORCED_ROWS])
        enforcing = Part(enforced_in(table).astype(np.int64), modes)
    node_id = _node_ids(ints(table, "node_id", _UNKNOWN_NODE))
    of_names = [texts_of(table, name) for name in NAMES_OF[by]]
    if by == "counter":
        of_names += [part["gateway"], part["run_id"]]
    return [node_id, part["quota_type"], enforcing, *of_names]


def _node_ids(node_id: Array) -> Part:
    least, most = int(node_id.min()), int(node_id.max())
    if most - least > _COMBINATIONS_MAX:
        numbers, codes = np.unique(node_id, return_inverse=True)
        return Part(codes, numbers)
    return Part(node_id - least, np.arange(least, most + 1))


def _groups(names: Sequence[Part]) -> tuple[Array, Array]:
    """Return the group of each row, and the codes of each group's parts (a row per group)."""
    codes = np.zeros(len(names[0].codes), np.int64)
    parts = np.zeros((1, 0), np.int64)  # of the groups found so far
    counts: list[int] = []  # of the parts that ``codes`` has beyond them
    for name in names:
        count = len(name.texts)
        counts.append(count)
        if count > 1:
            codes = codes * count + name.codes
        size = len(parts) * prod(counts)
        if size > _COMBINATIONS_MAX or name is names[-1]:
            codes, there = _present(codes, size)
            further = np.empty((len(there), len(counts)), np.int64)
            for place in reversed(range(len(counts))):
                there, further[:, place] = np.divmod(there, counts[place])
            parts = np.column_stack([parts[there], further])
            counts = []
    return codes, parts


def _present(codes: Array, size: int) -> tuple[Array, Array]:
    """Number the codes that are there from 0 on; return the numbers and these codes."""
    if size > _COMBINATIONS_MAX:
        there, numbered = np.unique(codes, return_inverse=True)
        return numbered, there
    is_there = np.zeros(size, np.bool_)
    is_there[codes] = True
    number = np.cumsum(is_there) - 1
    return number[codes], np.flatnonzero(is_there)


def _together(group: Array, codes: Array) -> tuple[Array, Array, Array]:
    """Put the rows of each group together; return the rows, where groups start, and each one's codes."""
    begins = np.append(0, np.flatnonzero(group[1:] != group[:-1]) + 1)
    if len(begins) == len(codes):  # they are, as in a compacted file
        return np.arange(len(group)), np.append(begins, len(group)), codes[group[begins]]
    order, starts = np.empty(len(group), np.int64), np.empty(len(codes) + 1, np.int64)
    packing.group_rows(group, order, starts)
    return order, starts, codes


def _cut(starts: Array) -> tuple[Array, Array]:
    """Cut groups into chunks of bounded size; return where they start, and each one's group."""
    counts = np.diff(starts)
    pieces = -(-counts // s.CHUNK_ROWS_MAX)
    group_of = np.repeat(np.arange(len(counts)), pieces)
    if len(group_of) == len(counts):
        return starts, group_of
    before = np.repeat(np.cumsum(pieces) - pieces, pieces)
    within = (np.arange(len(group_of)) - before) * s.CHUNK_ROWS_MAX
    return np.append(starts[group_of] + within, starts[-1]), group_of


def _payload(
    columns: Mapping[str, Array | int], table: pa.Table, order: Array, starts: Array
) -> pa.Array:
    every = [columns[name] for name in s.INTS] + [doubles(table, name) for name in s.DOUBLES]
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
    whole = _gathered(varying[0], order, np.dtype(np.int64))
    floating = _gathered(varying[1], order, np.dtype(np.float64))
    chunks = len(starts) - 1
    most = width * (chunks * packing.COLUMN_HEAD_BYTES + 8 * len(order))
    out, ends = np.empty(most, np.uint8), np.empty(chunks + 1, np.int64)
    bits = floating.view(np.int64)
    packing.put_columns(starts, places, constants, len(s.INTS), whole, floating, bits, out, ends)
    content = out[: ends[-1]].copy()  # most of ``out`` was never touched
    offsets = pa.py_buffer(ends.astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), chunks, [None, offsets, pa.py_buffer(content)])


def _gathered(columns: Sequence[Array], order: Array, dtype: np.dtype[Any]) -> Array:
    """Return a row per column, in this order."""
    rows = np.empty((len(columns), len(order)), dtype)
    if (order[1:] > order[:-1]).all():  # every row stays where it is
        for row, values in zip(rows, columns, strict=True):
            row[:] = values
        return rows
    for row, values in zip(rows, columns, strict=True):
        np.take(values, order, out=row, mode="clip")  # without "clip" it is copied once more
    return rows


def _name_columns(names: Sequence[Part], codes: Array, by: s.By) -> list[pa.Array]:
    """Return ``COUNTER_COLUMNS`` of each chunk."""
    node_id, enforcing = (
        pa.array(np.asarray(names[place].texts)[codes[:, place]].astype(np.int32))
        for place in (0, 2)
    )
    quota_type = _taken(names[1], codes[:, 1])
    if by == "counter":
        tags, gateway, run_id = (_taken(names[place], codes[:, place]) for place in (3, 4, 5))
        return [gateway, run_id, node_id, quota_type, tags, enforcing]
    none = pa.array([""]).take(pa.array(np.zeros(len(codes), np.int64)))
    tags = _made_tags(names[3:], codes[:, 3:], by)
    return [none, none, node_id, quota_type, pa.array(tags, pa.string()), enforcing]


def _taken(name: Part, codes: Array) -> pa.Array:
    return pa.array(name.texts, pa.string()).take(pa.array(codes))


def _made_tags(names: Sequence[Part], codes: Array, by: s.By) -> list[str]:
    """Write tags as ``model.tags.tags_text`` writes these two."""
    encoded = [[sanitise(text) for text in name.texts] for name in names]
    rows = codes.tolist()
    if by == "user":
        return [f"{CLIENT_ID_TAG}=,{USER_TAG}={encoded[0][user]}" for (user,) in rows]
    if by == "client":
        return [f"{CLIENT_ID_TAG}={encoded[0][client]},{USER_TAG}=" for (client,) in rows]
    return [
        f"{CLIENT_ID_TAG}={encoded[1][client]},{USER_TAG}={encoded[0][user]}"
        for user, client in rows
    ]
