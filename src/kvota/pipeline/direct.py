"""Works off a merged record without a shuffle: each task reads its range of counters from all files.

A record in which few rows are not merged yet is read so, too: every task reads those, and takes what is of its range.
One key with more rows than a worker may hold is streamed. Where that does not pay, or cannot be, rows go as chunks through
Spark's shuffle.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvota.model.errors import KvotaError
from kvota.pipeline import chunk_schema as s
from kvota.pipeline.arrange import Arranged, Counters, arranged, grouped, wanted
from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.event_columns import Events
from kvota.pipeline.kernels.counter_hash import SEED, hash_ints, hash_texts
from kvota.pipeline.key_ranges import Cut, Key, KeyRange, Room, RowGroup, after, cut
from kvota.pipeline.pack import gathered, pack
from kvota.pipeline.packing_choice import Packing
from kvota.pipeline.row_groups import KEPT_BYTES_MAX, GroupReader, joined
from kvota.pipeline.seconds import parts_of, sums_of_rows, together
from kvota.pipeline.unpack import SAME_ID, Rows, unpack
from kvota.pipeline.worker_memory import give_back

# About so many rows are worked off at once: a row takes about 150 bytes meanwhile.
_ROWS_AT_ONCE = 1 << 20

# No range is planned in which more rows begin. More may be found in it than begin there: where these are more than so
# many (or so many parts of seconds), it is worked off part by part.
_BEGUN_MAX = _FOUND_MAX = 3 << 19

# So many chunks are unpacked at once.
_CHUNKS_AT_ONCE = 1 << 12

# A replay makes a row for each counter and candidate: those of so many counters at once.
_COUNTERS_AT_ONCE = 1 << 13

# So many charges are summed up, or packed, at once: one of which each is a part of its own takes about 400 bytes meanwhile.
_SUMMED_AT_ONCE = 1 << 20

# The groups of a range have so many rows at most; of a single key's those count that reach beyond it. What is kept of
# them ``row_groups`` bounds in bytes.
_OPEN_MAX = 8 << 20

# Small records are cut as well, so that every task has something to do.
_RANGES_PER_TASK = 2
_ROWS_AT_ONCE_MIN = 1 << 14

# It does not pay where tasks together read more than so many times the rows, or most of them are shuffled anyway.
_READ_MAX = 1.5
_SHUFFLED_MAX = 0.5

# Nor where a range may have more than this share of all rows.
_OPEN_SHARE_MAX = 0.5


def cut_for_tasks(groups: Sequence[RowGroup], tasks: int, rows: int) -> Cut | None:
    """Cut a record for at most so many tasks; None: it is better shuffled.

    Args:
        groups: those with rows that are wanted.
        tasks: at most.
        rows: of the whole record.
    """
    total = sum(group.rows for group in groups)
    if not groups:
        return Cut(tasks=((),), large=())
    room = Room(begun_max=_BEGUN_MAX, open_max=_OPEN_MAX, kept_bytes_max=KEPT_BYTES_MAX)
    for fewer in (tasks, tasks // 2):
        if not fewer:
            break
        at_once = min(_ROWS_AT_ONCE, max(_ROWS_AT_ONCE_MIN, total // (fewer * _RANGES_PER_TASK)))
        found = cut(groups, fewer, rows_at_once=at_once, room=room)
        shuffled = sum(one.rows_begun for one in found.large)
        pays = (
            found.rows_read(KEPT_BYTES_MAX) <= _READ_MAX * rows
            and shuffled <= _SHUFFLED_MAX * total
        )
        if (
            pays
            and _is_told(found, total)
            and (len(found.tasks) == fewer or total <= _ROWS_AT_ONCE)
        ):
            return found
    return None


def _is_told(found: Cut, total: int) -> bool:
    """Return whether bounds of groups tell where rows lie: where most rows may be in one range, they do not."""
    whole = (one for ranges in found.tasks for one in ranges if not one.is_streamed)
    widest = max((one.rows_open for one in whole), default=0)
    return widest <= max(_FOUND_MAX, _OPEN_SHARE_MAX * total)


def rows_in(reader: GroupReader, ranges: Iterable[KeyRange]) -> Iterator[Rows]:
    """Yield the rows of ranges, or parts of seconds where these are packed.

    The first counter of each ``Rows`` but the first is the last one of those before, mostly without further rows.

    Raises:
        KvotaError: two counters of a range have the same counter_id.
    """
    last: pa.RecordBatch | None = None
    for one in ranges:
        found = _streamed(reader, one) if one.is_streamed else _rows_of(reader, one)
        for every in found:
            for rows in _few_counters(every):
                yield rows if last is None or rows.continues else continued(rows, last)
                last = rows.names.take(pa.array([len(rows.names) - 1]))  # a slice keeps all names
            give_back()


def _few_counters(rows: Rows) -> Iterator[Rows]:
    """Yield the same rows, of so many counters at once that what is made of them stays bounded."""
    count = len(rows.names)
    if count <= _COUNTERS_AT_ONCE:
        yield rows
        return
    for begin in range(0, count, _COUNTERS_AT_ONCE):
        starts = rows.starts[begin : begin + _COUNTERS_AT_ONCE + 1]
        columns = {name: column[starts[0] : starts[-1]] for name, column in rows.columns.items()}
        names = rows.names.slice(begin, _COUNTERS_AT_ONCE)
        yield Rows(names, starts - starts[0], rows.continues and begin == 0, columns)


def _streamed(reader: GroupReader, one: KeyRange) -> Iterator[Rows]:
    rows = _rows_of_key(reader, one)
    return sums_of_rows(rows) if reader.packing.is_summed else rows


def _rows_of(reader: GroupReader, one: KeyRange) -> Iterator[Rows]:
    """Yield the rows of a range that is read at once; of one that has too many for that, part by part.

    Bounds of groups do not tell where between them their rows lie: a range at the end may have most of all.
    """
    left = [one]
    while left:
        here = left.pop()
        found, key = _found_in(reader, here)
        if found is not None:
            yield found
        elif key is not None:
            parts = _cut_at(here, key)
            left += reversed(parts)
            if not parts:
                yield from _packed_rows(reader, here)


def _found_in(reader: GroupReader, one: KeyRange) -> tuple[Rows | None, Key | None]:
    """Return the rows of a range (None: it has none), or, where these are too many, None and a key amid them."""
    reader.begin(one)
    summed: list[Rows] = []
    waiting: list[Events] = []
    for group in one.groups:
        events = reader.events_in(group, one)
        if not events.rows:
            continue
        waiting.append(events)
        rows = sum(each.rows for each in waiting)
        if rows + sum(int(parts.starts[-1]) for parts in summed) > _FOUND_MAX:
            return None, reader.middle(events)
        if reader.packing.is_summed and rows >= _SUMMED_AT_ONCE:
            summed += _parts_in(joined(waiting), reader.packing)
            waiting = []
    if not reader.packing.is_summed:
        return (whole_counters(joined(waiting), reader.packing) if waiting else None), None
    if waiting:
        summed += _parts_in(joined(waiting), reader.packing)
    return (together(summed) if summed else None), None


def _cut_at(one: KeyRange, key: Key) -> list[KeyRange]:
    """Cut a range at one of its keys, or behind this where it is the first; nothing: it has no other."""
    cut_key = key if key > one.start else after(key)
    if one.end is not None and cut_key >= one.end:
        return []
    behind = one.behind(cut_key)
    return [one.until(cut_key), *([behind] if behind else [])]


def _packed_rows(reader: GroupReader, one: KeyRange) -> Iterator[Rows]:
    """Yield the rows of a range by way of chunks, which take a tenth of the memory."""
    packed = (pack(events, reader.packing) for events in _some_at_a_time(reader, one))
    chunks = [some for some in packed if some is not None]
    if not chunks:
        return
    ids = [counter_ids([some.column(name) for name in s.COUNTER_COLUMNS]) for some in chunks]
    table = pa.Table.from_batches(chunks).append_column("counter_id", pa.chunked_array(ids))
    order = pc.sort_indices(table, [("counter_id", "ascending"), ("first", "ascending")])
    batches = (
        table.take(order.slice(begin, _CHUNKS_AT_ONCE)).combine_chunks().to_batches()[0]
        for begin in range(0, len(order), _CHUNKS_AT_ONCE)
    )
    as_recorded = reader.packing.by == "counter"
    yield from unpack(batches, as_recorded=as_recorded, layout=reader.packing.layout)


def _some_at_a_time(reader: GroupReader, one: KeyRange) -> Iterator[Events]:
    reader.begin(one)
    waiting: list[Events] = []
    for group in one.groups:
        events = reader.events_in(group, one)
        if events.rows:
            waiting.append(events)
        if sum(each.rows for each in waiting) >= _SUMMED_AT_ONCE:
            yield joined(waiting)
            waiting = []
    if waiting:
        yield joined(waiting)


def _parts_in(events: Events, packing: Packing) -> Iterator[Rows]:
    of_counters = grouped(events, packing)
    if of_counters is not None:
        parts = parts_of(of_counters)
        names = _named(of_counters.counters)
        yield Rows(names, parts.starts, continues=False, columns=parts.columns)


def _rows_of_key(reader: GroupReader, one: KeyRange) -> Iterator[Rows]:
    """Yield the rows of a range of one key, counter by counter, of each in order; only a few are held at once."""
    reader.begin(one)
    every = {names for group in one.groups for names in reader.files[group.file].counters}
    for names in sorted(every):
        groups = [group for group in one.groups if names in reader.files[group.file].counters]
        groups.sort(key=lambda group: group.begin)
        held: list[Events] = []
        is_begun = False
        new_rows = 0
        for place, group in enumerate(groups):
            events = reader.events_of(group, one, names)
            if events.rows:
                held.append(wanted(events, reader.packing))
                new_rows += held[-1].rows
            is_last = place + 1 == len(groups)
            if held and (new_rows >= _ROWS_AT_ONCE or is_last):
                # Rows from where the next group begins on may still have company.
                before = None if is_last else groups[place + 1].begin
                rows, rest = _rows_before(joined(held), reader.packing, before)
                held, new_rows = ([rest] if rest.rows else []), 0
                if rows is not None and rows.starts[-1]:
                    yield replace(rows, continues=is_begun)
                    is_begun = True


def _rows_before(
    events: Events, packing: Packing, before: int | None
) -> tuple[Rows | None, Events]:
    """Return those rows of one counter that come before a place in its order (None: all), and other events."""
    found = arranged(events, packing)
    if found is None:
        return None, events
    count = len(found.order)
    if before is not None:
        count = int(np.searchsorted(found.times[found.order], before))
    rest = events.take(found.order[count:])
    return _rows(replace(found, order=found.order[:count], starts=np.array([0, count]))), rest


def continued(rows: Rows, last: pa.RecordBatch) -> Rows:
    """Return rows that come behind others: their last counter stands first, without further rows."""
    names = pa.Table.from_batches([last, rows.names]).combine_chunks().to_batches()[0]
    return Rows(names, np.append(0, rows.starts), continues=True, columns=rows.columns)


def whole_counters(events: Events, packing: Packing) -> Rows | None:
    """Return the rows of events that have all rows of their counters; None where none is wanted.

    Raises:
        KvotaError: two counters have the same counter_id.
    """
    found = arranged(events, packing)
    return None if found is None else _rows(found)


def _rows(found: Arranged) -> Rows:
    columns: dict[str, Array] = {}
    for names, kind in ((s.INTS, np.dtype(np.int64)), (s.DOUBLES, np.dtype(np.float64))):
        varying = [name for name in names if not isinstance(found.columns[name], int)]
        arrays = [np.asarray(found.columns[name]) for name in varying]
        columns |= dict(zip(varying, gathered(arrays, found.order, kind), strict=True))
        for name in names:
            if name not in columns:
                columns[name] = np.full(len(found.order), found.columns[name], kind)
    return Rows(_named(found.counters), found.starts, continues=False, columns=columns)


def _named(counters: Counters) -> pa.RecordBatch:
    """Return counter_id and ``chunk_schema.COUNTER_COLUMNS``."""
    columns = counters.columns(np.arange(len(counters.codes)))
    ids = counter_ids(columns)
    if len(np.unique(ids)) < len(ids):
        raise KvotaError(SAME_ID)
    return pa.RecordBatch.from_arrays(
        [pa.array(ids), *columns], names=["counter_id", *s.COUNTER_COLUMNS]
    )


def counter_ids(columns: Sequence[pa.Array]) -> Array:
    """Return the numbers of counters, the same as Spark's ``xxhash64``.

    Args:
        columns: ``chunk_schema.COUNTER_COLUMNS``.
    """
    hashes = np.full(len(columns[0]), SEED, np.uint64)
    for column in columns:
        if pa.types.is_string(column.type):
            hash_texts(*_text_bytes(column), hashes)
        else:
            hash_ints(column.to_numpy().astype(np.int64), hashes)
    ids: Array = hashes.view(np.int64)
    return ids


def _text_bytes(column: pa.Array) -> tuple[Array, Array]:
    _, offsets, data = column.buffers()
    places = np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset)
    content = (
        np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    )
    return content.copy(), places.astype(np.int64)
