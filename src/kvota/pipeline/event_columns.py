"""Takes the columns of a table of events, some of which may be missing or null, as arrays. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kvota.pipeline.arrow_columns import Array


@dataclass(frozen=True, slots=True)
class Part:
    """A column as a code per row, and what the codes mean; also one part of a counter's name."""

    codes: Array
    texts: Sequence[str] | Array


def texts_of(table: pa.Table, name: str) -> Part:
    """Return a column of texts; what is missing or null is an empty text."""
    if name not in table.column_names:
        return Part(np.zeros(table.num_rows, np.int64), [""])
    column = one_array(table[name])
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    texts = [text or "" for text in column.dictionary.to_pylist()]
    indices = column.indices
    if indices.null_count:
        indices = indices.fill_null(len(texts))
        texts.append("")
    codes = indices.to_numpy(zero_copy_only=False)
    first_of = {text: code for code, text in reversed(list(enumerate(texts)))}
    if len(first_of) < len(texts):  # the same text twice, e.g. empty and null
        codes = np.array([first_of[text] for text in texts])[codes]
    return Part(codes, texts)


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def ints(table: pa.Table, name: str, missing: int) -> Array:
    """Return a column of whole numbers."""
    if name not in table.column_names:
        return np.full(table.num_rows, missing, np.int64)
    return _filled(table, name, missing).astype(np.int64)


def ints_or_one(table: pa.Table, name: str, missing: int) -> Array | int:
    """Return the numbers of a column, or the one that it has in every row."""
    if name not in table.column_names:
        return missing
    numbers = _filled(table, name, missing)
    same = same_in_all(numbers)
    return numbers.astype(np.int64) if same is None else same


def _filled(table: pa.Table, name: str, missing: int) -> Array:
    column = one_array(table[name])
    if column.null_count:
        column = column.fill_null(missing)
    numbers: Array = column.to_numpy(zero_copy_only=False)
    return numbers


def same_in_all(values: Array | int) -> int | None:
    """Return the one number (of a floating one its bits) that a column has in every row, or None."""
    if isinstance(values, int):
        return values
    bits = values.view(np.int64) if values.dtype == np.float64 else values
    first = bits[0]
    # Most columns that vary do so among their first rows.
    return int(first) if (bits[:1_000] == first).all() and (bits == first).all() else None


def doubles(table: pa.Table, name: str) -> Array:
    """Return a column of floating numbers; null is NaN."""
    if name not in table.column_names:
        return np.full(table.num_rows, np.nan)
    column = one_array(table[name])
    if column.null_count:
        column = column.fill_null(np.nan)
    return np.asarray(column.to_numpy(zero_copy_only=False), np.float64)
