"""Gives every command over the record its options, its files and a Spark session."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kvota.app.cli.progress import working
from kvota.model.errors import KvotaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def add_event_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that all commands over the record have."""
    parser.add_argument(
        "--events",
        type=Path,
        nargs="+",
        required=True,
        metavar="DIR",
        help="folders (or files) the gateway recorded into",
    )
    parser.add_argument("--master", default="local[*]", help="where Spark runs (default: local[*])")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument("--raw", action="store_true", help="exact numbers instead of rounded ones")


@contextmanager
def events_on_spark(args: argparse.Namespace, doing: str) -> Iterator["DataFrame"]:
    """Yield the events table of ``--events``; a Spark that this started ends with the block.

    Files are looked at before Spark starts, so that a wrong path is reported at once. Jobs have to
    run inside the block; print after it.
    """
    from kvota.pipeline.events import find_events

    files = find_events(args.events)
    for bad in files.bad:
        print(f"kvota: {bad}", file=sys.stderr)
    if files.bad:
        print(f"kvota: {len(files.bad)} bad files, {len(files.good)} good ones", file=sys.stderr)
    with working("starting Spark"):
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        from kvota.pipeline.events import read_files
        from kvota.pipeline.spark_session import SHORT_ROWS_MAX, end_session, session

        is_ours = SparkSession.getActiveSession() is None
        spark = session(args.master, short=files.rows <= SHORT_ROWS_MAX)

    title = f"{doing} {files.rows:,} decisions in {len(files.good)} files"
    try:
        with working(title, how_far=lambda: tasks_done(spark)):
            yield read_files(spark, files.good)
    except (PySparkException, Py4JError) as error:
        # Its text is asked of the JVM, which is about to end.
        reason = str(error).strip().splitlines()
        msg = f"Spark failed: {reason[0] if reason else type(error).__name__}. --verbose shows all"
        raise KvotaError(msg) from error
    finally:
        if is_ours:
            end_session(spark)


def tasks_done(spark: "SparkSession") -> str:
    """Return how many tasks of the running stages are done, e.g. ``(3 of 8 tasks)``."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    running = [stage for stage in stages if stage is not None]
    total = sum(stage.numTasks for stage in running)
    return (
        f"({sum(stage.numCompletedTasks for stage in running)} of {total} tasks)" if total else ""
    )
