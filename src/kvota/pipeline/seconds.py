"""Sums of seconds: made of charges as they lie, or of rows in order, and added up counter by counter. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kvota.model.decision_sink import REJECTED, THROTTLED
from kvota.model.errors import KvotaError
from kvota.model.quota_type import QuotaType
from kvota.pipeline import chunk_schema as s
from kvota.pipeline import counters as c
from kvota.pipeline.arrange import Grouped, sort_groups
from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.kernels import packing
from kvota.pipeline.kernels import second_sums as k
from kvota.pipeline.unpack import SAME_ID, Rows

# Marks beyond these say nothing of sums.
_MARKS_SEEN = s.OUTCOME_MASK | s.ENFORCED | s.LIMIT_BINDS | s.OTHER_TAGS
_MARKS = s.OTHER_TAGS * 2

# Quota types whose rejected rows are not like those of all others.
_FETCH, _PRODUCE = 1, 2
_KINDS: Mapping[str, int] = {QuotaType.FETCH: _FETCH, QuotaType.PRODUCE: _PRODUCE}


def _does(kind: int, mark: int, *, has_value: bool) -> int:
    """Return what a charge does (``second_sums``).

    A request that waited is in the record twice: when its wait began, and where it went on. The second row of a
    Produce says that it was throttled; that of a Fetch may come when there is room, or be a wait once more. So what
    was decided counts beside what was answered: no share of decisions is above 1.
    """
    outcome, enforced = mark & s.OUTCOME_MASK, bool(mark & s.ENFORCED)
    was_rejected = outcome == REJECTED
    waits_for_room = was_rejected and kind == _FETCH
    waits_for_turn = was_rejected and kind == _PRODUCE and enforced
    throttled = waits_for_room or outcome == THROTTLED
    is_refused = was_rejected and not waits_for_room and not waits_for_turn
    is_event = has_value and not waits_for_room and not waits_for_turn
    every = {
        k.USES: not (was_rejected and enforced),
        k.IS_EVENT: is_event,
        k.IS_FURTHER: not is_event and (throttled or is_refused),
        k.IS_THROTTLED: throttled,
        k.IS_REJECTED: is_refused,
        k.TELLS: not waits_for_turn,
        k.HOLDS: enforced and (was_rejected or throttled),
    }
    return sum(bit for bit, is_so in every.items() if is_so)


_DOES = np.array(
    [
        _does(kind, mark & _MARKS_SEEN, has_value=has_value)
        for kind in range(3)
        for mark in range(_MARKS)
        for has_value in (False, True)
    ],
    np.uint8,
)
_DOES_OF_KIND = 2 * _MARKS


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of seconds, counter by counter, each one's in order.

    Attributes:
        ints: of ``chunk_schema.SUMS``: a row per column.
        doubles: a row per column.
        starts: where each counter's parts start, and the end.
    """

    ints: Array
    doubles: Array
    starts: Array

    @property
    def columns(self) -> dict[str, Array]:
        """Return them by name."""
        return dict(zip(s.SUMS.names, (*self.ints, *self.doubles), strict=True))


def parts_of(found: Grouped) -> Parts:
    """Sum up charges as they lie."""
    return _parts(found.columns, found.owners, found.counters.of_type(_KINDS, 0))


def sums_of_rows(every: Iterable[Rows]) -> Iterator[Rows]:
    """Sum up charges that lie in order: of each ``Rows`` its parts."""
    for rows in every:
        kinds = np.zeros(len(rows.names), np.int64)
        for name, kind in _KINDS.items():
            kinds[c.is_of(rows.names, name)] = kind
        parts = _parts(rows.columns, rows.spread(np.arange(len(kinds))), kinds)
        yield Rows(rows.names, parts.starts, rows.continues, parts.columns)


def together(every: Sequence[Rows]) -> Rows:
    """Put parts of seconds of whole counters together, of which any may have any counter.

    Raises:
        KvotaError: two counters have the same counter_id.
    """
    if len(every) == 1:
        return every[0]
    names = pa.Table.from_batches([rows.names for rows in every]).combine_chunks().to_batches()[0]
    ids = names.column("counter_id").to_numpy()
    _, first, counter_of = np.unique(ids, return_index=True, return_inverse=True)
    if not names.equals(names.take(pa.array(first[counter_of]))):
        raise KvotaError(SAME_ID)
    lengths = np.concatenate([np.diff(rows.starts) for rows in every])
    owners = np.repeat(counter_of, lengths)
    order, starts = np.empty(len(owners), np.int64), np.empty(len(first) + 1, np.int64)
    packing.group_rows(owners, order, starts)
    joined = {name: np.concatenate([rows.columns[name] for rows in every]) for name in s.SUMS.names}
    sort_groups(order, starts, (joined["ts_us"], joined["run"], joined["seq"]))
    for name in s.SUMS.names:
        joined[name] = joined[name][order]
    return Rows(names.take(pa.array(first)), starts, continues=False, columns=joined)


def _parts(columns: Mapping[str, Array | int], owners: Array, kinds: Array) -> Parts:
    rows = len(owners)
    ints = np.empty((rows, k.PART_WIDTH), np.int64)  # most of it is never touched
    doubles, owner_of = ints.view(np.float64), np.empty(rows, np.int64)
    names = ("run", "marks", "throttle_ms", s.SHARED_INT)
    # Marks of a run's begin and of algorithms are not asked for, and no two parts shall differ by them.
    seen = {**columns, "marks": columns["marks"] & _MARKS_SEEN}
    count = k.sum_rows(
        _read_only(owners.astype(np.int64, copy=False)),
        kinds * _DOES_OF_KIND,
        _DOES,
        *(_read_only(np.asarray(columns[name])) for name in ("ts_us", "seq", "value")),
        *(each for name in names for each in _one_or_each(seen[name])),
        *_one_or_each(columns["limit"]),
        *(s.LIMIT_BINDS, s.ENFORCED, s.CENSORED, s.SECOND_MARKS),
        np.full(len(kinds), -1),
        owner_of,
        ints,
        doubles,
    )
    part_of, starts = np.empty(count, np.int64), np.empty(len(kinds) + 1, np.int64)
    packing.group_rows(owner_of[:count], part_of, starts)
    keys = (ints[:count, place].copy() for place in (k.TS_US, k.RUN, k.SEQ))
    sort_groups(part_of, starts, (next(keys), next(keys), next(keys)))
    turned_ints = np.empty((k.PART_INTS, count), np.int64)
    turned_doubles = np.empty((k.PART_DOUBLES, count))
    k.turn_parts(ints, doubles, part_of, turned_ints, turned_doubles)
    return Parts(turned_ints, turned_doubles, starts)


def _one_or_each(values: Array | int) -> tuple[Array, int]:
    """Return the one value of all rows and 0, or that of each row and 1."""
    if isinstance(values, int):
        return _read_only(np.array([values])), 0
    return _read_only(values), 1


def _read_only(values: Array) -> Array:
    """Return the same numbers as what cannot be written: Arrow's cannot, and Numba compiles each kind anew."""
    seen = values.view()
    seen.flags.writeable = False
    return seen


@dataclass(frozen=True, slots=True)
class Seconds:
    """What counters did in the seconds in which they did something; a column per second.

    Attributes:
        names: a row per counter: counter_id and ``chunk_schema.COUNTER_COLUMNS``.
        sums: the rows that ``second_sums`` names.
        doubles: the rows that it names.
    """

    names: pa.RecordBatch
    sums: Array
    doubles: Array

    def part(self, start: int, end: int) -> "Seconds":
        """Return some of the seconds."""
        return Seconds(self.names, self.sums[:, start:end], self.doubles[:, start:end])

    @property
    def used(self) -> Array:
        """Return what was used in each second."""
        used: Array = self.sums[k.OF_WHOLE] + self.doubles[k.OF_OTHER]
        return used

    def row(self, place: int) -> Array:
        """Return a row of ``sums`` in one piece."""
        return np.ascontiguousarray(self.sums[place])


def of_whole_counters(every: Iterable[Rows]) -> Iterator[Seconds]:
    """Yield the seconds of parts (``chunk_schema.SUMS``), each counter's at once."""
    held: Seconds | None = None
    for parts in every:
        seconds = _added(parts, held)
        last = int(np.searchsorted(seconds.sums[k.OF_OWNER], len(parts.names) - 1))
        if last:
            yield seconds.part(0, last)
        held = seconds.part(last, seconds.sums.shape[1])
    if held is not None and held.sums.shape[1]:
        yield held


def _added(parts: Rows, held: Seconds | None) -> Seconds:
    """Add up parts; seconds that are held are of the first counter, whose last second may go on."""
    before = 0 if held is None else held.sums.shape[1]
    most = int(parts.starts[-1]) + before
    sums = np.empty((k.SECOND_INTS, most), np.int64)
    doubles = np.empty((k.SECOND_DOUBLES, most))
    if held is not None:
        sums[:, :before], doubles[:, :before] = held.sums, held.doubles
        sums[k.OF_OWNER, :before] = 0
    names = (
        *("ts_us", "marks", "events", "further", "throttled", "rejected"),
        *("told_ms", "held_ms", "whole", "other", "limit", "largest"),
    )
    columns = (parts.columns[name] for name in names)
    count = k.add_parts(parts.starts, *columns, s.SECOND_MARKS, before, sums, doubles)
    return Seconds(parts.names, sums[:, :count], doubles[:, :count])
