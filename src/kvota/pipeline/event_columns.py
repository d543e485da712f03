"""Takes the columns of events, some of which may be missing or null, as arrays. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvota.pipeline.arrow_columns import Array
from kvota.record.own_texts import own_texts

# What all rows of a column may have: a text, a number, a flag, or nothing.
Value = str | int | float | bool | None


# Columns that stay the same for many rows where these lie counter by counter.
NAMES = frozenset(
    {"gateway", "run_id", "node_id", "quota_type", "user", "client_id", "tags", "enforced"}
)

# The column of ``Events.runs`` that says how many rows a run has.
_LENGTH = "rows"


@dataclass(frozen=True, slots=True)
class Events:
    """Some events.

    Attributes:
        table: columns of the events table; texts as dictionaries or plain.
        same: columns that are not in the table, as they have one value in every row; None: null.
        runs: columns that are not in the table either: a row for each run of rows that have the same in all of
            these, and how many rows that are; None: there are no such columns.
    """

    table: pa.Table
    same: Mapping[str, Value] = field(default_factory=dict)
    runs: pa.Table | None = None

    @property
    def rows(self) -> int:
        """Return how many there are."""
        return int(self.table.num_rows)

    def has(self, name: str) -> bool:
        """Return whether the table has this column itself."""
        return name in self.table.column_names

    @property
    def of_runs(self) -> "Events":
        """Return one event for each run, with what all of its events have; without runs, the events."""
        return self if self.runs is None else Events(self.runs, self.same)

    @property
    def lengths(self) -> Array:
        """Return how many rows each run has."""
        assert self.runs is not None
        return np.asarray(self.runs[_LENGTH].to_numpy())

    def in_runs(self, name: str) -> bool:
        """Return whether the runs have this column."""
        return self.runs is not None and name in self.runs.column_names

    def spread(self, of_runs: Array) -> Array:
        """Return a value per row, made of one per run."""
        return of_runs if self.runs is None else np.repeat(of_runs, self.lengths)

    def take(self, places: Array) -> "Events":
        """Return some of the rows, in this order."""
        count = len(places)
        if count and int(places[-1]) - int(places[0]) + 1 == count and (np.diff(places) == 1).all():
            table = self.table.slice(int(places[0]), count)
        else:
            table = self.table.take(pa.array(places))
        if self.runs is None:
            return Events(table, self.same)
        return Events(
            table, self.same, _runs_of(self.runs, self.spread(np.arange(len(self.runs)))[places])
        )

    def where(self, mask: Array) -> "Events":
        """Return the rows for which the mask is true."""
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def where_runs(self, mask: Array) -> "Events":
        """Return the rows of the runs for which the mask is true."""
        places = np.flatnonzero(mask)
        if self.runs is None or not len(places) or len(places) < places[-1] - places[0] + 1:
            return self.where(self.spread(mask))
        return self.runs_between(int(places[0]), int(places[-1]) + 1)

    def runs_between(self, first: int, last: int) -> "Events":
        """Return the rows of the runs from ``first`` to before ``last``."""
        assert self.runs is not None
        starts = np.append(0, np.cumsum(self.lengths))[[first, last]].tolist()
        table = self.table.slice(starts[0], starts[1] - starts[0])
        return Events(table, self.same, self.runs.slice(first, last - first))

    def with_own_texts(self) -> "Events":
        """Return the same without texts that no row has, if these are many: a part of a table has all of the table's."""
        runs = None if self.runs is None else _with_own_texts(self.runs)
        return Events(_with_own_texts(self.table), self.same, runs)


def _with_own_texts(table: pa.Table) -> pa.Table:
    for place, field_ in enumerate(table.schema):
        if pa.types.is_dictionary(field_.type):
            column = one_array(table.column(place))
            if len(column.dictionary) > len(column):
                table = table.set_column(place, field_, own_texts(column))
    return table


def _runs_of(runs: pa.Table, run_of: Array) -> pa.Table:
    """Return the runs of rows that are of these runs."""
    begins = np.flatnonzero(np.diff(run_of, prepend=-1))
    lengths = np.diff(begins, append=len(run_of))
    taken = runs.take(pa.array(run_of[begins]))
    return taken.set_column(taken.column_names.index(_LENGTH), _LENGTH, pa.array(lengths))


def with_runs(table: pa.Table, same: Mapping[str, Value]) -> Events:
    """Return events; the columns that name a counter are kept once for each run of rows."""
    names = [name for name in table.column_names if name in NAMES]
    is_new = np.zeros(table.num_rows, np.bool_)
    is_new[:1] = True
    for name in names:
        column = one_array(table[name])
        codes = column.indices if pa.types.is_dictionary(column.type) else column
        if codes.null_count:
            codes = pc.fill_null(codes.cast(pa.int64()), -(2**62))
        numbers = codes.to_numpy(zero_copy_only=False)
        is_new[1:] |= numbers[1:] != numbers[:-1]
    begins = np.flatnonzero(is_new)
    first = pa.array(begins)
    columns = {_LENGTH: pa.array(np.diff(begins, append=len(is_new)))}
    runs = pa.table(columns | {name: table[name].take(first) for name in names})
    return Events(table.drop_columns(names), same, runs)


@dataclass(frozen=True, slots=True)
class Part:
    """A column as a code per row, and what the codes mean; also one part of a counter's name.

    Attributes:
        codes: of each row the place of its text.
        texts: each once (numbers: each at least once), without null.
    """

    codes: Array
    texts: pa.Array

    @property
    def values(self) -> list[Any]:
        """Return the texts as Python's own: for columns that have a few."""
        found: list[Any] = self.texts.to_pylist()
        return found


def texts_of(events: Events, name: str) -> Part:
    """Return a column of texts; what is missing or null is an empty text."""
    if events.in_runs(name):
        of_runs = texts_of(events.of_runs, name)
        return Part(events.spread(of_runs.codes), of_runs.texts)
    if not events.has(name):
        text = str(events.same.get(name) or "")
        return Part(np.zeros(events.rows, np.int64), pa.array([text], pa.string()))
    column = one_array(events.table[name])
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    texts, indices = column.dictionary.cast(pa.string()), column.indices
    if texts.null_count:
        texts = texts.fill_null("")
    if indices.null_count:
        indices = indices.fill_null(len(texts))
        texts = pa.concat_arrays([texts, pa.array([""], pa.string())])
    codes = indices.to_numpy(zero_copy_only=False)
    once = texts.dictionary_encode()
    if len(once.dictionary) < len(texts):  # the same text twice, e.g. empty and null
        return Part(once.indices.to_numpy()[codes], once.dictionary)
    return Part(codes, texts)


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def ints(events: Events, name: str, missing: int) -> Array:
    """Return a column of whole numbers."""
    if events.in_runs(name):
        return events.spread(ints(events.of_runs, name, missing))
    if not events.has(name):
        return np.full(events.rows, _one(events, name, missing), np.int64)
    return np.array(_filled(events, name, missing), np.int64)


def ints_or_one(events: Events, name: str, missing: int) -> Array | int:
    """Return the numbers of a column, or the one that it has in every row."""
    if not events.has(name):
        return _one(events, name, missing)
    numbers = _filled(events, name, missing)
    same = same_in_all(numbers)
    return numbers.astype(np.int64, copy=False) if same is None else same


def flags(events: Events, name: str) -> Array:
    """Return a column of flags; what is missing or null is false."""
    if events.in_runs(name):
        return events.spread(flags(events.of_runs, name))
    if not events.has(name):
        return np.full(events.rows, bool(events.same.get(name)))
    column = one_array(events.table[name]).fill_null(False)  # noqa: FBT003
    found: Array = column.to_numpy(zero_copy_only=False)
    return found


def _one(events: Events, name: str, missing: int) -> int:
    value = events.same.get(name)
    return missing if value is None else int(value)


def _filled(events: Events, name: str, missing: int) -> Array:
    column = events.table[name]
    if column.null_count:
        column = column.fill_null(missing)
    numbers: Array = column.to_numpy()
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
    column = events.table[name]
    if column.null_count:
        column = column.fill_null(np.nan)
    return np.asarray(column.to_numpy(), np.float64)
