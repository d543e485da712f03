"""Gives commands over a record the option to work on a broker's request log in place of it."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kvota.app.cli.converting import (
    bad_texts,
    events_folder,
    keep_and_judge_bad,
    place_in,
    say,
)
from kvota.app.cli.places import a_path
from kvota.app.cli.progress import working
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.errors import NegativeError, UsageError
from kvota.model.plain_text import NAMED, name_on_screen, on_one_line, some
from kvota.model.units import format_bytes, format_duration_ms, format_moment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kvota.pipeline.sources.log_files import FoundLog
    from kvota.pipeline.sources.log_range import LogReading
    from kvota.pipeline.sources.request_log import LogConverted
    from kvota.record.found_events import FoundEvents

LOG_OPTIONS = ("log_zone", "log_quotas", "log_pattern")
# How many rows a line becomes at most, nearly always.
_ROWS_PER_LINE = 2


def add_log_options(parser: argparse.ArgumentParser, place: argparse._ActionsContainer) -> None:
    """Add the options.

    Args:
        parser: of the command.
        place: the group of options of which one says where the record is.
    """
    place.add_argument(
        "--request-log",
        nargs="+",
        type=a_path,
        metavar="PLACE",
        help="folders (or files, .gz too) of brokers' request logs: kafka.request.logger at DEBUG or TRACE, "
        "Kafka 2.8 or newer; no gateway is needed",
    )
    group = parser.add_argument_group("request log")
    group.add_argument(
        "--log-zone",
        metavar="ZONE",
        help="in which zone the brokers wrote it, e.g. UTC or Europe/Berlin; needed where its times do not say",
    )
    group.add_argument(
        "--log-quotas",
        type=a_path,
        metavar="FILE",
        help="quotas that were in force in Kafka, quotas.toml or quotas.yaml (default: none)",
    )
    group.add_argument(
        "--log-pattern",
        metavar="PATTERN",
        help='log4j pattern of its lines (default: Kafka\'s own, "[%%d] %%p %%m (%%c)%%n")',
    )


class RequestLog:
    """A request log that was looked at.

    Attributes:
        rows: about so many it becomes.
    """

    def __init__(
        self, found: "FoundLog", reading: "LogReading", folder: Path, args: argparse.Namespace
    ) -> None:
        self._found, self._reading = found, reading
        self._folder = folder
        self._args = args
        self.rows = found.lines * _ROWS_PER_LINE

    def converted(self, spark: "SparkSession") -> "FoundEvents":
        """Return it as a record.

        Raises:
            KvotaError: too many lines cannot be read.
            NegativeError: none of them charges anything.
            UsageError: it is of Kafka 2.7 or earlier.
            UnreachableError: there is no room for it.
        """
        from kvota.pipeline.sources.request_log import convert_log
        from kvota.record.found_events import find_events

        title = f"reading {format_bytes(self._found.size_bytes)} of request log"
        with working(title):
            done = convert_log(spark, self._found, self._reading, self._folder)
        say(_counts(done))
        keep_and_judge_bad(
            self._args,
            done.bad,
            (done.bad_count, done.read),
            "lines of the request log",
            "Is the pattern right (--log-pattern)?",
        )
        if not done.rows:
            msg = "the request log has no request of a client that is charged on a quota"
            raise NegativeError(msg)
        return find_events([self._folder])


@contextmanager
def request_log(args: argparse.Namespace) -> Iterator[RequestLog | None]:
    """Look at the log of ``--request-log`` and say what was found; None where there is no such option.

    What it becomes goes at the end, but for ``--keep-events``.

    Raises:
        UsageError: there is no such log, or an option of it is wrong.
        UnreachableError: a file cannot be read, or a folder not be made.
    """
    if place_in(args, "--request-log", LOG_OPTIONS) is None:
        yield None
        return
    reading = _reading(args)
    found = _looked_at(args, reading)
    say(_found_lines(found, reading))
    with events_folder(args, "--request-log", "a log") as folder:
        yield RequestLog(found, reading, folder, args)


def _reading(args: argparse.Namespace) -> "LogReading":
    from kvota.app.plan_file import load_quotas_in_force
    from kvota.pipeline.sources.log_layout import KAFKAS_PATTERN, layout_of, zone_of
    from kvota.pipeline.sources.log_range import LogReading

    pattern = args.log_pattern or KAFKAS_PATTERN
    layout = layout_of(pattern)
    if args.log_zone is not None:
        zone_of(args.log_zone)
    elif layout.needs_zone:
        msg = (
            "the times of this log do not say in which zone they are: name the brokers' with --log-zone, e.g. UTC or "
            "Europe/Berlin (timedatectl on a broker's machine tells)"
        )
        raise UsageError(msg)
    quotas = ConfiguredQuotas()
    if args.log_quotas is not None:
        quotas = load_quotas_in_force(args.log_quotas).configured()
    return LogReading(pattern, args.log_zone, quotas)


def _looked_at(args: argparse.Namespace, reading: "LogReading") -> "FoundLog":
    from kvota.pipeline.sources.log_clock import LogClock
    from kvota.pipeline.sources.log_files import find_request_log
    from kvota.pipeline.sources.log_layout import layout_of, zone_of
    from kvota.pipeline.sources.log_twice import with_second_hours

    layout = layout_of(reading.pattern)
    clock = LogClock(layout, None if reading.zone is None else zone_of(reading.zone))
    with working("looking at the request log"):
        found = find_request_log(args.request_log, layout, clock)
        return with_second_hours(found, layout, clock)


def _found_lines(found: "FoundLog", reading: "LogReading") -> Iterator[str]:
    """Say what was found, before the work."""
    span = format_duration_ms(max(0, found.last_us - found.first_us) // 1000)
    zone = "" if reading.zone is None else f", written in {reading.zone}"
    yield (
        f"request log: {len(found.files)} files of {len(found.brokers)} brokers, "
        f"{format_bytes(found.size_bytes)}, about {found.lines:,} requests, {format_moment(found.first_us)} to "
        f"{format_moment(found.last_us)} UTC ({span}{zone})"
    )
    users = sorted(found.users)
    yield f"  users at the begin of its files: {some([name_on_screen(user) for user in users])}"
    yield "  units: bytes as Kafka charges them, percent of a thread, partitions; times to the millisecond"
    for broker in found.brokers[:NAMED]:
        number = (
            f"broker {broker.node_id}"
            if broker.node_id >= 0
            else f"a broker, shown as {broker.node_id}"
        )
        yield f"  {name_on_screen(broker.name)}: {number}, {len(broker.files)} files"
    if len(found.brokers) > NAMED:
        yield f"  and {len(found.brokers) - NAMED} brokers more"
    twice = sum(file.second_from is not None for file in found.files)
    if twice:
        yield f"  clocks were put back: {twice} files have lines of the second hour, told by their order"
    for other in found.others[:NAMED]:
        yield f"  left out: {on_one_line(other)}"


def _counts(done: "LogConverted") -> Iterator[str]:
    """Say what became of it."""
    parts = [f"{done.read:,} lines became {done.rows:,} events"]
    parts += [f"{count:,} {what}" for what, count in sorted(done.other.items())]
    if done.joined:
        parts.append(f"{done.joined:,} were cut at a roll and put together")
    parts.append(f"{done.bad_count:,} could not be read")
    yield "; ".join(parts)
    if done.steps_back:
        yield (
            f"  a broker's clock was set back {done.steps_back:,} times by over 2 s: the order of requests there is "
            "not known"
        )
    yield from bad_texts(done.bad, done.bad_count)
