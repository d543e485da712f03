"""``kvota ingest`` takes what gateways record, in folders or a topic, into one record: each decision once."""

import argparse
import math
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from kvota.app.cli.cluster_options import add_cluster_options
from kvota.app.cli.durations import duration_above_0_ms
from kvota.app.cli.exit_codes import DONE
from kvota.app.cli.json_output import print_json
from kvota.app.cli.places import a_path
from kvota.app.cli.progress import working
from kvota.app.cli.spark_events import add_spark_options, spark_errors
from kvota.app.system_clock import SystemClock
from kvota.model import errors
from kvota.model.errors import KvotaError, UsageError
from kvota.model.plain_text import name_on_screen
from kvota.model.units import parse_bytes
from kvota.pipeline.py4j_words import py4j_says_nothing, py4j_threads_say_nothing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kvota.pipeline.ingest.stream import Source, Taken
    from kvota.pipeline.ingest.take_pieces import BadPiece
    from kvota.record.ingested import IngestFolder
    from kvota.record.ledger import Hole, Ledger

EXAMPLE = "{kvota} ingest --events gateway-1/record gateway-2/record --into record"

# Of what is missing or bad so much is named, the rest counted.
_NAMED = 10

# Between two looks for something new.
_EVERY_MS = 10_000

# 30 days.
_USAGE_AGE_MS = 30 * 86_400_000

# Between two looks for files that are too old or too many.
_REMOVE_EVERY_S = 10

# Spark's data sources in Python read streams before, too, and say there neither how far a batch goes nor where all ends.
_SPARK_MIN = (4, 2)

# Spark gives a Python that it starts ten seconds, which a busy machine may not have; it is begun again so often.
_BUSY, _TRIES = "Python worker failed to connect back", 5

# An error of ours within what Spark says of it.
_OURS = re.compile(r"kvota\.model\.errors\.(?P<kind>\w+): (?P<text>.+)")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--events",
        nargs="+",
        type=a_path,
        metavar="DIR",
        help="folders that gateways record into, on this machine or mounted",
    )
    source.add_argument(
        "--topic", metavar="NAME", help="the topic that gateways record into (record.topic)"
    )
    add_cluster_options(parser, required=False)
    parser.add_argument(
        "--into", type=a_path, required=True, metavar="DIR", help="the folder of the record"
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        help="go on with what comes; else it ends when all there is has been taken",
    )
    parser.add_argument(
        "--every",
        type=duration_above_0_ms,
        default=None,
        metavar="TIME",
        help="with --follow: how long after each other it is looked for more (default: 10s)",
    )
    parser.add_argument(
        "--checkpoint",
        type=a_path,
        metavar="DIR",
        help="where Spark remembers how far it is (default: in the folder of the record)",
    )
    parser.add_argument(
        "--age-max",
        type=duration_above_0_ms,
        metavar="TIME",
        help="remove files of the record that were written longer ago, e.g. 30d (default: none)",
    )
    parser.add_argument(
        "--bytes-max",
        type=_size_bytes,
        metavar="SIZE",
        help="remove the oldest files of the record while all are larger, e.g. 10GiB (default: none)",
    )
    parser.add_argument(
        "--usage-age-max",
        type=duration_above_0_ms,
        default=_USAGE_AGE_MS,
        metavar="TIME",
        help="for how long usage by the minute is kept, by the newest decision (default: 30d)",
    )
    add_spark_options(parser, connects=False)
    parser.add_argument("--output", choices=("table", "json"), default="table")


def run(args: argparse.Namespace) -> int:
    """Take what there is; with ``--follow`` until somebody ends it, which is told at the end as well."""
    if find_spec("pyspark") is None:  # said before folders are made
        raise ModuleNotFoundError(name="pyspark")
    _check_spark(args.master)
    _check(args)
    from kvota.record.ingested import IngestFolder

    folder = IngestFolder.open(
        args.into.resolve(),
        now_us=SystemClock().now_us,
        usage_age_us=args.usage_age_max * 1000,
    )
    seen = _Seen(folder)
    by_sigterm: list[int] = []
    py4j_threads_say_nothing()
    try:
        with py4j_says_nothing(), _sigterm_as_ctrl_c(by_sigterm, begins=args.follow):
            _stream(args, folder, seen)
    except KeyboardInterrupt:
        _say_all(args, seen)
        if not by_sigterm:
            raise
        return DONE
    finally:
        folder.close()
    _say_all(args, seen)
    return DONE


@contextmanager
def _sigterm_as_ctrl_c(seen: list[int], *, begins: bool) -> Iterator[None]:
    """Have SIGTERM do what Ctrl-C does, and note it; ``begins``: or leave it alone."""

    def interrupt(number: int, _frame: FrameType | None) -> None:
        seen.append(number)
        if (
            signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        ):  # so scripts start what runs behind them
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    if not begins:
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_spark(master: str) -> None:
    """See that Spark can do it, before it is started.

    Raises:
        UsageError: it is too old, or at the other end of Spark Connect.
    """
    import pyspark

    found = re.match(r"(\d+)\.(\d+)", pyspark.__version__)
    if found is not None and tuple(map(int, found.groups())) < _SPARK_MIN:
        msg = (
            f"ingest needs Spark 4.2 or newer, and this is {pyspark.__version__}: before, a source in Python could not say how far "
            "a batch goes. pip install 'pyspark>=4.2'; usage, replay and the others go on from 3.5"
        )
        raise UsageError(msg)
    from kvota.pipeline.connect_session import CONNECT

    if master.startswith(CONNECT):
        msg = (
            f"--master {master}: ingest cannot be done over Spark Connect, where batches would be published by the server. Leave "
            "--master out, or name local[N] or spark://HOST:7077"
        )
        raise UsageError(msg)


def _check(args: argparse.Namespace) -> None:
    """See that the options go together, and that a record is not taken into itself.

    Raises:
        UsageError: they do not.
    """
    if args.topic is not None and args.bootstrap_server is None:
        msg = "--topic needs --bootstrap-server: the brokers that have it, e.g. 127.0.0.1:9092"
        raise UsageError(msg)
    if args.every is not None and not args.follow:
        msg = "--every means nothing without --follow"
        raise UsageError(msg)
    for name in ("bootstrap_server", "command_config"):
        if args.topic is None and getattr(args, name) is not None:
            msg = f"--{name.replace('_', '-')} means nothing without --topic"
            raise UsageError(msg)
    into = args.into.resolve()
    for folder in args.events or ():
        here = folder.resolve()
        if not here.is_dir():
            msg = f'"{folder}" is no folder. Name those that gateways record into (record.folder in gateway.toml)'
            raise UsageError(msg)
        if here.is_relative_to(into) or into.is_relative_to(here):
            msg = f'"{folder}" and --into "{args.into}" lie in each other; name another folder in --into'
            raise UsageError(msg)


@dataclass(slots=True)
class _Seen:
    """What all batches of this call have brought."""

    folder: "IngestFolder"
    batches: int = 0
    rows: int = 0
    repeated: int = 0
    files: int = 0
    bad_pieces: int = 0
    bad: list["BadPiece"] = field(default_factory=list)  # the first ones
    gone: int = 0

    def add(self, taken: "Taken") -> None:
        """Count a batch, and say what it was, on stderr."""
        self.batches += 1
        self.rows += taken.rows
        self.repeated += taken.repeated
        self.files += taken.files
        outcome = taken.outcome
        new = outcome.bad[: _NAMED - len(self.bad)]
        self.bad += new
        self.bad_pieces += len(outcome.bad)
        self.gone += len(outcome.gone)
        for line in (*_lines(taken, self.folder.ledger.missing), *map(str, new)):
            print(f"kvota: {line}", file=sys.stderr, flush=True)


def _lines(taken: "Taken", missing: int) -> Iterator[str]:
    parts = [f"batch {taken.batch}: {_count(taken.rows, 'decision')} in {_count(taken.files, 'file')}"]  # fmt: skip
    if taken.repeated:
        parts.append(f"{taken.repeated:,} had been taken before")
    if missing:
        parts.append(f"{missing:,} missing so far")
    yield "; ".join(parts)
    if taken.outcome.gone:
        files = _count(len(taken.outcome.gone), "file")
        yield f"{files} went before they were read; what was in them is missing, or in files that they were merged into"
    if taken.outcome.bad:
        yield f"{_count(len(taken.outcome.bad), 'piece')} could not be read"


def _stream(args: argparse.Namespace, folder: "IngestFolder", seen: _Seen) -> None:
    """Run the stream until it ends.

    Raises:
        KvotaError: Spark, the disk or the brokers failed.
    """
    with working("starting Spark"):
        from pyspark.sql import SparkSession

        from kvota.pipeline.spark_session import end_session, session, while_it_works

        is_ours = SparkSession.getActiveSession() is None
        # However many rows there are, the JVM sees none of them.
        spark = session(
            args.master, memory=args.memory, short=True, kernels=(), settings=dict(args.conf)
        )
    try:
        from kvota.pipeline.ingest.stream import start

        checkpoint = _checkpoint(args, folder.into)
        every_s = (args.every or _EVERY_MS) / 1000 if args.follow else None
        remove_old = _remover(args, folder.into)
        for tries_left in reversed(range(_TRIES)):
            try:
                with _own_errors(), spark_errors(spark), while_it_works():
                    stream = start(
                        _source(args, spark, folder.into, checkpoint),
                        folder,
                        checkpoint=checkpoint,
                        every_s=every_s,
                        on_batch=seen.add,
                    )
                    try:
                        while not stream.wait(_REMOVE_EVERY_S):
                            remove_old()
                        remove_old()
                    finally:
                        stream.end()
            except KvotaError as error:
                if not tries_left or _BUSY not in str(error.__cause__):
                    raise
                print("kvota: the machine is busy; beginning again", file=sys.stderr, flush=True)
            else:
                return
    finally:
        if is_ours:
            end_session(spark)


def _remover(args: argparse.Namespace, into: Path) -> Callable[[], None]:
    """Return what removes files as a gateway removes its own; what was in them is not taken again."""
    from kvota.record.event_files import EventFiles

    def remove_old() -> None:
        # It looks at the folder each time: batches and ``record compact`` add files to it.
        files = EventFiles(
            into,
            gateway="ingest",
            folder_bytes_max=args.bytes_max or sys.maxsize,
            age_s_max=(args.age_max or math.inf) / 1000,
        )
        try:
            files.remove_old(now_s=SystemClock().now_us() / 1e6)
        except OSError as error:
            reason = f"{error.filename or into}: {error.strerror or error}"
            print(f"kvota: old files stay: {reason}", file=sys.stderr, flush=True)

    return (lambda: None) if args.age_max is None and args.bytes_max is None else remove_old


def _source(
    args: argparse.Namespace, spark: "SparkSession", into: Path, checkpoint: Path
) -> "Source":
    from kvota.pipeline.ingest.stream import read_folders, read_topic

    if args.topic is None:
        return read_folders(spark, [folder.resolve() for folder in args.events], into=into)
    config = None if args.command_config is None else args.command_config.resolve()
    return read_topic(
        spark,
        args.topic,
        servers=args.bootstrap_server,
        command_config=config,
        checkpoint=checkpoint,
    )


def _checkpoint(args: argparse.Namespace, into: Path) -> Path:
    from kvota.record.ingested import FOLDER

    if args.checkpoint is not None:
        chosen: Path = args.checkpoint.resolve()
        return chosen
    return into / FOLDER / ("checkpoint" if args.topic is None else f"checkpoint-{args.topic}")


@contextmanager
def _own_errors() -> Iterator[None]:
    """Tell an error of ours that comes back out of Spark as what it was."""
    try:
        yield
    except KvotaError as error:
        of_spark = str(error.__cause__ or "")
        found = _OURS.search(of_spark)
        kind = None if found is None else getattr(errors, found["kind"], None)
        if found is None or kind is None:
            raise
        raise kind(found["text"]) from error.__cause__


def _size_bytes(text: str) -> int:
    try:
        size = parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if size < 1:
        msg = f'"{text}" is not above 0'
        raise argparse.ArgumentTypeError(msg)
    return size


# ---------------------------------------------------------------- what is said


def _say_all(args: argparse.Namespace, seen: _Seen) -> None:
    """Say on stdout what all batches were, and what is missing."""
    ledger = seen.folder.ledger
    if args.output == "json":
        print_json(_json(seen, ledger), schema=2)
        return
    print(
        f"{seen.folder.into}: {_count(seen.rows, 'decision')} taken in {_count(seen.files, 'file')}; "
        f"{seen.repeated:,} had been taken before; {ledger.missing:,} missing so far"
    )
    print("".join(f"{line}\n" for line in _missing_lines(ledger)), end="", flush=True)


def _missing_lines(ledger: "Ledger") -> Iterator[str]:
    for hole in islice(ledger.holes(), _NAMED):
        yield (
            f"gateway {name_on_screen(hole.gateway)}, run {name_on_screen(hole.run_id)}: "
            f"{_count(hole.rows, 'decision')} missing, seq {hole.first_seq} to {hole.last_seq}"
        )
    hidden = sum(1 for _ in ledger.holes()) - _NAMED
    if hidden > 0:
        yield f"… and {hidden:,} more gaps"


def _json(seen: _Seen, ledger: "Ledger") -> dict[str, object]:
    holes: Sequence[Hole] = list(islice(ledger.holes(), _NAMED))
    return {
        "into": str(seen.folder.into),
        "batches": seen.batches,
        "files": seen.files,
        "decisions": seen.rows,
        "repeated_decisions": seen.repeated,
        "missing_decisions": ledger.missing,
        "gaps": [
            {
                "gateway": hole.gateway,
                "run_id": hole.run_id,
                "first_seq": hole.first_seq,
                "last_seq": hole.last_seq,
            }
            for hole in holes
        ],
        "bad_pieces": seen.bad_pieces,
        "bad": [
            {"source": one.source, "offset": one.offset, "reason": one.reason} for one in seen.bad
        ],
        "gone_files": seen.gone,
    }


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
