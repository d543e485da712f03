"""Reads single row groups of a merged file: what its footer says of each, and then only columns that vary.

A merged file (``record/compact``) is sorted by counter and has statistics of all columns, so the footer tells between
which keys a group's rows lie, and which columns have one value in all of them.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kvota.model.event import EVENT_COLUMNS
from kvota.pipeline import chunk_schema as s
from kvota.pipeline import rows_done
from kvota.pipeline.arrange import UNKNOWN_NODE
from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.event_columns import (
    NAMES,
    Events,
    Part,
    Value,
    flags,
    ints,
    texts_of,
    with_runs,
)
from kvota.pipeline.key_ranges import (
    BEGIN_OF_TIME,
    LEAST,
    Key,
    KeyRange,
    RowGroup,
    tightened,
)
from kvota.pipeline.packing_choice import COLUMN_TYPES, TEXTS, Packing
from kvota.record.event_file import EventFile
from kvota.record.valid_texts import refuse_fewer_rows, refuse_invalid_texts, refuse_nameless_runs

# What a reader keeps of groups that later ranges need, too; 50 bytes a row, and where names are many 120.
KEPT_BYTES_MAX = 320 << 20

# Begins the message of an error in a task that read a file which had changed since it was looked at.
FILE_CHANGED = "kvota: the record changed while it was read"

# The name in a key, by how charges share counters. Who has a user and a client id has a user.
_NAME_OF = {
    "counter": "tags",
    "user": "user",
    "client": "client_id",
    "user-client": "user",
    "tags": "tags",
}

# A floating number's statistics do not tell 0 from -0, nor of NaN; these numbers differ from row to row.
_VARYING = frozenset({"ts_us", "seq"}) | {c.name for c in EVENT_COLUMNS if c.type == "double"}


# What a row takes of a column, at most: a code of its text, or a number.
_NUMBER_BYTES = 8
_CODE_BYTES = dict.fromkeys(TEXTS, 4)

# What tells counters of one key apart: columns, and what the rows of a counter have in them.
Names = tuple[tuple[str, str | bool], ...]


@dataclass(frozen=True, slots=True)
class GroupFile:
    """A file of this machine, as it was when it was looked at.

    Attributes:
        path: absolute.
        size_bytes: of the file.
        modified_ns: Unix nanoseconds.
        is_compacted: it was made of others, and has statistics of all columns.
        counters: those that a key may have in it; empty: nobody knows.
    """

    path: str
    size_bytes: int
    modified_ns: int
    is_compacted: bool = False
    counters: tuple[Names, ...] = ()

    def refuse_another(self) -> None:
        """Refuse a file that is not the one that was looked at.

        Raises:
            RuntimeError: it is gone, or another one.
        """
        try:
            status = Path(self.path).stat()
        except FileNotFoundError as error:
            raise _gone(self) from error
        if (status.st_size, status.st_mtime_ns) != (self.size_bytes, self.modified_ns):
            msg = f"{FILE_CHANGED}: {self.path} is another one now"
            raise RuntimeError(msg)


def group_file(file: EventFile, packing: Packing) -> GroupFile:
    """Return the same file."""
    return GroupFile(
        str(file.path),
        file.size_bytes,
        file.modified_ns,
        file.is_compacted,
        _counters_of_a_key(file, packing),
    )


def _counters_of_a_key(file: EventFile, packing: Packing) -> tuple[Names, ...]:
    """Return the counters that a key may have in a file."""
    if packing.by == "user-client":  # a key has but the user
        return ()
    of_runs: set[Names] = {()}
    if packing.by == "counter":
        of_runs = {(("gateway", run.gateway), ("run_id", run.run_id)) for run in file.runs}
    elif packing.gateways_apart:
        of_runs = {(("gateway", run.gateway),) for run in file.runs}
    modes: list[Names] = [()]
    if packing.modes_apart:
        modes = [(("enforced", False),), (("enforced", True),)]
    return tuple((*run, *mode) for run, mode in product(sorted(of_runs), modes))


def groups_of(number: int, file: EventFile, packing: Packing) -> list[RowGroup]:
    """Return the row groups of a file; of one that was not merged nobody knows between which keys they lie.

    Raises:
        OSError, pa.ArrowException: the file cannot be read any more.
    """
    footer = pq.read_metadata(file.path)
    passes = len(_counters_of_a_key(file, packing))
    wanted = packing.columns()
    found = []
    for group in range(footer.num_row_groups):
        here = footer.row_group(group)
        first, last = LEAST, None
        if file.is_compacted:
            first, last = _bounds(here, packing.by)
        begin = _least_and_most(here, "seq" if packing.by == "counter" else "ts_us", BEGIN_OF_TIME)
        found.append(
            RowGroup(
                number,
                group,
                here.num_rows,
                first,
                last,
                BEGIN_OF_TIME if begin is None else begin[0],
                passes,
                _kept_bytes(here, wanted, is_compacted=file.is_compacted),
            )
        )
    return tightened(found) if _is_in_order(footer, _key_columns(packing.by)) else found


def _is_in_order(footer: pq.FileMetaData, columns: Sequence[str]) -> bool:
    """Return whether rows lie in the order of these columns, as merged files say; who rewrites one leaves that out."""
    names = {place: footer.schema.column(place).path for place in range(footer.num_columns)}
    return all(
        [
            (names.get(by.column_index), by.descending)
            for by in group.sorting_columns[: len(columns)]
        ]
        == [(name, False) for name in columns]
        for group in map(footer.row_group, range(footer.num_row_groups))
    )


def _kept_bytes(group: pq.RowGroupMetaData, wanted: Sequence[str], *, is_compacted: bool) -> int:
    """Return about how much memory the rows of a group take: numbers and codes of texts, and the texts."""
    same = same_in_all_rows(group, wanted) if is_compacted else {}
    size_bytes = 0
    for place in range(group.num_columns):
        column = group.column(place)
        name = column.path_in_schema
        if name not in wanted or name in same:
            continue
        if name in TEXTS:
            size_bytes += column.total_uncompressed_size
        # Where rows lie counter by counter, names are kept once for each run of rows.
        if not (is_compacted and name in NAMES):
            size_bytes += group.num_rows * _CODE_BYTES.get(name, _NUMBER_BYTES)
    return size_bytes


def _key_columns(by: s.By) -> tuple[str, str, str]:
    return "quota_type", _NAME_OF[by], "node_id"


def _bounds(group: pq.RowGroupMetaData, by: s.By) -> tuple[Key, Key | None]:
    least: list[Any] = list(LEAST)
    most: list[Any] = []
    for place, name in enumerate(_key_columns(by)):
        found = _least_and_most(group, name, UNKNOWN_NODE if name == "node_id" else "")
        if found is None:
            return (least[0], least[1], least[2]), None
        least[place] = found[0]
        most.append(found[1])
    return (least[0], least[1], least[2]), (most[0], most[1], most[2])


def _least_and_most(group: pq.RowGroupMetaData, name: str, missing: Any) -> tuple[Any, Any] | None:
    """Return bounds of a column's values, or None; null counts as ``missing``."""
    statistics = _statistics(group, name)
    if statistics is None or not statistics.has_null_count:
        return None
    if statistics.null_count == group.num_rows:
        return missing, missing
    if not statistics.has_min_max:
        return None
    least, most = statistics.min, statistics.max
    return (min(least, missing), max(most, missing)) if statistics.null_count else (least, most)


def _statistics(group: pq.RowGroupMetaData, name: str) -> pq.Statistics | None:
    for place in range(group.num_columns):
        column = group.column(place)
        if column.path_in_schema == name:
            return column.statistics
    return None


@dataclass(frozen=True, slots=True)
class _Keyed:
    """Events in runs, and the key of each run; as numbers, since groups of many counters are kept.

    Attributes:
        events: of a row group.
        keys: all that there are, in order: (type x names + name) x nodes + node.
        types: in order.
        names: in order, ``pa.StringArray``.
        nodes: in order.
        codes: of each run the place of its key.
        is_sorted: the runs are in the order of their keys.
        size_bytes: of memory that all of it takes.
    """

    events: Events
    keys: Array
    types: Sequence[str]
    names: pa.Array
    nodes: Array
    codes: Array
    is_sorted: bool
    size_bytes: int

    def within(self, start: Key, end: Key | None) -> Events:
        """Return the events with keys from ``start`` to before ``end`` (None: without an end)."""
        places = range(len(self.keys))
        first = bisect_left(places, start, key=self._key)
        last = len(places) if end is None else bisect_left(places, end, key=self._key)
        if not self.is_sorted:
            found = self.events.where_runs((self.codes >= first) & (self.codes < last))
        else:
            begin, behind = np.searchsorted(self.codes, (first, last)).tolist()
            found = self.events.runs_between(begin, behind)
        return found.with_own_texts()

    def middle(self) -> Key:
        """Return a key; no more than half of the events have a lower one, and no more than half a higher one."""
        rows = None if self.events.runs is None else self.events.lengths
        up_to = np.cumsum(np.bincount(self.codes, rows))
        return self._key(int(np.searchsorted(up_to, up_to[-1] / 2)))

    def _key(self, place: int) -> Key:
        pair, node = divmod(int(self.keys[place]), len(self.nodes))
        kind, name = divmod(pair, len(self.names))
        return self.types[kind], self.names[name].as_py(), int(self.nodes[node])


@dataclass(slots=True)
class GroupReader:
    """Reads row groups of some files in a worker, and keeps footers.

    Attributes:
        files: of the record, by number.
        packing: which columns are looked at.
        folder: where rows that were read are counted.
    """

    files: Sequence[GroupFile]
    packing: Packing
    folder: str
    _footers: dict[int, pq.FileMetaData] = field(default_factory=dict)
    # Groups that later ranges need, too.
    _kept: dict[RowGroup, _Keyed] = field(default_factory=dict)

    def read(self, group: RowGroup) -> Events:
        """Read one row group.

        Raises:
            RuntimeError: the file has changed since it was looked at.
        """
        file = self.files[group.file]
        footer = self._footer(group)
        try:
            texts = [name for name in footer.schema.names if name in TEXTS]
            with pq.ParquetFile(
                file.path,
                metadata=footer,
                read_dictionary=texts,
                page_checksum_verification=True,
            ) as source:
                wanted = [name for name in self.packing.columns() if name in footer.schema.names]
                same = (
                    same_in_all_rows(footer.row_group(group.group), wanted)
                    if file.is_compacted
                    else {}
                )
                here = [name for name in wanted if name not in same]
                table = source.read_row_group(group.group, columns=here, use_threads=False)
            refuse_invalid_texts(table)
            refuse_nameless_runs(table)
            refuse_fewer_rows(table.num_rows, group.rows)
        except (pa.ArrowInvalid, OSError) as error:
            raise unreadable(file, error) from error
        rows_done.count(self.folder, "read", table.num_rows)
        types = pa.schema([(n, COLUMN_TYPES[n]) for n in here])
        return with_runs(table.select(here).cast(types), same)

    def _footer(self, group: RowGroup) -> pq.FileMetaData:
        file = self.files[group.file]
        file.refuse_another()
        footer = self._footers.get(group.file)
        if footer is None:
            try:
                footer = self._footers[group.file] = pq.read_metadata(file.path)
            except (pa.ArrowInvalid, OSError) as error:
                raise unreadable(file, error) from error
        return footer

    def events_in(self, group: RowGroup, one: KeyRange) -> Events:
        """Return the events of a range in one of its groups."""
        keyed = self._kept.pop(group, None)
        if keyed is None:
            events = self.read(group)
            if group.is_within(one.start, one.end):
                return events
            keyed = _keyed(events, self.packing.by)
        if one.end is not None and group.reaches(one.end):
            self._keep(group, keyed)
        return keyed.within(one.start, one.end)

    def _keep(self, group: RowGroup, keyed: _Keyed) -> None:
        """Keep a group for the ranges behind, while there is room: those without are read again."""
        if (
            sum(each.size_bytes for each in self._kept.values()) + keyed.size_bytes
            <= KEPT_BYTES_MAX
        ):
            self._kept[group] = keyed

    def middle(self, events: Events) -> Key:
        """Return a key of events; no more than half of them have a lower one, and no more than half a higher one."""
        return _keyed(events, self.packing.by).middle()

    def begin(self, one: KeyRange) -> None:
        """Forget the groups that no range from this one on needs."""
        self._kept = {group: of for group, of in self._kept.items() if group.reaches(one.start)}

    def events_in_each(self, group: RowGroup, ranges: Iterable[KeyRange]) -> Iterator[Events]:
        """Yield the events of each range, which come in order, in one group; nothing is kept for others."""
        for one in ranges:
            events = self.events_in(group, one)
            if events.rows:
                yield events
        self._kept.pop(group, None)

    def events_of(self, group: RowGroup, one: KeyRange, names: Names) -> Events:
        """Return the events of one counter of a range; a group of which the footer says that it has none is not read."""
        same = same_in_all_rows(
            self._footer(group).row_group(group.group), [name for name, _ in names]
        )
        if any(name in same and (same[name] or type(value)()) != value for name, value in names):
            return Events(pa.table({}))
        events = self.events_in(group, one)
        of_runs = events.of_runs
        mask = np.ones(of_runs.rows, np.bool_)
        for name, value in names:
            if isinstance(value, bool):
                mask &= flags(of_runs, name) == value
            else:
                column = texts_of(of_runs, name)
                is_value = pc.equal(column.texts, value).to_numpy(zero_copy_only=False)
                mask &= is_value[column.codes]
        return events.where_runs(mask)


def _gone(file: GroupFile) -> RuntimeError:
    return RuntimeError(f"{FILE_CHANGED}: {file.path} is gone")


def unreadable(file: GroupFile, error: Exception) -> RuntimeError:
    """Return what is raised in a task that cannot read a file: it is gone, another one now, or damaged behind its footer.

    What the system does not let happen (its errors have a number) says nothing of the file itself.
    """
    if isinstance(error, FileNotFoundError):
        return _gone(file)
    try:
        file.refuse_another()
    except RuntimeError as changed:
        return changed
    reason = " ".join(str(error).split())
    advice = "" if getattr(error, "errno", None) else ". Remove it, or restore it"
    return RuntimeError(f"{file.path}: its rows cannot be read ({reason}){advice}")


def same_in_all_rows(group: pq.RowGroupMetaData, wanted: Sequence[str]) -> dict[str, Value]:
    """Return the columns with one value in all rows, as the footer has it."""
    same: dict[str, Value] = {}
    for place in range(group.num_columns):
        column = group.column(place)
        name = column.path_in_schema
        if name not in wanted:
            continue
        statistics = column.statistics
        if statistics is None or not statistics.has_null_count:
            continue
        if statistics.null_count == group.num_rows:
            same[name] = None
        elif name in _VARYING or statistics.null_count or not statistics.has_min_max:
            continue
        else:
            with suppress(UnicodeDecodeError):  # of a damaged text: the rows are looked at
                if statistics.min == statistics.max:
                    same[name] = statistics.min
    return same


def _keyed(events: Events, by: s.By) -> _Keyed:
    of_runs = events.of_runs
    types, type_of = _ranked(texts_of(of_runs, "quota_type"))
    names, name_of = _ranked(texts_of(of_runs, _NAME_OF[by]))
    nodes, node_of = np.unique(ints(of_runs, "node_id", UNKNOWN_NODE), return_inverse=True)
    numbers = (type_of * len(names) + name_of) * len(nodes) + node_of
    keys, codes = np.unique(numbers, return_inverse=True)
    is_sorted = bool((codes[1:] >= codes[:-1]).all())
    tables = (events.table, names, *([] if events.runs is None else [events.runs]))
    size_bytes = sum(each.nbytes for each in (*tables, keys, codes))
    return _Keyed(events, keys, types.to_pylist(), names, nodes, codes, is_sorted, size_bytes)


def _ranked(part: Part) -> tuple[pa.Array, Array]:
    """Return texts in order (that of UTF-8 is Python's), and the place of each row's."""
    order = pc.sort_indices(part.texts)
    rank = np.empty(len(order), np.int64)
    rank[order.to_numpy()] = np.arange(len(order))
    return part.texts.take(order), rank[part.codes]


def joined(parts: Sequence[Events]) -> Events:
    """Put events together; a column of one value stays so where all parts have the same one."""
    if len(parts) == 1:
        return parts[0]
    same = {
        name: value
        for name, value in parts[0].same.items()
        if all(name in part.same and part.same[name] == value for part in parts)
    }
    if any(part.runs is None for part in parts):
        return Events(_stacked(parts, same), same)
    tables = [
        Events(part.table, {n: v for n, v in part.same.items() if n not in NAMES}) for part in parts
    ]
    runs = [
        Events(part.of_runs.table, {n: v for n, v in part.same.items() if n in NAMES})
        for part in parts
    ]
    return Events(_stacked(tables, same), same, _stacked(runs, same))


def _stacked(parts: Sequence[Events], but: Collection[str]) -> pa.Table:
    """Put the tables of parts together, with what is the same in all rows of some of them."""
    every = (name for part in parts for name in (*part.table.column_names, *part.same))
    names = dict.fromkeys(name for name in every if name not in but)
    tables = []
    for part in parts:
        table = part.table
        for name in names:
            if name in part.same:
                table = table.append_column(name, _column(part, name))
        tables.append(table)
    return pa.concat_tables(tables, promote_options="default")


def _column(events: Events, name: str) -> pa.Array:
    kind = COLUMN_TYPES[name]
    value = events.same[name]
    if value is None or not pa.types.is_dictionary(kind):
        return (
            pa.repeat(pa.scalar(value, kind), events.rows)
            if value is not None
            else pa.nulls(events.rows, kind)
        )
    codes = pa.array(np.zeros(events.rows, np.int32))
    return pa.DictionaryArray.from_arrays(codes, pa.array([value], kind.value_type))
