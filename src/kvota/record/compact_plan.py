"""Says which files of a record are merged with each other: those of an hour that is over. Pure."""

from collections.abc import Iterable, Sequence

from kvota.record.event_file import EventFile
from kvota.record.period import is_a_time

HOUR_US = 3_600_000_000

# A gateway may write the last rows of an hour so long after it; what comes still later is merged next time.
_GRACE_US = 300_000_000

# More rows are not merged into one file: a merge holds them all, about 300 bytes each.
ROWS_MAX = 2_000_000

# A file that somebody else wrote may have more by itself; up to so many it is put in order all the same.
FILE_ROWS_MAX = 4 * ROWS_MAX

Group = tuple[EventFile, ...]


def hour_us(file: EventFile) -> int | None:
    """Return when the hour began in which the file's first decision was made; None if it has no such hour."""
    if not file.rows or not is_a_time(file.first_us):
        return None
    return file.first_us // HOUR_US * HOUR_US


def is_over(hour_us: int, now_us: int) -> bool:
    """Return whether no gateway will write rows of this hour any more."""
    return hour_us + HOUR_US + _GRACE_US <= now_us


def groups_to_merge(
    files: Iterable[EventFile], *, now_us: int, every_hour: bool = False
) -> list[Group]:
    """Return groups of files, each to be merged into one; a second time there are none.

    Args:
        files: of one folder.
        now_us: Unix microseconds.
        every_hour: those of hours that are not over, too.
    """
    of_hours: dict[int, list[EventFile]] = {}
    for file in files:
        hour = hour_us(file)
        is_fit = file.is_plain and file.rows <= FILE_ROWS_MAX
        if is_fit and hour is not None and (every_hour or is_over(hour, now_us)):
            of_hours.setdefault(hour, []).append(file)
    groups = [group for hour in sorted(of_hours) for group in _cut(of_hours[hour])]
    return [group for group in groups if len(group) > 1 or not group[0].is_compacted]


def count_waiting(files: Iterable[EventFile], *, now_us: int) -> int:
    """Return how many files will be merged when their hour is over."""
    young = [
        file for file in files if (hour := hour_us(file)) is not None and not is_over(hour, now_us)
    ]
    return sum(len(group) for group in groups_to_merge(young, now_us=now_us, every_hour=True))


def _cut(files: Sequence[EventFile]) -> list[Group]:
    """Cut the files of an hour, in order of time, where they would be too many rows.

    What was merged once stays so: each group and the first file of the next are too many together, so both
    groups are, when each is one file.
    """
    groups: list[list[EventFile]] = []
    rows = 0
    for file in sorted(files, key=lambda file: (file.first_us, file.path.name)):
        if not groups or rows + file.rows > ROWS_MAX:
            groups.append([])
            rows = 0
        groups[-1].append(file)
        rows += file.rows
    return [tuple(group) for group in groups]
