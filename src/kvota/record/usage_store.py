"""Keeps usage beside a record: seconds while a minute is open, a line for each tenant when it is closed.

A file holds if ``progress.json`` names it, which takes its place in one step: what decisions have been taken, and what
they come to, are never two truths. Files get their names before that, and those that hold no more go after it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kvota.files.whole_file import write_whole
from kvota.model.errors import CorruptDataError
from kvota.record.own_texts import with_own_texts
from kvota.record.places import USAGE_FOLDER
from kvota.record.usage_state import (
    AGE_MAX_US,
    OPEN_ROWS_MAX,
    Summed,
    Usage,
    UsageFile,
    moved_on,
    open_from_s,
)
from kvota.record.usage_sums import (
    LEVELS,
    MINUTES_SCHEMA,
    SECONDS_SCHEMA,
    in_packing_order,
    joined,
    minute_of,
    minutes_of,
    numbers_in,
    seconds_of,
    truths,
)

_HOUR_S = 3_600
# What Arrow raises where bytes are not what they should be: of damaged blocks it says that a read failed, and names may be others.
_DAMAGE = (pa.ArrowException, OSError, ValueError, KeyError)
# Files of one hour, and lines in a file, from which on it is not merged with others any more.
_FILES_MAX = 8
_LINES_FULL = 1_000_000
# Many files of seconds are made one, also where none of their minutes is closed.
_SECONDS_FILES_MAX = 64


def write_seconds(into: Path, name: str, rows: pa.Table) -> Summed:
    """Write what rows of events come to, beside the record ``into``. It does not hold yet.

    Args:
        into: the record's folder.
        name: of the file, without an ending; another one of that name is replaced.
        rows: one at least, those of a run in the order of seq.

    Raises:
        OSError: it cannot be written.
    """
    return Summed(_put_seconds(into, f"seconds-{name}.arrow", seconds_of(rows)), _newest(rows))


def remove_seconds(into: Path, summed: Summed) -> None:
    """Remove what ``write_seconds`` has written.

    Raises:
        OSError: it cannot be removed.
    """
    (into / USAGE_FOLDER / summed.file.name).unlink(missing_ok=True)


class UsageStore:
    """Adds batches to what holds.

    Args:
        into: the record's folder.
        now_us: tells the time; None: whatever time a decision says, it is not ahead of us.
        age_us: lines of minutes are kept for so long, by the newest decision.
        open_rows_max: so many rows of open minutes are kept.
    """

    def __init__(
        self,
        into: Path,
        *,
        now_us: Callable[[], int] | None = None,
        age_us: int = AGE_MAX_US,
        open_rows_max: int = OPEN_ROWS_MAX,
    ) -> None:
        self._into = into
        self._open_rows_max = open_rows_max
        self._now_us = now_us
        self._age_us = age_us

    def is_there(self, usage: Usage) -> bool:
        """Tell whether all files that hold are there.

        Raises:
            OSError: it cannot be told.
        """
        here = self._names()
        return all(file.name in here for file in usage.files)

    def remove_others(self, usage: Usage) -> None:
        """Remove what does not hold, or no more.

        Raises:
            OSError: it cannot be removed.
        """
        holding = {file.name for file in usage.files}
        for name in self._names() - holding:
            (self._into / USAGE_FOLDER / name).unlink(missing_ok=True)

    def with_batch(self, before: Usage, came: Iterable[Summed]) -> Usage:
        """Return what shall hold when a batch is taken; its files are there, and those that hold now still are.

        Raises:
            OSError: the disk does not take it.
            FileNotFoundError: a file that holds is gone.
            CorruptDataError: one is damaged.
        """
        batch = list(came)
        newest = _largest(item.newest_us for item in batch)
        now_us = None if self._now_us is None else self._now_us()
        usage = replace(
            before,
            seconds=before.seconds + tuple(item.file for item in batch),
            newest_us=moved_on(before.newest_us, newest, now_us=now_us),
        )
        usage = self._closed(usage)
        return self._without_old(self._merged(usage))

    # ------------------------------------------------------------------ the steps

    def _closed(self, usage: Usage) -> Usage:
        """Close minutes where there are any to close."""
        end_s = open_from_s(usage.newest_us)
        has_closed = end_s is not None and any(file.first_s < end_s for file in usage.seconds)
        are_few = len(usage.seconds) <= _SECONDS_FILES_MAX and _rows(usage) <= self._open_rows_max
        if not has_closed and are_few:
            return usage
        rows = pa.concat_tables([read_seconds(self._into, file) for file in usage.seconds])
        is_closed = _before(rows, end_s)
        if rows.num_rows - int(is_closed.sum()) > self._open_rows_max:
            is_closed[:] = True  # what comes later are further lines
        closed, still_open = rows.filter(truths(is_closed)), rows.filter(truths(~is_closed))
        lines = minutes_of(closed)
        is_old = minute_of(lines) < self._oldest_s(usage)
        if is_old.any():
            usage = replace(usage, uncounted=usage.uncounted + _decisions(lines, is_old))
        new = list(self._put_minutes(lines.filter(truths(~is_old)), usage))
        number = usage.number + len(new)
        seconds: tuple[UsageFile, ...] = ()
        if still_open.num_rows:
            seconds = (_put_seconds(self._into, f"seconds-{number:012d}.arrow", still_open),)
            number += 1
        return replace(usage, seconds=seconds, minutes=usage.minutes + tuple(new), number=number)

    def _put_minutes(self, lines: pa.Table, usage: Usage) -> Iterator[UsageFile]:
        """Write lines, those of each hour in a file."""
        hour = minute_of(lines) // _HOUR_S
        for number, of_hour in enumerate(np.unique(hour)):
            inside = lines.filter(truths(hour == of_hour))
            yield self._put_lines(inside, usage.number + number)

    def _merged(self, usage: Usage) -> Usage:
        """Make one of the files of an hour that has many."""
        hours: dict[int, list[UsageFile]] = {}
        for file in usage.minutes:
            if file.rows < _LINES_FULL:
                hours.setdefault(file.first_s // _HOUR_S, []).append(file)
        for files in hours.values():
            if len(files) < _FILES_MAX:
                continue
            lines = joined(pa.concat_tables([read_minutes(self._into, file) for file in files]))
            others = tuple(file for file in usage.minutes if file not in files)
            merged = self._put_lines(lines, usage.number)
            usage = replace(usage, minutes=(*others, merged), number=usage.number + 1)
        return usage

    def _without_old(self, usage: Usage) -> Usage:
        oldest_s = self._oldest_s(usage)
        young = tuple(file for file in usage.minutes if file.last_s >= oldest_s)
        return replace(usage, minutes=young)

    def _oldest_s(self, usage: Usage) -> int:
        return max(0, ((usage.latest_us or 0) - self._age_us) // 1_000_000)

    def _put_lines(self, lines: pa.Table, number: int) -> UsageFile:
        name = f"usage-minutes-{number:012d}.parquet"
        _put(self._into, name, _minutes_bytes(lines))
        minute = minute_of(lines)
        return UsageFile(name, int(minute.min()), int(minute.max()), lines.num_rows)

    def _names(self) -> set[str]:
        folder = self._into / USAGE_FOLDER
        return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


# ---------------------------------------------------------------- files


def read_seconds(into: Path, file: UsageFile) -> pa.Table:
    """Read a file of seconds (``usage_sums.SECONDS_SCHEMA``).

    Raises:
        FileNotFoundError: it is gone.
        CorruptDataError: it is damaged.
    """
    path = into / USAGE_FOLDER / file.name
    content = pa.BufferReader(path.read_bytes())
    try:
        with pa.ipc.open_file(content) as source:
            rows = source.read_all().select(SECONDS_SCHEMA.names).cast(SECONDS_SCHEMA)
        rows.validate(full=True)
    except _DAMAGE as error:
        raise _damaged(path, error) from error
    return rows


def read_minutes(into: Path, file: UsageFile, levels: Collection[str] = tuple(LEVELS)) -> pa.Table:
    """Read the lines of some levels out of a file of minutes (``usage_sums.MINUTES_SCHEMA``).

    Raises:
        FileNotFoundError: it is gone.
        CorruptDataError: it is damaged.
    """
    path = into / USAGE_FOLDER / file.name
    content = pa.BufferReader(path.read_bytes())
    texts = [field.name for field in MINUTES_SCHEMA if pa.types.is_dictionary(field.type)]
    try:
        with pq.ParquetFile(
            content, read_dictionary=texts, page_checksum_verification=True
        ) as source:
            # A row group has the lines of one level.
            groups = [
                group for group in range(source.num_row_groups) if _level(source, group) in levels
            ]
            lines = source.read_row_groups(groups).cast(MINUTES_SCHEMA)
    except _DAMAGE as error:
        raise _damaged(path, error) from error
    return lines


def lines_in(into: Path, file: UsageFile, level: str) -> int:
    """Return how many lines of a level a file of minutes has, which its footer says.

    Raises:
        FileNotFoundError: it is gone.
        CorruptDataError: it is damaged.
    """
    path = into / USAGE_FOLDER / file.name
    with path.open("rb") as content:
        try:
            with pq.ParquetFile(content) as source:
                groups = range(source.num_row_groups)
                return sum(
                    source.metadata.row_group(group).num_rows
                    for group in groups
                    if _level(source, group) == level
                )
        except _DAMAGE as error:
            raise _damaged(path, error) from error


def _level(source: pq.ParquetFile, group: int) -> object:
    column = source.schema_arrow.get_field_index("level")
    return source.metadata.row_group(group).column(column).statistics.min


def _minutes_bytes(lines: pa.Table) -> pa.Buffer:
    out = pa.BufferOutputStream()
    in_order = in_packing_order(lines)
    with pq.ParquetWriter(
        out,
        MINUTES_SCHEMA,
        compression="zstd",
        use_dictionary=[
            "window_start",
            *(field.name for field in MINUTES_SCHEMA if pa.types.is_dictionary(field.type)),
            "limit_last",
        ],
        write_statistics=["window_start", "level"],
        store_schema=False,  # readers shall see plain texts, not our dictionaries
        write_page_checksum=True,
    ) as writer:
        for level in LEVELS:
            of_level = in_order.filter(pc.equal(in_order["level"], level))
            if of_level.num_rows:
                writer.write_table(with_own_texts(of_level), row_group_size=of_level.num_rows)
        writer.add_key_value_metadata(MINUTES_SCHEMA.metadata)
    return out.getvalue()


def _put_seconds(into: Path, name: str, seconds: pa.Table) -> UsageFile:
    out = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4", unify_dictionaries=True)
    rows = with_own_texts(seconds.unify_dictionaries().combine_chunks())
    with pa.ipc.new_file(out, rows.schema, options=options) as writer:
        writer.write_table(rows)
    _put(into, name, out.getvalue())
    second = numbers_in(rows["second"])
    return UsageFile(name, int(second.min()), int(second.max()), rows.num_rows)


def _put(into: Path, name: str, content: pa.Buffer) -> None:
    folder = into / USAGE_FOLDER
    folder.mkdir(exist_ok=True)
    write_whole(folder / name, memoryview(content))


def _damaged(path: Path, error: Exception) -> CorruptDataError:
    return CorruptDataError(f"{path} cannot be read ({error})")


# ---------------------------------------------------------------- rows


def _newest(rows: pa.Table) -> dict[str, int]:
    found = rows.select(["gateway", "ts_us"]).group_by("gateway").aggregate([("ts_us", "max")])
    return dict(zip(found["gateway"].to_pylist(), found["ts_us_max"].to_pylist(), strict=True))


def _largest(every: Iterable[Mapping[str, int]]) -> dict[str, int]:
    largest: dict[str, int] = {}
    for newest in every:
        for gateway, newest_us in newest.items():
            largest[gateway] = max(largest.get(gateway, newest_us), newest_us)
    return largest


def _before(rows: pa.Table, end_s: int | None) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    second = numbers_in(rows["second"])
    return np.zeros(len(second), np.bool_) if end_s is None else second < end_s


def _decisions(lines: pa.Table, is_in: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
    """Count the decisions of lines, each of which is in a line of every level."""
    inside = lines.filter(truths(is_in))
    of_one = inside.filter(pc.equal(inside["level"], next(iter(LEVELS))))
    return int(numbers_in(of_one["decisions"]).sum())


def _rows(usage: Usage) -> int:
    return sum(file.rows for file in usage.seconds)
