"""Takes the columns of events, some of which may be missing or null, as arrays. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from kvota.pipeline.arrow_columns import Array

# What all rows of a column may have: a text, a number, a flag, or nothing.
Value = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Events:
    """Some events.

    Attributes:
        table: columns of the events table; texts as dictionaries or plain.
        same: columns that are not in the table, as they have one value in every row; None: null.
    """

    table: pa.Table
    same: Mapping[str, Value] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Return how many there are."""
        return int(self.table.num_rows)

    def has(self, name: str) -> bool:
        """Return whether the table has this column itself."""
        return name in self.table.column_names


@dataclass(frozen=True, slots=True)
class Part:
    """A column as a code per row, and what the codes mean; also one part of a counter's name."""

    codes: Array
    texts: Sequence[str] | Array


def texts_of(events: Events, name: str) -> Part:
    """Return a column of texts; what is missing or null is an empty text."""
    if not events.has(name):
        return Part(np.zeros(events.rows, np.int64), [str(events.same.get(name) or "")])
    column = one_array(events.table[name])
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


def ints(events: Events, name: str, missing: int) -> Array:
    """Return a column of whole numbers."""
    if not events.has(name):
        return np.full(events.rows, _one(events, name, missing), np.int64)
    return _filled(events, name, missing).astype(np.int64)


def ints_or_one(events: Events, name: str, missing: int) -> Array | int:
    """Return the numbers of a column, or the one that it has in every row."""
    if not events.has(name):
        return _one(events, name, missing)
    numbers = _filled(events, name, missing)
    same = same_in_all(numbers)
    return numbers.astype(np.int64, copy=False) if same is None else same


def flags(events: Events, name: str) -> Array:
    """Return a column of flags; what is missing or null is false."""
    if not events.has(name):
        return np.full(events.rows, bool(events.same.get(name)))
    column = one_array(events.table[name]).fill_null(False)  # noqa: FBT003
    found: Array = column.to_numpy(zero_copy_only=False)
    return found


def _one(events: Events, name: str, missing: int) -> int:
    value = events.same.get(name)
    return missing if value is None else int(value)


def _filled(events: Events, name: str, missing: int) -> Array:
    column = one_array(events.table[name])
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


def doubles(events: Events, name: str) -> Array:
    """Return a column of floating numbers; null is NaN."""
    if not events.has(name):
        value = events.same.get(name)
        return np.full(events.rows, np.nan if value is None else float(value))
    column = one_array(events.table[name])
    if column.null_count:
        column = column.fill_null(np.nan)
    return np.asarray(column.to_numpy(zero_copy_only=False), np.float64)
