"""Merges the many small files of a record into a few, hour by hour, wherever it is stopped.

The merged file gets its name in one step; in its footer stand the names of the files it was made of. From
then on readers take it in place of these, which are removed after that. A kill in between leaves them
behind: nobody reads them, and the next compaction removes them.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kvota.files.folder_lock import folder_lock
from kvota.files.whole_file import UNFINISHED, remove_if_dead, write_whole
from kvota.model.errors import UnreachableError
from kvota.record.clustered import UnfitError, clustered, read_rows
from kvota.record.compact_plan import FILE_ROWS_MAX, Group, count_waiting, groups_to_merge, hour_us
from kvota.record.event_file import BadInput, EventFile, runs_in_table
from kvota.record.event_files import COMPLETE
from kvota.record.event_parquet import parquet_bytes
from kvota.record.found_events import look_into
from kvota.record.period import ALWAYS, Period


@dataclass(frozen=True, slots=True)
class Merged:
    """One step of a compaction."""

    hour_us: int  # when the hour began, Unix microseconds
    files: int  # so many became one
    rows: int
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did to one folder.

    Attributes:
        steps: what was merged.
        left: files that stay as they are, with the reason.
        waiting: so many files are of hours that are not over.
        removed: so many files that an earlier compaction had merged and left behind.
    """

    steps: tuple[Merged, ...]
    left: tuple[BadInput, ...]
    waiting: int
    removed: int


def compact(  # noqa: PLR0913  (all but one by keyword)
    folder: Path,
    *,
    now_us: int,
    every_hour: bool = False,
    period: Period = ALWAYS,
    on_plan: Callable[[int], None] = lambda _: None,
    on_step: Callable[[Merged], None] = lambda _: None,
    before_waiting: Callable[[], None] | None = None,
) -> Compacted:
    """Merge the files in a folder (not in those below) that are of the same hour.

    A gateway may go on writing into it, and removing old files. Another compaction is waited for.

    Args:
        folder: of a record.
        now_us: Unix microseconds; an hour is over five minutes after its end.
        every_hour: merge those that are not over, too.
        period: only files with decisions in it.
        on_plan: called with how many rows are to be merged, each time that the folder was looked at.
        on_step: called for each merged file, when it is there.
        before_waiting: called when another compaction is at work.

    Raises:
        UnreachableError: the folder cannot be read or written; all rows are still there, once.
    """
    here = folder.resolve()
    steps: list[Merged] = []
    unfit: dict[Path, BadInput] = {}
    removed = 0
    try:
        with folder_lock(here, before_waiting=before_waiting):
            _remove_unfinished(here)
            while True:
                found = look_into([here])
                removed += _remove(file for file in found.superseded if file.path.parent == here)
                files = [
                    file
                    for file in found.files
                    if file.path.parent == here
                    and file.path not in unfit
                    and file.is_within(period)
                ]
                groups = groups_to_merge(files, now_us=now_us, every_hour=every_hour)
                on_plan(sum(file.rows for group in groups for file in group))
                if not _merge_all(here, groups, steps, unfit, on_step):
                    break
    except OSError as error:
        msg = (
            f"{error.filename or here}: {error.strerror or error}. Every decision is still in the record, "
            f"once; {len(steps)} files were merged before. Run it again when this is mended"
        )
        raise UnreachableError(msg) from error
    waiting = 0 if every_hour else count_waiting(files, now_us=now_us)
    bad = [item for item in found.bad if Path(item.file).parent == here]
    odd = [BadInput(file.path, reason) for file in files if (reason := _oddity(file))]
    return Compacted(tuple(steps), (*bad, *unfit.values(), *odd), waiting, removed)


def _merge_all(
    folder: Path,
    groups: Iterable[Group],
    steps: list[Merged],
    unfit: dict[Path, BadInput],
    on_step: Callable[[Merged], None],
) -> bool:
    """Merge each group; return whether there is something to look at again."""
    again = False
    for group in groups:
        try:
            merged = _merge(folder, group)
        except FileNotFoundError:  # an old one, removed by its gateway
            again = True
            continue
        except _UnfitFileError as error:
            unfit[error.file] = error.bad
            again = True
            continue
        steps.append(merged)
        on_step(merged)
    return again


class _UnfitFileError(Exception):
    def __init__(self, file: Path, reason: str) -> None:
        super().__init__(reason)
        self.file = file
        self.bad = BadInput(file, reason)


def _merge(folder: Path, group: Group) -> Merged:
    tables = []
    for file in group:
        try:
            tables.append(read_rows(file.path))
        except UnfitError as error:
            raise _UnfitFileError(file.path, str(error)) from error
        if not file.is_unchanged():
            raise FileNotFoundError(file.path)
    sources = frozenset[str]().union(*({file.path.name, *file.sources} for file in group))
    rows = clustered(tables)
    tables.clear()
    content = parquet_bytes(rows, runs_in_table(rows), sources=sources)
    began_us = hour_us(group[0]) or 0
    # Limits of age count from when a file was written, so the rows' age stays theirs.
    modified_ns = max(file.modified_ns for file in group)
    write_whole(folder / _name(began_us, sources), memoryview(content), modified_ns=modified_ns)
    _remove(group)
    return Merged(
        began_us,
        len(group),
        sum(file.rows for file in group),
        sum(file.size_bytes for file in group),
        content.size,
    )


def _name(began_us: int, sources: Collection[str]) -> str:
    hour = datetime.fromtimestamp(began_us / 1e6, UTC)
    digest = hashlib.blake2b("\0".join(sorted(sources)).encode(), digest_size=7).digest()
    return f"events-hour-{hour:%Y%m%d%H%M}-{int.from_bytes(digest)}.parquet"


def _remove(files: Iterable[EventFile]) -> int:
    count = 0
    for file in files:
        with suppress(FileNotFoundError):
            file.path.unlink()
            count += 1
    return count


def _remove_unfinished(folder: Path) -> None:
    """Remove what killed processes left; a file that a living one is writing is locked, and stays."""
    for path in folder.glob(f"*{UNFINISHED}"):
        if COMPLETE.fullmatch(path.name.removesuffix(UNFINISHED)):
            remove_if_dead(path)


def _oddity(file: EventFile) -> str:
    if not file.is_plain:
        return "its columns are not those of the events table"
    if file.rows > FILE_ROWS_MAX:
        return f"it has {file.rows:,} decisions, and more than {FILE_ROWS_MAX:,} of one file are not held at once"
    return "its decisions have no time between 1970 and 9999" if hour_us(file) is None else ""
