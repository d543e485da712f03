"""Gives every command over the record its options, its files and a Spark session."""

import argparse
import re
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

from kvota.app.cli.any_table import TABLE_OPTIONS, add_table_options, any_table
from kvota.app.cli.converting import (
    CONVERTING_OPTIONS,
    OtherRecord,
    add_converting_options,
    given_options,
    keep_and_judge_bad_files,
)
from kvota.app.cli.event_options import (
    add_period_options,
    add_place_option,
    other_times,
    period,
    say_bad,
    say_found,
    say_read,
)
from kvota.app.cli.progress import HowFar, of_rows, working
from kvota.app.cli.request_log import LOG_OPTIONS, add_log_options, request_log
from kvota.app.cli.spark_failure import is_of_changed_record, reason_in
from kvota.app.text_table import hidden
from kvota.model.errors import KvotaError, NegativeError, UsageError
from kvota.pipeline.kernel_parts import OF_LOGS, PARTS
from kvota.pipeline.py4j_words import py4j_says_nothing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import Row as SparkRow

    from kvota.pipeline.chunk_schema import By
    from kvota.pipeline.chunks import Chunks
    from kvota.record.found_events import FoundEvents
    from kvota.record.period import Period

# So many lines are shown where nobody says how many.
TOP = 20

# A record of a running gateway loses its oldest files: so often a job is begun anew for that, from the second time on
# without those that may be next.
_TRIES = 5

_Answer = TypeVar("_Answer")


_MASTER = "local[*]"


def add_event_options(
    parser: argparse.ArgumentParser, *, shows: bool = True
) -> argparse._ActionsContainer:
    """Add the options that all commands over the record have; return the group that says where it is.

    ``shows``: the command prints a table, and has the options of one.
    """
    place = parser.add_mutually_exclusive_group(required=True)
    add_place_option(place, required=False)
    add_log_options(parser, place)
    add_table_options(parser, place)
    add_converting_options(parser)
    add_period_options(parser)
    add_spark_options(parser)
    if shows:
        parser.add_argument("--output", choices=("table", "json"), default="table")
        parser.add_argument(
            "--raw", action="store_true", help="exact numbers instead of rounded ones"
        )
    return place


def add_spark_options(parser: argparse.ArgumentParser, *, connects: bool = True) -> None:
    """Add ``--master``, ``--memory`` and ``--conf``; ``connects``: it may be a server of Spark Connect."""
    server = "sc://HOST:15002 (Spark Connect), " if connects else ""
    parser.add_argument(
        "--master",
        default=_MASTER,
        help=f"where Spark runs: local[2], spark://HOST:7077, {server}… (default: local[*])",
    )
    parser.add_argument(
        "--memory",
        type=_memory,
        metavar="SIZE",
        help="of Spark's driver, e.g. 2g (default: Spark's own, 1g)",
    )
    parser.add_argument(
        "--conf",
        type=_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of Spark, e.g. spark.executor.memory=2g; may be repeated",
    )


def given_spark_options(args: argparse.Namespace) -> list[str]:
    """Return those of ``add_spark_options`` that somebody has given, as they are typed."""
    of_spark = (
        ("--master", args.master != _MASTER),
        ("--memory", args.memory is not None),
        ("--conf", bool(args.conf)),
    )
    return [option for option, is_there in of_spark if is_there]


def add_save_option(parser: argparse.ArgumentParser, table: str) -> None:
    """Add ``--save``."""
    parser.add_argument(
        "--save",
        metavar="PLACE",
        help=f"keep {table}, all of it: in a folder as Parquet, delta:FOLDER or iceberg:CATALOG.DATABASE.TABLE",
    )


def check_save(args: argparse.Namespace) -> None:
    """Refuse a place of ``--save`` to which nothing can be saved, before the work.

    Raises:
        UsageError: it is none, or cannot be written to.
        UnreachableError: there is no room.
    """
    if args.save is not None:
        from kvota.pipeline.connect_session import CONNECT
        from kvota.pipeline.saved_tables import check_place

        _refuse_within_record(args)
        check_place(args.save, here=not args.master.startswith(CONNECT))


def _refuse_within_record(args: argparse.Namespace) -> None:
    """Refuse to save a table among the files of the record, of which it would be taken for a part."""
    from kvota.record.places import local_path

    where = local_path(args.save)
    for place in getattr(args, "events", None) or ():
        folder = local_path(place)
        if where is None or folder is None or not folder.is_dir():
            continue
        if folder.resolve() in where.absolute().resolve().parents:
            msg = f"--save {args.save}: it is in {place}, where all Parquet files are taken for the record's. Name a folder beside it"
            raise UsageError(msg)


def save(table: "DataFrame", name: str, args: argparse.Namespace) -> None:
    """Save a table where ``--save`` says; once, also where the record changes behind it and is read again."""
    if args.save is not None and not getattr(args, "is_saved", False):
        from kvota.pipeline.saved_tables import save_table

        save_table(table, name, args.save)
        args.is_saved = True
        print(f"kvota: the table {name} is in {args.save}", file=sys.stderr)


def add_top_option(parser: argparse.ArgumentParser, shown: str) -> None:
    """Add ``--top``."""
    parser.add_argument(
        "--top",
        type=_above_zero,
        default=TOP,
        metavar="N",
        help=f"how many {shown} to show (default: {TOP})",
    )


@dataclass(frozen=True, slots=True)
class Record:
    """The record that a command works on."""

    spark: "SparkSession"
    found: "FoundEvents"
    period: "Period"

    def chunks(
        self,
        by: "By" = "counter",
        *,
        further: Iterable[str] = (),
        quota_types: Iterable[str] | None = None,
        modes_apart: bool = False,
        gateways_apart: bool = False,
    ) -> "Chunks":
        """Return its charges, packed."""
        from kvota.pipeline.chunks import chunks_of_files

        return chunks_of_files(
            self.spark,
            self.found,
            by,
            further=further,
            quota_types=quota_types,
            period=self.period,
            modes_apart=modes_apart,
            gateways_apart=gateways_apart,
        )

    def table(self) -> "DataFrame":
        """Return the events table itself."""
        from kvota.pipeline.events import read_files

        events = read_files(self.spark, self.found.good)
        inside = events["ts_us"].between(self.period.since_us, self.period.until_us - 1)
        return events.where(inside)


def on_record(
    args: argparse.Namespace,
    doing: str,
    work: Callable[[Record], _Answer],
    kernels: Collection[str] = tuple(PARTS),
) -> _Answer:
    """Do some work on the record of ``--events``, or what a log or a table becomes.

    Files of this machine are looked at before Spark starts, so that a wrong path is reported at once. A Spark
    that this started ends with it.

    Args:
        args: of the command.
        doing: what is done, for the screen.
        work: does it.
        kernels: that the work needs, by parts; what turns a log into a record comes to them.

    Raises:
        UsageError: there is no such record, or it holds rows twice.
        NegativeError: it has no decision of that time.
        KvotaError: Spark failed.
    """
    if find_spec("pyspark") is None:  # said before files are looked at, which needs less
        raise ModuleNotFoundError(name="pyspark")
    wanted = period(args)
    with _other_record(args) as other:
        found = None
        if other is None:
            found = _found_here(args, wanted)
        rows = other.rows if other is not None else None if found is None else found.rows
        log = (OF_LOGS,) if args.request_log else ()
        with _started(args, rows, (*kernels, *log)) as (spark, is_ours):
            job = _Job(spark, args, wanted, doing, is_ours)
            if other is not None:
                found = _converted(job, other)
            return _worked(job, found, work)


@contextmanager
def spark_beside(args: argparse.Namespace) -> Iterator["SparkSession"]:
    """Start a Spark for what is not read from decisions, such as a table to be saved.

    Raises:
        KvotaError: Spark failed.
    """
    if find_spec("pyspark") is None:
        raise ModuleNotFoundError(name="pyspark")
    with _started(args, 0, ()) as (spark, _), spark_errors(spark):
        yield spark


@contextmanager
def _started(
    args: argparse.Namespace, rows: int | None, kernels: Collection[str]
) -> Iterator[tuple["SparkSession", bool]]:
    """Start Spark, or take the one that runs, and say whether it was started here: then it ends with the block.

    ``rows``: so many will be read; None: nobody knows. ``kernels``: that are compiled meanwhile.
    """
    with py4j_says_nothing():  # also while Spark starts
        with working("starting Spark"):
            from pyspark.sql import SparkSession

            from kvota.pipeline.spark_session import SHORT_ROWS_MAX, end_session, session

            is_ours = SparkSession.getActiveSession() is None
            is_short = rows is not None and rows <= SHORT_ROWS_MAX
            spark = session(
                args.master,
                memory=args.memory,
                short=is_short,
                settings=dict(args.conf),
                kernels=kernels,
            )
        try:
            yield spark, is_ours
        finally:
            if is_ours:
                end_session(spark)


@contextmanager
def _other_record(args: argparse.Namespace) -> Iterator[OtherRecord | None]:
    """Look at what becomes a record first; None where it is one.

    Raises:
        UsageError: there are options of one, and there is none.
    """
    given = given_options(args, (*LOG_OPTIONS, *TABLE_OPTIONS, *CONVERTING_OPTIONS))
    if given and args.events:
        msg = (
            f"{', '.join(given)}: only with --request-log or --table; --events is a record already"
        )
        raise UsageError(msg)
    with any_table(args) as table, request_log(args) as log:
        yield log or table


@dataclass(frozen=True, slots=True)
class _Job:
    """What is to be done with a record, and in which session; ``is_ours``: it was started for this."""

    spark: "SparkSession"
    args: argparse.Namespace
    wanted: "Period"
    doing: str
    is_ours: bool

    def while_it_works(self) -> AbstractContextManager[None]:
        from kvota.pipeline.spark_session import while_it_works

        return while_it_works() if self.is_ours else nullcontext()


def _worked(job: _Job, found: "FoundEvents | None", work: Callable[[Record], _Answer]) -> _Answer:
    """Do the work; where a file has gone while it was read, as old ones do under a running gateway, anew."""
    from kvota.pipeline.remote_files import find_record

    spark = job.spark
    removed = 0
    before: FoundEvents | None = None
    for number in range(_TRIES):
        now = found or find_record(spark, job.args.events)
        if before is not None:
            removed += before.removed_in(now)
            if number > 1:
                now = _without_next(now, removed * 2 ** (number - 1))
        before = now
        say_bad(now)
        if job.args.events:
            keep_and_judge_bad_files(job.args, now)
            say_found(now)
        title = f"{job.doing} {now.rows:,} decisions in {len(now.files)} files"
        try:
            with (
                working(title, how_far=_Rows(spark, now.within(job.wanted).rows).how_far),
                spark_errors(spark),
                job.while_it_works(),
            ):
                answer = work(Record(spark, now, job.wanted))
            say_read(now, job.wanted)
            return answer
        except _RecordChangedError:
            if number == _TRIES - 1 or not job.args.events:
                raise
        print("kvota: the record changed while it was read; reading it again", file=sys.stderr)
        found = None
    raise AssertionError(_TRIES)


def _without_next(found: "FoundEvents", count: int) -> "FoundEvents":
    """Leave out the files that are about to be removed, and say so."""
    left = found.without_oldest(count)
    if len(left.files) < len(found.files):
        print(
            f"kvota: the oldest files are removed while the record is read: {len(found.files) - len(left.files)} more of "
            f"them, with {found.rows - left.rows:,} decisions, are left out",
            file=sys.stderr,
        )
    return left


def _converted(job: _Job, other: OtherRecord) -> "FoundEvents":
    with spark_errors(job.spark), job.while_it_works():
        found = other.converted(job.spark)
    return _of_period(found, job.wanted)


class _RecordChangedError(KvotaError):
    """A file that was found is gone, or is another one now."""


@contextmanager
def spark_errors(spark: "SparkSession") -> Iterator[None]:
    """Turn what Spark raises into one line."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    work_folder = str(spark.conf.get("spark.local.dir", ""))  # later there may be nobody to ask
    try:
        yield
    except (PySparkException, Py4JError) as error:
        # Its text is asked of the JVM, which is about to end.
        text = str(error).strip() or type(error).__name__
        kind = _RecordChangedError if is_of_changed_record(text) else KvotaError
        msg = f"Spark failed: {reason_in(text, work_folder)}. --verbose shows all"
        raise kind(msg) from RuntimeError(text)


def first_of(
    table: "DataFrame", order: "Callable[[DataFrame], DataFrame]", count: int
) -> "tuple[list[SparkRow], int]":
    """Return the first rows in an order, and how many there are in all; one job, and only these come here."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    seen = Observation()
    counted = table.observe(seen, F.count(F.lit(1)).alias("rows"))
    rows = order(counted).limit(count).collect()
    return rows, int(seen.get["rows"])


def say_hidden(shown: int, found: int, what: str) -> None:
    """Say on stderr that there is more than is shown."""
    note = hidden(shown, found, what)
    if note:
        print(f"kvota: {note}", file=sys.stderr)


def _found_here(args: argparse.Namespace, wanted: "Period") -> "FoundEvents | None":
    """Return the files of a record on this machine; None where some of it is elsewhere."""
    from kvota.record.found_events import find_events
    from kvota.record.places import local_path

    if any(local_path(place) is None for place in args.events):
        return None
    return _of_period(find_events(args.events), wanted)


def _of_period(found: "FoundEvents", wanted: "Period") -> "FoundEvents":
    if not found.within(wanted).files:
        raise NegativeError(other_times(found))
    return found


class _Rows:
    """How far Spark is with the rows of a record: it reads them all, then works them off.

    A command may do several such jobs; after the first one only its tasks are told.
    """

    def __init__(self, spark: "SparkSession", rows: int) -> None:
        from kvota.pipeline.rows_done import folder_of, rows_done

        self._spark = spark
        self._rows = rows
        self._folder = folder_of(spark)
        self._before = rows_done(self._folder) if self._folder else {}
        self._began = time.monotonic()

    def how_far(self) -> HowFar:
        from kvota.pipeline.rows_done import rows_done

        if not self._folder:
            return HowFar(text=_tasks_done(self._spark))
        now = rows_done(self._folder)
        read, worked = (
            min(now[phase] - before, self._rows) for phase, before in self._before.items()
        )
        share = (read + worked) / (2 * self._rows) if self._rows else None
        if share is None or share >= 1:
            return HowFar(text=_tasks_done(self._spark))
        speed = (read + worked) / 2 / (time.monotonic() - self._began)
        return of_rows(share, speed)


def _tasks_done(spark: "SparkSession") -> str:
    """Return how many tasks of the running stages are done, e.g. ``3 of 8 tasks``; over Spark Connect nothing tells."""
    from kvota.pipeline.any_session import is_connect

    if is_connect(spark):
        return ""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    running = [stage for stage in stages if stage is not None]
    total = sum(stage.numTasks for stage in running)
    done = sum(stage.numCompletedTasks for stage in running)
    return f"{done} of {total} tasks" if total else ""


def _setting(text: str) -> tuple[str, str]:
    name, is_there, value = text.partition("=")
    if not is_there or not name.startswith("spark."):
        msg = f'"{text}" is not a setting of Spark, e.g. spark.executor.memory=2g'
        raise argparse.ArgumentTypeError(msg)
    return name, value


def _memory(text: str) -> str:
    if re.fullmatch(r"[1-9][0-9]*[kmgt]", text, re.IGNORECASE) is None:
        msg = f'"{text}" is no size of memory, e.g. 2g or 1500m'
        raise argparse.ArgumentTypeError(msg)
    return text


def _above_zero(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        msg = f'"{text}" is not a whole number above 0'
        raise argparse.ArgumentTypeError(msg)
    return int(text)
