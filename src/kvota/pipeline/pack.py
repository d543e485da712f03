"""Turns a table of events into chunks: about one row per counter. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvota.model.event import EVENT_COLUMNS
from kvota.model.quota_type import CLUSTER_NODE_ID, FACTS, QuotaType
from kvota.model.strict_mutations import STRICT_FROM
from kvota.model.tags import CLIENT_ID_TAG, USER_TAG, sanitise
from kvota.pipeline import chunk_schema as s
from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.kernels import packing
from kvota.record.period import ALWAYS, Period

# The columns of events that are packed, beside those that only some jobs ask for.
_ALWAYS = (
    "ts_us",
    "seq",
    "gateway",
    "run_id",
    "node_id",
    "quota_type",
    "api_key",
    "api_version",
    "value",
    "limit",
    "samples",
    "sample_ms",
    "algorithm",
    "outcome",
    "enforced",
)
_NAMES_OF: Mapping[s.By, tuple[str, ...]] = {
    "counter": ("tags",),
    "user": ("user",),
    "client": ("client_id",),
    "user-client": ("user", "client_id"),
}
TEXTS = frozenset(column.name for column in EVENT_COLUMNS if column.type == "string")

# A broker's number that a row lacks: it is not known.
_UNKNOWN_NODE = CLUSTER_NODE_ID - 1

# Counters are told apart by a table of all combinations up to this size, beyond it by sorting.
_COMBINATIONS_MAX = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """What is packed, and how.

    Attributes:
        by: the counters as recorded, or made anew per user, client id or both.
        runs: (gateway, run_id) → its place among the runs, and whether its first rows are in the record.
        further: columns that not every job needs: ``throttle_ms``, ``upstream_throttle_ms``.
        quota_types: None: all.
        period: rows outside of it are left out.
    """

    by: s.By
    runs: Mapping[tuple[str, str], tuple[int, bool]]
    further: frozenset[str] = field(default=frozenset())
    quota_types: frozenset[str] | None = None
    period: Period = ALWAYS

    def columns(self) -> list[str]:
        """Return the columns of the events table that are looked at."""
        return [*_ALWAYS, *_NAMES_OF[self.by], *sorted(self.further)]


@dataclass(frozen=True, slots=True)
class _Part:
    """One part of a counter's name: a code per row, and what the codes mean."""

    codes: Array
    texts: Sequence[str] | Array


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
    part = {name: _texts(table, name) for name in ("gateway", "run_id", "quota_type")}
    rank, complete = _runs(part["gateway"], part["run_id"], packing_.runs)
    ts_us, seq = _ints(table, "ts_us", 0), _ints(table, "seq", 0)
    names = _names(table, part, packing_.by)
    group, codes = _groups(names)
    order, starts = np.empty(len(group), np.int64), np.empty(len(codes) + 1, np.int64)
    packing.group_rows(group, order, starts)
    times = seq if packing_.by == "counter" else ts_us
    if not packing.sort_groups(order, starts, times, rank, seq):
        order = np.lexsort((seq, rank, times, group))
    starts, group_of = _cut(starts)
    columns: dict[str, Array | int] = {
        "ts_us": ts_us,
        "seq": seq,
        "run": rank,
        "samples": _ints_or_one(table, "samples", 0),
        "sample_ms": _ints_or_one(table, "sample_ms", 0),
        "marks": _marks(table, part["quota_type"], complete),
        "throttle_ms": _further(table, "throttle_ms", packing_, s.NO_NUMBER),
        "upstream_ms": _further(table, "upstream_throttle_ms", packing_, 0),
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


def _texts(table: pa.Table, name: str) -> _Part:
    """Return a column of texts; what is missing or null is an empty text."""
    if name not in table.column_names:
        return _Part(np.zeros(table.num_rows, np.int64), [""])
    column = _one(table[name])
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    texts = [text or "" for text in column.dictionary.to_pylist()]
    indices = column.indices
    if indices.null_count:
        indices = indices.fill_null(len(texts))
        texts.append("")
    codes = indices.to_numpy(zero_copy_only=False).astype(np.int64)
    first_of = {text: code for code, text in reversed(list(enumerate(texts)))}
    if len(first_of) < len(texts):  # the same text twice, e.g. empty and null
        codes = np.array([first_of[text] for text in texts])[codes]
    return _Part(codes, texts)


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _ints(table: pa.Table, name: str, missing: int) -> Array:
    if name not in table.column_names:
        return np.full(table.num_rows, missing, np.int64)
    return _filled(table, name, missing).astype(np.int64)


def _ints_or_one(table: pa.Table, name: str, missing: int) -> Array | int:
    """Return the numbers of a column, or the one that it has in every row."""
    if name not in table.column_names:
        return missing
    numbers = _filled(table, name, missing)
    same = _same(numbers)
    return numbers.astype(np.int64) if same is None else same


def _filled(table: pa.Table, name: str, missing: int) -> Array:
    column = _one(table[name])
    if column.null_count:
        column = column.fill_null(missing)
    numbers: Array = column.to_numpy(zero_copy_only=False)
    return numbers


def _further(table: pa.Table, name: str, packing_: Packing, missing: int) -> Array | int:
    return _ints_or_one(table, name, missing) if name in packing_.further else missing


def _runs(
    gateway: _Part, run_id: _Part, runs: Mapping[tuple[str, str], tuple[int, bool]]
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


def _marks(table: pa.Table, quota_type: _Part, complete: Array) -> Array:
    outcome, algorithm = _texts(table, "outcome"), _texts(table, "algorithm")
    of_outcome = np.array([s.outcome_code(text) for text in outcome.texts])
    of_algorithm = np.array(
        [[_algorithm(kind, text) for text in algorithm.texts] for kind in quota_type.texts]
    )
    marks: Array = of_outcome[outcome.codes] | of_algorithm[quota_type.codes, algorithm.codes]
    marks |= complete * s.COMPLETE
    if "enforced" in table.column_names:
        enforced = _one(table["enforced"]).fill_null(False)  # noqa: FBT003
        marks |= enforced.to_numpy(zero_copy_only=False) * s.ENFORCED
    if QuotaType.CONTROLLER_MUTATION in quota_type.texts:
        marks |= _strict(table, quota_type) * s.STRICT
    return marks


def _algorithm(quota_type: str, text: str) -> int:
    """Return the mark; rows from before there was more than one have none: it was the type's first."""
    if not text and quota_type in FACTS:
        text = FACTS[QuotaType(quota_type)].algorithms[0]
    return s.algorithm_mark(text)


def _strict(table: pa.Table, quota_type: _Part) -> Array:
    key, version = _ints(table, "api_key", -1), _ints(table, "api_version", -1)
    is_mutation = np.array([kind == QuotaType.CONTROLLER_MUTATION for kind in quota_type.texts])
    strict: Array = is_mutation[quota_type.codes]
    is_new = np.zeros(table.num_rows, np.bool_)
    for api, since in STRICT_FROM.items():
        is_new |= (key == api) & (version >= since)
    return strict & is_new


def _names(table: pa.Table, part: Mapping[str, _Part], by: s.By) -> list[_Part]:
    """Return the parts of a counter's name, of which the combinations are the counters."""
    node_id = _node_ids(_ints(table, "node_id", _UNKNOWN_NODE))
    of_names = [_texts(table, name) for name in _NAMES_OF[by]]
    if by == "counter":
        return [node_id, part["quota_type"], *of_names, part["gateway"], part["run_id"]]
    return [node_id, part["quota_type"], *of_names]


def _node_ids(node_id: Array) -> _Part:
    least, most = int(node_id.min()), int(node_id.max())
    if most - least > _COMBINATIONS_MAX:
        numbers, codes = np.unique(node_id, return_inverse=True)
        return _Part(codes, numbers)
    return _Part(node_id - least, np.arange(least, most + 1))


def _groups(names: Sequence[_Part]) -> tuple[Array, Array]:
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
    every = [columns[name] for name in s.INTS] + [_doubles(table, name) for name in s.DOUBLES]
    width = len(every)
    places, constants = np.full(width, -1), np.zeros(width, np.int64)
    varying: tuple[list[Array], list[Array]] = ([], [])  # whole and floating ones
    for place, values in enumerate(every):
        same = _same(values)
        if same is not None:
            constants[place] = same
            continue
        of_kind = varying[place >= len(s.INTS)]
        places[place] = len(of_kind)
        of_kind.append(np.asarray(values))
    ints = _gathered(varying[0], order, np.dtype(np.int64))
    doubles = _gathered(varying[1], order, np.dtype(np.float64))
    chunks = len(starts) - 1
    most = width * (chunks * packing.COLUMN_HEAD_BYTES + 8 * len(order))
    out, ends = np.empty(most, np.uint8), np.empty(chunks + 1, np.int64)
    bits = doubles.view(np.int64)
    packing.put_columns(starts, places, constants, len(s.INTS), ints, doubles, bits, out, ends)
    content = out[: ends[-1]].copy()  # most of ``out`` was never touched
    offsets = pa.py_buffer(ends.astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), chunks, [None, offsets, pa.py_buffer(content)])


def _same(values: Array | int) -> int | None:
    """Return the one number (of a floating one its bits) that a column has in every row, or None."""
    if isinstance(values, int):
        return values
    bits = values.view(np.int64) if values.dtype == np.float64 else values
    first = bits[0]
    # Most columns that vary do so among their first rows.
    return int(first) if (bits[:1_000] == first).all() and (bits == first).all() else None


def _gathered(columns: Sequence[Array], order: Array, dtype: np.dtype[Any]) -> Array:
    """Return a row per column, in this order."""
    rows = np.empty((len(columns), len(order)), dtype)
    for row, values in zip(rows, columns, strict=True):
        np.take(values, order, out=row, mode="clip")  # without "clip" it is copied once more
    return rows


def _doubles(table: pa.Table, name: str) -> Array:
    if name not in table.column_names:
        return np.full(table.num_rows, np.nan)
    column = _one(table[name])
    if column.null_count:
        column = column.fill_null(np.nan)
    return np.asarray(column.to_numpy(zero_copy_only=False), np.float64)


def _name_columns(names: Sequence[_Part], codes: Array, by: s.By) -> list[pa.Array]:
    """Return gateway, run_id, node_id, quota_type and tags of each chunk."""
    node_id = pa.array(np.asarray(names[0].texts)[codes[:, 0]].astype(np.int32))
    quota_type = _taken(names[1], codes[:, 1])
    if by == "counter":
        tags, gateway, run_id = (_taken(names[place], codes[:, place]) for place in (2, 3, 4))
        return [gateway, run_id, node_id, quota_type, tags]
    none = pa.array([""]).take(pa.array(np.zeros(len(codes), np.int64)))
    tags = _made_tags(names[2:], codes[:, 2:], by)
    return [none, none, node_id, quota_type, pa.array(tags, pa.string())]


def _taken(name: _Part, codes: Array) -> pa.Array:
    return pa.array(name.texts, pa.string()).take(pa.array(codes))


def _made_tags(names: Sequence[_Part], codes: Array, by: s.By) -> list[str]:
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
