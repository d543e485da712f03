"""Packed rows and their memos become Parquet without one step per row in Python.

Arrays are made from buffers: ``pa.array`` imports pandas where there is one, over a second of CPU.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kvota.model.decision_sink import NO_ANSWER, OUTCOMES, ChargeMemo
from kvota.record.event_schema import WRITE_SCHEMA
from kvota.record.row_batch import PackedRows

_Column = np.ndarray[Any, np.dtype[Any]]

_MEMO_TEXTS: dict[str, Callable[[ChargeMemo], str]] = {
    "quota_type": lambda memo: memo.quota_type,
    "user": lambda memo: memo.user,
    "client_id": lambda memo: memo.client_id,
    "tags": lambda memo: memo.tags,
    "algorithm": lambda memo: memo.algorithm,
}
_MEMO_NUMBERS: dict[str, Callable[[ChargeMemo], int]] = {
    "node_id": lambda memo: memo.node_id,
    "connection": lambda memo: memo.connection,
    "api_key": lambda memo: memo.api_key,
    "api_version": lambda memo: memo.api_version,
    "samples": lambda memo: memo.samples,
    "sample_ms": lambda memo: memo.sample_ms,
}
_MEMO_NUMBERS_OR_NONE: dict[str, Callable[[ChargeMemo], int | None]] = {
    "owed_ms": lambda memo: memo.owed_ms,
    "producer_id": lambda memo: memo.producer_id,
}


def event_table(
    packed: PackedRows, memos: Sequence[ChargeMemo], *, gateway: str, run_id: str
) -> pa.Table:
    """Return the events of packed rows; ``memos`` are those the rows refer to.

    Raises:
        OverflowError: a memo holds a number that its column cannot (a sample count over 32,767, say).
    """
    index, memos = _used(packed["memo"], memos)
    nothing = np.zeros(len(packed), dtype=np.int32)
    columns: dict[str, pa.Array] = {
        "gateway": _texts(nothing, [gateway]),
        "run_id": _texts(nothing, [run_id]),
        "outcome": _texts(packed["outcome"], OUTCOMES),
        "upstream_throttle_ms": _numbers(
            packed["upstream_throttle_ms"],
            pa.int32(),
            is_null=packed["upstream_throttle_ms"] == NO_ANSWER,
        ),
        "limit": _limits(index, memos),
        **{
            name: _numbers_or_null(index, [number_of(memo) for memo in memos])
            for name, number_of in _MEMO_NUMBERS_OR_NONE.items()
        },
        "enforced": _flags(np.array([memo.enforced for memo in memos], dtype=np.bool_)[index]),
    }
    for name in ("ts_us", "seq", "value", "throttle_ms"):
        columns[name] = _numbers(packed[name], WRITE_SCHEMA.field(name).type)
    for name, text_of in _MEMO_TEXTS.items():
        codes, texts = _different([text_of(memo) for memo in memos])
        columns[name] = _texts(codes[index], texts)
    for name, number_of in _MEMO_NUMBERS.items():
        arrow_type = WRITE_SCHEMA.field(name).type
        numbers = np.array([number_of(memo) for memo in memos], dtype=arrow_type.to_pandas_dtype())
        columns[name] = _numbers(numbers[index], arrow_type)
    return pa.Table.from_arrays([columns[name] for name in WRITE_SCHEMA.names], schema=WRITE_SCHEMA)


def _used(index: _Column, memos: Sequence[ChargeMemo]) -> tuple[_Column, list[ChargeMemo]]:
    """Only those memos that rows refer to: a batch that is written in parts has many of earlier rows."""
    is_used = np.zeros(len(memos), dtype=np.bool_)
    is_used[index] = True
    places = np.cumsum(is_used, dtype=np.int32) - np.int32(1)
    return places[index], [memos[at] for at in np.flatnonzero(is_used).tolist()]


def _numbers(
    values: _Column, arrow_type: pa.DataType, *, is_null: _Column | None = None
) -> pa.Array:
    valid = None if is_null is None else _bits(~is_null)
    return pa.Array.from_buffers(
        arrow_type, len(values), [valid, pa.py_buffer(np.ascontiguousarray(values))]
    )


def _numbers_or_null(index: _Column, of_memos: Sequence[int | None]) -> pa.Array:
    if not any(number is not None for number in of_memos):  # as nearly always
        return pa.nulls(len(index), pa.int64())
    numbers = np.array([number or 0 for number in of_memos], dtype="<i8")
    missing = np.array([number is None for number in of_memos], dtype=np.bool_)
    return _numbers(numbers[index], pa.int64(), is_null=missing[index])


def _flags(values: _Column) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def _bits(values: _Column) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def _limits(index: _Column, memos: Sequence[ChargeMemo]) -> pa.Array:
    limits = np.array([0.0 if memo.limit is None else memo.limit for memo in memos], dtype="<f8")
    unlimited = np.array([memo.limit is None for memo in memos], dtype=np.bool_)
    return _numbers(limits[index], pa.float64(), is_null=unlimited[index])


def _different(texts: Sequence[str]) -> tuple[_Column, list[str]]:
    codes: dict[str, int] = {}
    of_memo = [codes.setdefault(text, len(codes)) for text in texts]
    return np.array(of_memo, dtype=np.int32), list(codes)


def _texts(codes: _Column, texts: Sequence[str]) -> pa.Array:
    # A name may hold surrogates (bytes that are no UTF-8, decoded): Arrow refuses them.
    encoded = [text.encode("utf-8", "backslashreplace") for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    dictionary = pa.Array.from_buffers(
        pa.string(), len(encoded), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    )
    return pa.DictionaryArray.from_arrays(_numbers(codes, pa.int32()), dictionary)
