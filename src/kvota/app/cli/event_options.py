"""Gives every command over a record the options that say which files, and which part of them."""

import argparse
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kvota.app.cli.places import a_place
from kvota.model.errors import UsageError
from kvota.model.plain_text import name_on_screen, some
from kvota.model.units import format_duration_ms, format_moment

# So many rows are looked at for the names of users.
_ROWS_LOOKED_AT = 1000

# So many files that lack columns are named.
_LACKING_NAMED = 5

if TYPE_CHECKING:
    from kvota.record.found_events import FoundEvents
    from kvota.record.period import Period


def add_place_option(parser: argparse._ActionsContainer, *, required: bool = True) -> None:
    """Add ``--events``."""
    parser.add_argument(
        "--events",
        nargs="+",
        type=a_place,
        required=required,
        metavar="DIR",
        help="folders (or files) the gateway recorded into; or URIs (s3a://bucket/record), which Spark reads",
    )


def add_period_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--since`` and ``--until``."""
    parser.add_argument(
        "--since",
        type=_moment_us,
        metavar="TIME",
        help="only decisions from then on, e.g. 2026-11-21 or 2026-11-21T14:30 (UTC, or with an offset)",
    )
    parser.add_argument(
        "--until", type=_moment_us, metavar="TIME", help="only decisions before that time"
    )


def period(args: argparse.Namespace) -> "Period":
    """Return the part of the record that ``--since`` and ``--until`` name.

    Raises:
        UsageError: it ends before it begins.
    """
    from kvota.record.period import ALWAYS, Period

    since = ALWAYS.since_us if args.since is None else args.since
    until = ALWAYS.until_us if args.until is None else args.until
    if since >= until:
        msg = (
            f"--since {_moment_text(since)} is not before --until {_moment_text(until)} (UTC), so no decision is "
            "between them"
        )
        raise UsageError(msg)
    return Period(since, until)


def other_times(found: "FoundEvents") -> str:
    """Say that a record has nothing of the time that is asked for, and what it has."""
    if not found.runs:
        return "the record has no decision yet"
    first_us = min(run.first_us for run in found.runs)
    last_us = max(run.last_us for run in found.runs)
    return (
        "the record has no decision of that time (--since, --until); it goes from "
        f"{_moment_text(first_us)} to {_moment_text(last_us)} UTC"
    )


def _moment_text(time_us: int) -> str:
    return format_moment(time_us, between="T")


def say_bad(found: "FoundEvents") -> None:
    """Print what is wrong with a record, on stderr."""
    for bad in found.bad:
        print(f"kvota: {bad}", file=sys.stderr)
    if found.bad:
        print(f"kvota: {len(found.bad)} bad files, {len(found.good)} good ones", file=sys.stderr)
    lacking = [file for file in found.files if file.lacking]
    for file in lacking[:_LACKING_NAMED]:
        print(
            f"kvota: {file.place}: it has no column {', '.join(file.lacking)}; its decisions are read as without",
            file=sys.stderr,
        )
    if len(lacking) > _LACKING_NAMED:
        print(f"kvota: {len(lacking):,} files lack columns", file=sys.stderr)
    repeated = sum(max(0, -run.missing) for run in found.runs)
    if repeated:
        print(f"kvota: {repeated:,} rows are there more than once", file=sys.stderr)


def say_found(found: "FoundEvents") -> None:
    """Say on stderr what is in a record, before the work."""
    runs = found.runs
    if not runs:
        return
    first_us, last_us = min(run.first_us for run in runs), max(run.last_us for run in runs)
    print(
        f"kvota: record: {len(found.files)} files of {len({run.gateway for run in runs})} gateways and {len(runs)} runs, "
        f"{found.rows:,} decisions, {format_moment(first_us)} to {format_moment(last_us)} UTC "
        f"({format_duration_ms((last_us - first_us) // 1000)}), times to the microsecond",
        file=sys.stderr,
    )
    users = _first_users(found)
    if users:
        shown = some([name_on_screen(user) for user in users])
        print(f"kvota:   users at its begin: {shown}", file=sys.stderr)


def say_read(found: "FoundEvents", wanted: "Period") -> None:
    """Say on stderr how much was read, after the work."""
    inside = found.within(wanted)
    bad = f"; {len(found.bad)} could not be read" if found.bad else ""
    print(
        f"kvota: read {inside.rows:,} decisions in {len(inside.files)} of {len(found.files)} files{bad}",
        file=sys.stderr,
    )


def _first_users(found: "FoundEvents") -> list[str]:
    """Return the users of the first rows on this machine."""
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    from kvota.record.valid_texts import refuse_invalid_texts

    first = next((file.path for file in found.files if not file.uri), None)
    if first is None:
        return []
    try:
        with pq.ParquetFile(first) as file:
            if "user" not in file.schema_arrow.names:
                return []
            rows = next(file.iter_batches(_ROWS_LOOKED_AT, columns=["user"]), None)
        if rows is not None:
            refuse_invalid_texts(rows)
    except (OSError, ArrowException):  # told when all of it is read
        return []
    return [] if rows is None else sorted({user or "" for user in rows["user"].to_pylist()})


def _moment_us(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        msg = f'"{text}" is not a time; write e.g. 2026-11-21 or 2026-11-21T14:30'
        raise argparse.ArgumentTypeError(msg) from error
    in_utc = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return round(in_utc.timestamp() * 1_000_000)
