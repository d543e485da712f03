"""Sums up decisions: rows of events become seconds of counters, and seconds become minutes of tenants. Pure.

What a request counts as is the law of ``kvota usage``: a request that waited is in the record twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvota.model.event import Outcome
from kvota.model.quota_type import QuotaType
from kvota.record.tag_texts import kafka_names, places_in, sanitised

_Array = np.ndarray[Any, np.dtype[Any]]

MINUTE_S = 60
_SECOND_US = 1_000_000

# Whose charges are counted together, and by which names these are told.
LEVELS: Mapping[str, tuple[str, ...]] = {
    "user": ("user",),
    "client": ("client_id",),
    "user-client": ("user", "client_id"),
}

_TEXT = pa.dictionary(pa.int32(), pa.string())

# What was done on a counter by one user and client id in one second: the same whatever file its rows were in.
_COUNTER = ("quota_type", "tags", "node_id", "enforced", "user", "client_id")
_COUNTS = ("events", "decisions", "throttled", "rejected", "throttle_ms_sum")
_SUMS = (*_COUNTS, "value_sum")
SECONDS_SCHEMA = pa.schema(
    [
        ("second", pa.int64()),
        ("quota_type", _TEXT),
        ("tags", _TEXT),
        ("node_id", pa.int32()),
        ("enforced", pa.bool_()),
        ("user", _TEXT),
        ("client_id", _TEXT),
        *((name, pa.int64()) for name in _COUNTS),
        ("value_sum", pa.float64()),
        ("limit_last", pa.float64()),
        ("last_us", pa.int64()),
    ]
)

MINUTES_VERSION = "1"
# As in files a text is plain for others who read them; here it is a code.
MINUTES_SCHEMA = pa.schema(
    [
        ("window_start", pa.timestamp("us", tz="UTC")),
        ("level", _TEXT),
        ("quota_type", _TEXT),
        ("user", _TEXT),
        ("client_id", _TEXT),
        ("node_id", pa.int32()),
        ("enforced", pa.bool_()),
        ("events", pa.int64()),
        ("decisions", pa.int64()),
        ("value_sum", pa.float64()),
        ("rate_max", pa.float64()),
        ("throttled", pa.int64()),
        ("rejected", pa.int64()),
        ("throttle_ms_sum", pa.int64()),
        ("limit_last", pa.float64()),
        ("limit_binds", pa.bool_()),
        ("last_us", pa.int64()),
        ("parts", pa.int64()),
    ],
    metadata={"schema_version": MINUTES_VERSION},
)
_TENANT = ("level", "quota_type", "user", "client_id", "node_id", "enforced")
_TENANT_MINUTE = (*_TENANT, "window_start")

# Combinations of names are counted with whole numbers up to this.
_NUMBERS_MAX = 2**62


def seconds_of(rows: pa.Table) -> pa.Table:
    """Sum up events by second and counter.

    In:  ``event_schema.WRITE_SCHEMA``; those of a run in the order of seq.
    Out: ``SECONDS_SCHEMA``.
    """
    whole = _whole(rows)
    ts_us = numbers_in(whole["ts_us"])
    second = ts_us // _SECOND_US
    counter = _numbered([_codes(whole[name]) for name in _COUNTER])
    is_rejected = _is(whole["outcome"], Outcome.REJECTED)
    enforced = numbers_in(whole["enforced"]) > 0
    value = numbers_in(whole["value"])
    waits_for_room = is_rejected & _is(whole["quota_type"], QuotaType.FETCH)
    waits_for_turn = is_rejected & enforced & _is(whole["quota_type"], QuotaType.PRODUCE)
    is_throttled = waits_for_room | _is(whole["outcome"], Outcome.THROTTLED)
    is_refused = is_rejected & ~waits_for_room & ~waits_for_turn
    is_event = (value >= 0) & ~waits_for_room & ~waits_for_turn
    told_ms = np.maximum(numbers_in(whole["throttle_ms"]), 0)
    last, sums = _summed(
        _numbered([counter, second - second.min()]),
        np.arange(len(second)),
        {
            "events": is_event,
            "decisions": is_event | is_throttled | is_refused,
            "throttled": is_throttled,
            "rejected": is_refused,
            "throttle_ms_sum": np.where(waits_for_turn, 0, told_ms),
            "value_sum": np.where(is_rejected & enforced, 0.0, value),
        },
        most={"last_us": ts_us},
    )
    found = whole.select([*_COUNTER, "limit"]).take(_array(last))
    columns = {name: found[name] for name in _COUNTER}
    columns |= {name: _array(values) for name, values in sums.items()}
    columns |= {"second": _array(second[last]), "limit_last": found["limit"]}
    return pa.Table.from_arrays(
        [columns[name] for name in SECONDS_SCHEMA.names], schema=SECONDS_SCHEMA
    )


def minutes_of(seconds: pa.Table, levels: Sequence[str] = tuple(LEVELS)) -> pa.Table:
    """Sum up seconds by minute and tenant, a line for each; a limit is the last one that was in force.

    In:  ``SECONDS_SCHEMA``, in any order; there may be several rows of a second.
    Out: ``MINUTES_SCHEMA``, one level after the other.
    """
    whole = _whole(seconds)
    if not whole.num_rows:
        return MINUTES_SCHEMA.empty_table()
    order = _order(whole["last_us"])
    return pa.concat_tables([_minutes(whole, order, level) for level in levels])


def joined(lines: pa.Table) -> pa.Table:
    """Add up the lines of a minute and tenant where there are several: some decisions came late.

    Sums are exact. The busiest second is the busiest of one line, which is another one where two lines have charges of
    the same second.

    In, out: ``MINUTES_SCHEMA``.
    """
    whole = _whole(lines)
    if not whole.num_rows:
        return whole
    order = _order(whole["last_us"])
    ranks, sums = _summed(
        _numbered([_codes(whole[name]) for name in _TENANT_MINUTE]),
        _ranks(order),
        {name: numbers_in(whole[name]) for name in (*_SUMS, "parts")},
        most={"rate_max": numbers_in(whole["rate_max"])},
    )
    return _with(whole.take(_array(order[ranks])), sums)


@dataclass(frozen=True, slots=True)
class Tenants:
    """Lines, tenant by tenant.

    Attributes:
        totals: a row for each tenant: sums and the largest ones of its lines, else what its last line says.
        minute_max: the most that each used in a minute.
        limit_share: the largest share of its own limit that each used in a minute, each minute by the limit that it
            had; NaN: it never had one above 0.
        was_blocked: in one minute its own limit was 0, and it used something or was held back all the same.
        of_line: which of ``totals`` each line is of.
    """

    totals: pa.Table
    minute_max: _Array
    limit_share: _Array
    was_blocked: _Array
    of_line: _Array


def by_tenant(lines: pa.Table) -> Tenants:
    """Add up the lines of each tenant (``MINUTES_SCHEMA``; one a minute, one at least)."""
    whole = _whole(lines)
    there, number = np.unique(
        _numbered([_codes(whole[name]) for name in _TENANT]), return_inverse=True
    )
    order = _order(whole["last_us"])
    share, is_blocked = _of_limits(whole)
    ranks, sums = _summed(
        number,
        _ranks(order),
        {name: numbers_in(whole[name]) for name in (*_SUMS, "parts")},
        most={
            "rate_max": numbers_in(whole["rate_max"]),
            "minute_max": numbers_in(whole["value_sum"]),
            "limit_share": share,
            "was_blocked": is_blocked.astype(np.int64),
        },
    )
    last = order[ranks]
    place = np.empty(len(there), np.int64)
    place[number[last]] = np.arange(len(last))
    minute_max, share = sums.pop("minute_max"), sums.pop("limit_share")
    was_blocked = sums.pop("was_blocked") > 0
    return Tenants(
        totals=_with(whole.take(_array(last)), sums),
        minute_max=minute_max,
        limit_share=np.where(share >= 0, share, np.nan),
        was_blocked=was_blocked,
        of_line=place[number],
    )


def _of_limits(lines: pa.Table) -> tuple[_Array, _Array]:
    """Return which share of its own limit each line used (-1: there is none above 0), and whether a limit of 0 was in its way."""
    limit, value = numbers_in(lines["limit_last"]), numbers_in(lines["value_sum"])
    is_own = numbers_in(lines["limit_binds"]) > 0
    share = np.full(len(limit), -1.0)
    np.divide(np.maximum(value, 0.0), MINUTE_S * limit, out=share, where=is_own & (limit > 0))
    held = numbers_in(lines["throttled"]) + numbers_in(lines["rejected"])
    # A line without any decision and value is of requests that only waited for their turn.
    only_waited = (numbers_in(lines["decisions"]) == 0) & (value == 0)
    return share, is_own & (limit == 0) & ((value > 0) | (held > 0) | only_waited)


def minute_of(lines: pa.Table) -> _Array:
    """Return the minute of each line, as the Unix second with which it begins."""
    return numbers_in(lines["window_start"]) // _SECOND_US


def numbers_in(column: pa.ChunkedArray | pa.Array) -> _Array:
    """Return numbers as int64 or double (null: NaN); truths are 0 and 1. ``to_numpy`` loads pandas where there is one."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    dtype = np.dtype(column.type.to_pandas_dtype())
    parts = [
        np.frombuffer(chunk.buffers()[1], dtype, len(chunk), chunk.offset * dtype.itemsize)
        for chunk in chunks
        if len(chunk)
    ]
    found = parts[0] if len(parts) == 1 else np.concatenate([*parts, np.empty(0, dtype)])
    if dtype.kind != "f":
        return found.astype(np.int64, copy=False)
    return (
        np.where(numbers_in(column.is_valid()) > 0, found, np.nan) if column.null_count else found
    )


def truths(values: _Array) -> pa.Array:
    """Return an array of truths, which is a mask as well."""
    packed = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, packed])


def but_type(lines: pa.Table, quota_type: QuotaType) -> pa.Table:
    """Return lines without those of a quota type."""
    whole = _whole(lines)
    if not whole.num_rows:
        return whole
    return whole.filter(truths(~_is(whole["quota_type"], quota_type)))


def in_packing_order(lines: pa.Table) -> pa.Table:
    """Return lines so that files of them are small: each tenant's together."""
    whole = _whole(lines)
    return whole.take(_array(np.argsort(_numbered([_codes(whole[n]) for n in _TENANT_MINUTE]))))


def _minutes(seconds: pa.Table, order: _Array, level: str) -> pa.Table:
    names = LEVELS[level]
    tenant = _numbered([_codes(seconds[n]) for n in ("quota_type", "node_id", "enforced", *names)])
    second = numbers_in(seconds["second"])
    ranks, sums = _summed(
        _numbered([tenant, second - second.min()]),
        _ranks(order),
        {name: numbers_in(seconds[name]) for name in _SUMS},
    )
    minute = second[order[ranks]] // MINUTE_S
    ranks, sums = _summed(
        _numbered([tenant[order[ranks]], minute - minute.min()]),
        ranks,
        sums,
        most={"rate_max": sums["value_sum"]},
    )
    last = order[ranks]
    found = seconds.take(_array(last))
    count = len(last)
    columns: dict[str, Any] = {name: _array(values) for name, values in sums.items()}
    columns |= {
        "window_start": _array(second[last] // MINUTE_S * (MINUTE_S * _SECOND_US)).cast(
            MINUTES_SCHEMA.field("window_start").type
        ),
        "level": _text(level, count),
        "limit_binds": truths(_binds(found, names)),
        "parts": _array(np.ones(count, np.int64)),
    }
    columns |= {name: pa.nulls(count, _TEXT) for name in ("user", "client_id") if name not in names}
    arrays = [columns[n] if n in columns else found[n] for n in MINUTES_SCHEMA.names]
    return pa.Table.from_arrays(arrays, schema=MINUTES_SCHEMA)


def _with(lines: pa.Table, sums: Mapping[str, _Array]) -> pa.Table:
    """Put sums in the place of columns."""
    names = MINUTES_SCHEMA.names
    columns = [_array(sums[name]) if name in sums else lines[name] for name in names]
    return pa.Table.from_arrays(columns, schema=MINUTES_SCHEMA)


def _binds(rows: pa.Table, names: Sequence[str]) -> _Array:
    """Tell of each row whether it was charged on a counter of just these names."""
    tags = _encoded(rows["tags"])
    of_rows = numbers_in(tags.indices)
    binds: _Array = np.ones(rows.num_rows, np.bool_)
    for name, told in zip(("client_id", "user"), kafka_names(tags.dictionary), strict=True):
        if name not in names:
            is_empty = pc.equal(told, "").fill_null(False)  # noqa: FBT003
            binds &= is_empty.to_numpy(zero_copy_only=False)[of_rows]
            continue
        texts = _encoded(rows[name])
        codes = places_in(told, sanitised(texts.dictionary))
        binds &= codes[of_rows] == numbers_in(texts.indices)
    return binds


# ---------------------------------------------------------------- columns


def _summed(
    numbers: _Array,
    ranks: _Array,
    sums: Mapping[str, _Array],
    *,
    most: Mapping[str, _Array] | None = None,
) -> tuple[_Array, dict[str, _Array]]:
    """Return of each number the largest rank, and its sums and maxima.

    Args:
        numbers: of each row.
        ranks: which row comes first, which next.
        sums: what is summed.
        most: of what the largest one is taken.
    """
    # ``Table.group_by`` would be as fast, and load pandas: half of the time in which a command shows what is kept.
    there, places = np.unique(numbers, return_inverse=True)
    found = {name: _sums(values, places, len(there)) for name, values in sums.items()}
    found |= {name: _largest(values, places, len(there)) for name, values in (most or {}).items()}
    return _largest(ranks, places, len(there)), found


def _sums(values: _Array, places: _Array, count: int) -> _Array:
    sums = np.bincount(places, weights=values, minlength=count)
    return sums if values.dtype.kind == "f" else sums.astype(np.int64)


def _largest(values: _Array, places: _Array, count: int) -> _Array:
    largest = np.empty(count, values.dtype)
    largest[places] = values  # one of each
    np.maximum.at(largest, places, values)
    return largest


def _numbered(columns: Sequence[_Array]) -> _Array:
    """Number rows: two have the same number where all of their columns are the same. Columns are 0 or more."""
    numbers = np.zeros(len(columns[0]), np.int64)
    count = 1
    for column in columns:
        codes, size = column, int(column.max()) + 1
        if count * size > _NUMBERS_MAX:
            there, numbers = np.unique(numbers, return_inverse=True)
            count = len(there)
        if count * size > _NUMBERS_MAX:
            there, codes = np.unique(codes, return_inverse=True)
            size = len(there)
        numbers = numbers * size + codes
        count *= size
    return numbers


def _codes(column: pa.ChunkedArray) -> _Array:
    """Return a number from 0 on for each value of a column; null is one, too."""
    if pa.types.is_dictionary(column.type):
        texts = _encoded(column)
        codes = numbers_in(texts.indices)
        if not column.null_count:
            return codes
        return np.where(numbers_in(texts.indices.is_valid()) > 0, codes, len(texts.dictionary))
    numbers = numbers_in(column)
    from_0: _Array = numbers - numbers.min()
    return from_0


def _is(texts: pa.ChunkedArray, text: str) -> _Array:
    encoded = _encoded(texts)
    places = np.array([value == text for value in encoded.dictionary.to_pylist()])
    return places[numbers_in(encoded.indices)]


def _encoded(texts: pa.ChunkedArray) -> pa.DictionaryArray:
    """Return a column of ``_whole`` as one array, in which each text has one code."""
    array = texts.combine_chunks()
    encoded = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    if pc.count_distinct(encoded.dictionary).as_py() < len(encoded.dictionary):
        return encoded.cast(pa.string()).dictionary_encode()
    return encoded


def _whole(rows: pa.Table) -> pa.Table:
    return rows.unify_dictionaries().combine_chunks()


def _ranks(order: _Array) -> _Array:
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def _order(column: pa.ChunkedArray) -> _Array:
    return np.argsort(numbers_in(column), kind="stable")


def _array(values: _Array) -> pa.Array:
    """Return an array of numbers (truths are 0 and 1); ``pa.array`` loads pandas where there is one."""
    if values.dtype == np.bool_:
        values = values.view(np.int8)
    arrow_type = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(
        arrow_type, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))]
    )


def _text(text: str, count: int) -> pa.DictionaryArray:
    encoded = text.encode()
    ends = np.array([0, len(encoded)], np.int32)
    texts = pa.StringArray.from_buffers(1, pa.py_buffer(ends), pa.py_buffer(encoded))
    return pa.DictionaryArray.from_arrays(_array(np.zeros(count, np.int32)), texts)
