"""Gives every command over a record the options that say which files, and which part of them."""

import argparse
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kvota.model.errors import UsageError

if TYPE_CHECKING:
    from kvota.record.found_events import FoundEvents
    from kvota.record.period import Period


def add_place_option(parser: argparse._ActionsContainer, *, required: bool = True) -> None:
    """Add ``--events``."""
    parser.add_argument(
        "--events",
        nargs="+",
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
    first_us = min(run.first_us for run in found.runs)
    last_us = max(run.last_us for run in found.runs)
    return (
        "the record has no decision of that time (--since, --until); it goes from "
        f"{_moment_text(first_us)} to {_moment_text(last_us)} UTC"
    )


def moment_on_screen(time_us: int) -> str:
    """Return a time (Unix microseconds) for people, UTC; one that no calendar has as it is."""
    try:
        return f"{datetime.fromtimestamp(time_us / 1e6, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return f"{time_us} us"


def _moment_text(ts_us: int) -> str:
    return f"{datetime.fromtimestamp(ts_us / 1e6, UTC):%Y-%m-%dT%H:%M:%S}"


def say_bad(found: "FoundEvents") -> None:
    """Print what is wrong with a record, on stderr."""
    for bad in found.bad:
        print(f"kvota: {bad}", file=sys.stderr)
    if found.bad:
        print(f"kvota: {len(found.bad)} bad files, {len(found.good)} good ones", file=sys.stderr)
    repeated = sum(max(0, -run.missing) for run in found.runs)
    if repeated:
        print(f"kvota: {repeated:,} rows are there more than once", file=sys.stderr)


def _moment_us(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        msg = f'"{text}" is not a time; write e.g. 2026-11-21 or 2026-11-21T14:30'
        raise argparse.ArgumentTypeError(msg) from error
    in_utc = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return round(in_utc.timestamp() * 1_000_000)
