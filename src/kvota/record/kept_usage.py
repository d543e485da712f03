"""Usage that ``kvota ingest`` keeps beside a record is read: minutes that are closed, and those that are open."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from kvota.files.command_name import called
from kvota.model.errors import CorruptDataError, UsageError
from kvota.record.ingested import read_progress
from kvota.record.period import ALWAYS, Period
from kvota.record.places import USAGE_FOLDER, local_path
from kvota.record.usage_state import MINUTE_S, Usage, UsageFile
from kvota.record.usage_store import lines_in, read_minutes, read_seconds
from kvota.record.usage_sums import (
    LEVELS,
    MINUTES_SCHEMA,
    joined,
    minute_of,
    minutes_of,
    numbers_in,
    truths,
)

# A batch that is taken meanwhile removes files: so often it is looked anew which ones hold.
_LOOKS_MAX = 20

# So many lines are read at once: an hour of 100,000 tenants.
LINES_MAX = 6_000_000

_SECOND_US = 1_000_000

_Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class KeptUsage:
    """What is kept of a period.

    Attributes:
        lines: a line for each minute and tenant (``usage_sums.MINUTES_SCHEMA``).
        latest_us: the newest decision of all that is kept; None: there is none yet.
        uncounted: so many decisions had been in the record before usage was kept, or were too old when they came.
    """

    lines: pa.Table
    latest_us: int | None
    uncounted: int


def usage_minutes(record: Path | str, by: str = "user", *, period: Period = ALWAYS) -> pa.Table:
    """Return what each tenant used in each minute, as ``kvota ingest`` has kept it up to its last batch.

    In:  the folder of a record that ``kvota ingest`` takes decisions into; by ``user``, ``client`` or
         ``user-client``; whole minutes, those in which the period begins and ends among them.
    Out: window_start timestamp (beginning of the minute), level, quota_type, user, client_id string (null: not part
         of the level), node_id int, enforced boolean (the key), events, decisions long, value_sum, rate_max double
         (busiest second), throttled, rejected, throttle_ms_sum long, limit_last double, limit_binds boolean, last_us
         long (its newest decision), parts long (above 1: some decisions came late, and ``rate_max`` may not be exact).

    Charges count as they do in ``usage``; a decision is of the minute that its own time says.

    Raises:
        UsageError: it is no such folder, or more than ``LINES_MAX`` lines.
        CorruptDataError: a file is damaged.
    """
    return kept_usage(record, by, period=period).lines


def kept_usage(
    record: Path | str,
    by: str,
    *,
    period: Period = ALWAYS,
    last_s: int | None = None,
    lines_max: int = LINES_MAX,
) -> KeptUsage:
    """Do what ``usage_minutes`` does; with ``last_s`` for so many seconds up to the newest decision.

    Raises:
        UsageError: it is no such folder, or more than ``lines_max`` lines.
        CorruptDataError: a file is damaged.
    """
    if by not in LEVELS:
        msg = f'"{by}": usage is kept by {", ".join(LEVELS)}'
        raise UsageError(msg)
    into = local_path(record)
    if into is None or not (into / USAGE_FOLDER).is_dir():
        msg = (
            f'"{record}" has no usage by the minute: {called()} ingest keeps it in the folder that it takes decisions into. '
            "Without --minutes usage is counted from the decisions of any record"
        )
        raise UsageError(msg)
    for _ in range(_LOOKS_MAX):
        usage = read_progress(into).usage
        try:
            lines = _lines(into, by, usage, _within(usage, period, last_s), lines_max)
        except FileNotFoundError:
            continue
        except CorruptDataError as error:
            msg = (
                f"{error}. Remove the folder {into / USAGE_FOLDER}: {called()} ingest then begins usage anew, when it is started "
                f"or next closes a minute. The decisions of the record are all there: {called()} usage counts them without "
                "--minutes"
            )
            raise CorruptDataError(msg) from error
        return KeptUsage(lines, usage.latest_us, usage.uncounted)
    msg = f"files of {into / USAGE_FOLDER} are gone. {called()} ingest begins usage anew, when it is started or next closes a minute"
    raise CorruptDataError(msg)


def _within(usage: Usage, period: Period, last_s: int | None) -> tuple[int, int]:
    """Return the first and the last minute that are asked for, as the seconds with which they begin."""
    if last_s is not None:
        latest = (usage.latest_us or 0) // _SECOND_US // MINUTE_S
        return (latest - max(0, -(-last_s // MINUTE_S) - 1)) * MINUTE_S, latest * MINUTE_S
    since_s, last = (us // _SECOND_US for us in (period.since_us, period.until_us - 1))
    return since_s // MINUTE_S * MINUTE_S, last // MINUTE_S * MINUTE_S


def _lines(into: Path, by: str, usage: Usage, within: tuple[int, int], lines_max: int) -> pa.Table:
    first, last = within

    def meets(file: UsageFile) -> bool:
        return file.last_s >= first and file.first_s < last + MINUTE_S

    minutes = [file for file in usage.minutes if meets(file)]
    _check_few(into, by, minutes, lines_max)
    # Of each file only what is asked for is kept in memory: it may be of an hour.
    parts = [_those_in(read_minutes(into, file, [by]), minute_of, within) for file in minutes]
    seconds = [
        _those_in(read_seconds(into, file), _second_of, (first, last + MINUTE_S - 1))
        for file in usage.seconds
        if meets(file)
    ]
    if seconds:
        parts.append(minutes_of(pa.concat_tables(seconds), [by]))
    return joined(pa.concat_tables(parts)) if parts else MINUTES_SCHEMA.empty_table()


def _check_few(into: Path, by: str, files: Sequence[UsageFile], lines_max: int) -> None:
    """See that lines are few enough. Sums of open seconds are: ``kvota ingest`` keeps no more of them.

    Raises:
        UsageError: they are more.
    """
    if sum(file.rows for file in files) <= lines_max:  # of all levels, as is known without a look
        return
    count = sum(lines_in(into, file, by) for file in files)
    if count <= lines_max:
        return
    coarser = ", or by user or by client alone" if by == "user-client" else ""
    msg = (
        f"{count:,} lines of minutes are in the files of that time, and at most {lines_max:,} are read at once. Ask for less time (--last, "
        f"--since and --until; in Python: period){coarser}; {called()} usage without --minutes counts any time"
    )
    raise UsageError(msg)


def _those_in(
    rows: pa.Table, time_s: Callable[[pa.Table], _Array], within: tuple[int, int]
) -> pa.Table:
    of_row = time_s(rows)
    is_in = (of_row >= within[0]) & (of_row <= within[1])
    return rows if is_in.all() else rows.filter(truths(is_in))


def _second_of(seconds: pa.Table) -> _Array:
    return numbers_in(seconds["second"])
