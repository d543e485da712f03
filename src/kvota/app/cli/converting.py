"""Options of commands that make a record out of something else first, and what all of them say of it."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kvota.app.cli.places import a_path
from kvota.app.cli.plan_values import percent
from kvota.model.errors import KvotaError, UnreachableError, UsageError
from kvota.model.plain_text import on_one_line, shortened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kvota.pipeline.sources.log_range import BadLine
    from kvota.record.found_events import FoundEvents

CONVERTING_OPTIONS = ("keep_events",)
# Of what Spark reads; a record is read by Spark, too.
BAD_OPTIONS = ("max_bad", "bad_file")
_MAX_BAD = 0.01
# So many bad lines are shown; the others are counted.
_BAD_SHOWN = 3
_SAMPLE_CHARS = 80


class OtherRecord(Protocol):
    """Something else that becomes a record."""

    @property
    def rows(self) -> int | None:
        """Return about how many rows it becomes; None: nobody knows yet."""

    def converted(self, spark: "SparkSession") -> "FoundEvents":
        """Return it as a record."""


def add_converting_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of what cannot be read, and of request logs and tables."""
    group = parser.add_argument_group("what cannot be read; request log or table")
    group.add_argument(
        "--max-bad",
        type=percent,
        metavar="PERCENT",
        help="no answer where more lines, rows or, of --events, files than that cannot be read (default: 1%% of lines and "
        "rows; damaged files of a record are named and left out, however many)",
    )
    group.add_argument(
        "--bad-file",
        type=a_path,
        metavar="FILE",
        help="write what cannot be read into this file, each with its place and the reason, as JSON",
    )
    group.add_argument(
        "--keep-events",
        type=a_path,
        metavar="FOLDER",
        help="keep what it becomes in this folder, which is made: --events reads it",
    )


def given_options(args: argparse.Namespace, names: Sequence[str]) -> list[str]:
    """Return those options that somebody has given, as they are typed."""
    return [
        f"--{name.replace('_', '-')}" for name in names if getattr(args, name, None) is not None
    ]


def place_in(args: argparse.Namespace, option: str, its_own: Sequence[str]) -> Any:
    """Return what is said with an option that names another record; None where nothing is.

    Args:
        args: of the command.
        option: e.g. ``--table``.
        its_own: options that belong to it, as attributes of ``args``.

    Raises:
        UsageError: some of these are there without it.
    """
    place = getattr(args, option.removeprefix("--").replace("-", "_"), None)
    given = given_options(args, its_own)
    if given and place is None:
        msg = f"{', '.join(given)}: only with {option}"
        raise UsageError(msg)
    return place


@contextmanager
def events_folder(args: argparse.Namespace, option: str, needed: str) -> Iterator[Path]:
    """Give a folder for the events; it goes at the end, but for ``--keep-events``.

    Args:
        args: of the command.
        option: that names what becomes events.
        needed: what else workers on other machines need.

    Raises:
        UsageError: the folder cannot be made, or workers elsewhere cannot see it.
    """
    if args.keep_events is not None:
        yield _new_folder(args.keep_events)
        print(
            f"kvota: its events are kept in {args.keep_events}: --events {args.keep_events}",
            file=sys.stderr,
        )
        return
    if not args.master.startswith("local"):
        msg = (
            f"{option} with --master {args.master}: name a folder that all workers share with --keep-events, and "
            f"{needed} that they all can read"
        )
        raise UsageError(msg)
    from kvota.files.run_folder import RunFolder

    with RunFolder("events-") as folder:
        yield folder.path


def say(lines: Iterator[str]) -> None:
    """Print lines on stderr."""
    for line in lines:
        print(f"kvota: {line}", file=sys.stderr)


def bad_texts(bad: Sequence["BadLine"], count: int, unit: str = "byte") -> Iterator[str]:
    """Say what could not be read: the first ones, and how many there are.

    Args:
        bad: the first ones.
        count: of all.
        unit: of their offsets.
    """
    for one in bad[:_BAD_SHOWN]:
        sample = on_one_line(shortened(one.sample, _SAMPLE_CHARS))
        where = f"{on_one_line(one.path)}, {unit} {one.offset:,}"
        yield f"  {where}: {on_one_line(one.reason)}{sample and f': {sample}'}"
    if count > _BAD_SHOWN:
        yield f"  and {count - _BAD_SHOWN:,} more: --bad-file FILE keeps them"


def keep_and_judge_bad(
    args: argparse.Namespace,
    bad: Sequence["BadLine"],
    counts: tuple[int, int],
    what: str,
    hint: str,
) -> None:
    """Write what could not be read into ``--bad-file``, and refuse to go on where it is too much.

    Args:
        args: of the command.
        bad: the first ones.
        counts: of all bad ones, and of everything that was read.
        what: was read, e.g. ``lines of the request log``.
        hint: what may be wrong.

    Raises:
        KvotaError: it is more than ``--max-bad``.
        UnreachableError: the file cannot be written.
    """
    if args.bad_file is not None:
        source = "events" if args.events else "request log" if args.request_log else "table"
        _write_bad(args.bad_file, bad, source)
    most = _MAX_BAD if args.max_bad is None else args.max_bad
    bad_count, read = counts
    share = bad_count / max(1, read)
    if share > most:
        msg = (
            f"{bad_count:,} of {read:,} {what} cannot be read ({share:.1%}), more than --max-bad {most:.1%}. "
            f"{hint} --bad-file FILE shows them"
        )
        raise KvotaError(msg)


def keep_and_judge_bad_files(args: argparse.Namespace, found: "FoundEvents") -> None:
    """Do the same with the damaged files of a record, where one of the options asks for it.

    Raises:
        KvotaError: they are more than ``--max-bad``.
        UnreachableError: ``--bad-file`` cannot be written.
    """
    from kvota.pipeline.sources.log_range import BadLine

    bad = [BadLine(str(one.file), 0, one.reason, "") for one in found.bad]
    if args.max_bad is None:
        if args.bad_file is not None:
            _write_bad(args.bad_file, bad, "events")
        return
    counts = (len(bad), len(bad) + len(found.files))
    hint = "Were they copied whole?"
    keep_and_judge_bad(args, bad, counts, "files of the record", hint)


def _write_bad(path: Path, bad: Sequence["BadLine"], source: str) -> None:
    from kvota.files.whole_file import write_whole

    lines = [json.dumps({"source": source, **asdict(one)}) + "\n" for one in bad]
    try:
        write_whole(path, "".join(lines).encode())
    except OSError as error:
        msg = f"--bad-file {path} cannot be written: {error.strerror}"
        raise UnreachableError(msg) from error


def _new_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_empty = not any(folder.iterdir())
    except OSError as error:
        msg = f"--keep-events {folder}: {error.strerror}. Name a folder that can be made"
        raise UsageError(msg) from error
    if not is_empty:
        msg = (
            f"--keep-events {folder}: there is something in it. Name a folder that is not there yet"
        )
        raise UsageError(msg)
    return folder
