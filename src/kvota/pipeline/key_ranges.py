"""Cuts a record whose files are sorted by counter into ranges of keys that are worked off one by one. Pure.

Files say of each row group between which keys its rows lie. A range that is small enough is read by one task, from
every file: all rows of its counters are then there at once, and nothing has to be shuffled. One key with too many
rows for that is a range of its own, whose row groups are gone through in the order of time.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

# Quota type, name (tags, user or client id) and broker: what all rows of a counter have in common.
Key = tuple[str, str, int]

LEAST: Key = ("", "", -(2**63))
BEGIN_OF_TIME = -(2**63)

# So many keys of a range are streamed one by one at most.
_KEYS_SPLIT_MAX = 64

# Brokers whose numbers are further apart than this are two that groups tell of, with nobody between them; where they
# are not, each number between them may be a broker's, too.
_NODES_APART_MAX = 5

# A key whose groups have to be gone through more often, because counters of other names share it, is not streamed.
_PASSES_MAX = 2


def after(key: Key) -> Key:
    """Return the next key."""
    return key[0], key[1], key[2] + 1


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of a file, with keys that its rows do not lie outside of.

    Attributes:
        file: which one, counted from 0.
        group: which one of the file.
        rows: in it.
        first: no row has a key below it.
        last: no row has a key above it; None: nobody knows.
        begin: no row comes before it in its counter's order (``chunk_schema.CHUNK``: ``first``).
        passes: so many counters a key may have in it; 0: nobody knows.
        kept_bytes: of memory that it takes, about, while a task keeps it for later ranges.
    """

    file: int
    group: int
    rows: int
    first: Key
    last: Key | None
    begin: int = BEGIN_OF_TIME
    passes: int = 1
    kept_bytes: int = 0

    def is_within(self, start: Key, end: Key | None) -> bool:
        """Return whether all rows have keys from ``start`` to before ``end`` (None: without an end)."""
        return start <= self.first and (end is None or (self.last is not None and self.last < end))

    def reaches(self, key: Key) -> bool:
        """Return whether there may be rows with this key or a higher one."""
        return self.last is None or self.last >= key


def tightened(groups: Sequence[RowGroup]) -> list[RowGroup]:
    """Return groups that lie in the order of keys, each within what its neighbours leave.

    The bounds of a group are made of those of each column, so of several names any may have any broker. Its neighbours
    tell: the last row of one comes before the first of the next. Groups of which bounds say otherwise stay as they are.
    """
    first = [group.first for group in groups]
    last = [group.last for group in groups]
    for place, (group, following) in enumerate(pairwise(groups)):
        if group.last is not None and following.last is not None:
            if _at_end(group.first, group.last) > _at_end(following.last, following.first):
                return list(groups)  # they do not lie in this order
            first[place + 1] = max(following.first, _at_end(group.first, group.last))
            last[place] = min(group.last, _at_end(following.last, following.first))
    return [
        replace(group, first=begin, last=end)
        for group, begin, end in zip(groups, first, last, strict=True)
    ]


def _at_end(other: Key, end: Key) -> Key:
    """Return a bound, from the side of ``other``, of the row at one end of a group, whose bounds these two are.

    It has the type at this end; of all names the one at this end if there is but one type, and so of brokers.
    """
    if end[0] != other[0]:
        return end[0], other[1], other[2]
    return end[0], end[1], end[2] if end[1] == other[1] else other[2]


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys from ``start`` to before ``end`` (None: without an end), and the row groups that may have some.

    Attributes:
        start: the first key.
        end: the first one behind it.
        groups: in the order of files, as most rows of a counter then are in the order of time.
        is_streamed: it is one key with more rows than may be there at once.
    """

    start: Key
    end: Key | None
    groups: tuple[RowGroup, ...]
    is_streamed: bool = False

    @property
    def rows_begun(self) -> int:
        """Return how many rows the groups have that begin in the range: about as many as are in it."""
        return sum(group.rows for group in self.groups if group.first >= self.start)

    @property
    def is_between_names(self) -> bool:
        """Return whether no group begins in the range, and its ends are of two names."""
        return not self.rows_begun and self.end is not None and self.start[:2] != self.end[:2]

    @property
    def rows_open(self) -> int:
        """Return how many rows all its groups have."""
        return sum(group.rows for group in self.groups)

    def single_keys(self) -> list[Key]:
        """Return the keys that may be worth a range each, in order: the first one, and others of the same name.

        These are what groups begin or end with, and those between two of these whose brokers' numbers are close.
        """
        ends = {end for group in self.groups for end in (group.first, group.last)} | {self.end}
        told = {end for end in ends if end is not None and end[:2] == self.start[:2]} | {self.start}
        found = set(told)
        for low, high in pairwise(sorted(told)):
            if high[2] - low[2] <= _NODES_APART_MAX:
                found |= {(*low[:2], node_id) for node_id in range(low[2], high[2])}
        return sorted(key for key in found if self._has(key))

    def _has(self, key: Key) -> bool:
        return self.start <= key and (self.end is None or key < self.end)

    def until(self, end: Key) -> "KeyRange":
        """Return the keys before ``end``, which is a key of the range or the first one behind it."""
        groups = tuple(group for group in self.groups if group.first < end)
        return KeyRange(self.start, end, groups)

    def behind(self, start: Key) -> "KeyRange | None":
        """Return the keys from ``start`` on; None: no group reaches it."""
        groups = tuple(group for group in self.groups if group.reaches(start))
        if not groups or not self._has(start):
            return None
        return KeyRange(start, self.end, groups)


@dataclass(frozen=True, slots=True)
class Cut:
    """A record, cut.

    Attributes:
        tasks: the ranges of each task, in order.
        large: ranges with too many rows for one task's memory.
    """

    tasks: tuple[tuple[KeyRange, ...], ...]
    large: tuple[KeyRange, ...]

    def rows_read(self, kept_bytes_max: int) -> int:
        """Return how many rows tasks read; those of a group count for each task, and for each range where it is not kept.

        Args:
            kept_bytes_max: a task keeps groups for later ranges up to so much memory.
        """
        of_tasks = sum(_rows_read(ranges, kept_bytes_max) for ranges in self.tasks)
        return of_tasks + _rows_of(self.large)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What there is room for in the memory of a task.

    Attributes:
        begun_max: no range for a task begins more rows.
        open_max: nor has one groups of more rows.
        kept_bytes_max: a task keeps groups for later ranges up to so much memory.
    """

    begun_max: int
    open_max: int
    kept_bytes_max: int

    def is_for(self, part: KeyRange) -> bool:
        """Return whether a part of a range is for a task."""
        if part.is_streamed:
            kept = sum(group.rows for group in part.groups if group.reaches(after(part.start)))
            has_few_counters = all(0 < group.passes <= _PASSES_MAX for group in part.groups)
            return kept <= self.open_max and has_few_counters
        # Of the groups that begin before it about half of the rows are in it. Where none begins in it, between two names,
        # mostly little is there; nobody knows, but who reads it cuts it should it be too much, while groups are kept.
        before = (part.rows_open - part.rows_begun) // 2
        kept_bytes = sum(group.kept_bytes for group in part.groups)
        if part.is_between_names and kept_bytes <= self.kept_bytes_max:
            before = 0
        return part.rows_begun + before <= self.begun_max and part.rows_open <= self.open_max


def cut(groups: Iterable[RowGroup], tasks: int, *, rows_at_once: int, room: Room) -> Cut:
    """Cut a record.

    Args:
        groups: of all files.
        tasks: so many at most.
        rows_at_once: about so many rows are in a range.
        room: that a task has.
    """
    small: list[KeyRange] = []
    large: list[KeyRange] = []
    for one in _ranges(groups, rows_at_once):
        if one.rows_begun <= room.begun_max and one.rows_open <= room.open_max:
            small.append(one)
            continue
        for part in _split(one, room):
            (small if room.is_for(part) else large).append(part)
    return Cut(tuple(_shared(small, tasks)), tuple(large))


def _split(one: KeyRange, room: Room) -> Iterator[KeyRange]:
    """Yield a range in parts: single keys, to be streamed, while what is behind them has no room.

    Many rows of one name are those of several brokers, and groups tell of which. What lies between two keys that are
    told is a part, too: nobody knows that there is nothing.
    """
    rest: KeyRange | None = one
    for key in one.single_keys()[:_KEYS_SPLIT_MAX]:
        if rest is None:
            break
        if rest is not one and room.is_for(rest):
            break
        single = KeyRange(key, after(key), rest.until(after(key)).groups, is_streamed=True)
        if not room.is_for(single):
            break
        if rest.start < key:
            yield rest.until(key)
        yield single
        rest = rest.behind(after(key))
    if rest is not None:
        yield rest


def _ranges(groups: Iterable[RowGroup], rows_at_once: int) -> list[KeyRange]:
    """Cut where groups begin, so that about so many rows begin in each range."""
    beginning: dict[Key, list[RowGroup]] = {}
    for group in groups:
        beginning.setdefault(group.first, []).append(group)
    cuts = sorted(beginning)
    found: list[KeyRange] = []
    still_open: list[RowGroup] = []
    place = 0
    while place < len(cuts):
        start, begun = cuts[place], 0
        here = [group for group in still_open if group.reaches(start)]
        while place < len(cuts):
            more = sum(group.rows for group in beginning[cuts[place]])
            if begun and begun + more > rows_at_once:
                break
            here += beginning[cuts[place]]
            begun += more
            place += 1
        end = cuts[place] if place < len(cuts) else None
        here.sort(key=lambda group: (group.file, group.group))
        found.append(KeyRange(start, end, tuple(here)))
        still_open = here
    return found


def _shared(ranges: Sequence[KeyRange], tasks: int) -> list[tuple[KeyRange, ...]]:
    """Share ranges out, each task about as many rows, and neighbours to one task."""
    total = sum(one.rows_begun for one in ranges)
    shares: list[list[KeyRange]] = [[] for _ in range(tasks)]
    before = accumulate((one.rows_begun for one in ranges), initial=0)
    for one, begun in zip(ranges, before, strict=False):
        middle = begun + one.rows_begun // 2
        shares[min(tasks - 1, middle * tasks // max(1, total))].append(one)
    return [tuple(share) for share in shares if share]


def _rows_read(ranges: Iterable[KeyRange], kept_bytes_max: int) -> int:
    """Return how many rows one task reads, which keeps groups as ``row_groups.GroupReader`` does."""
    rows, kept_bytes = 0, 0
    kept: dict[tuple[int, int], RowGroup] = {}
    for one in ranges:
        kept = {place: group for place, group in kept.items() if group.reaches(one.start)}
        kept_bytes = sum(group.kept_bytes for group in kept.values())
        for group in one.groups:
            place = group.file, group.group
            was_kept = kept.pop(place, None) is not None
            kept_bytes -= group.kept_bytes * was_kept
            is_needed = one.end is not None and group.reaches(one.end)
            is_kept = is_needed and kept_bytes + group.kept_bytes <= kept_bytes_max
            if is_kept:
                kept[place] = group
                kept_bytes += group.kept_bytes
            times = group.passes if one.is_streamed and not is_kept else 1
            rows += group.rows * (times - was_kept)
    return rows


def _rows_of(ranges: Iterable[KeyRange]) -> int:
    groups = {(group.file, group.group): group.rows for one in ranges for group in one.groups}
    return sum(groups.values())
