"""One range of a request log becomes tables of events, in a worker."""

import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa

from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_type import QuotaType
from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.sources.charge_rows import ChargeRows
from kvota.pipeline.sources.log_clock import LogClock
from kvota.pipeline.sources.log_layout import KAFKAS_PATTERN, layout_of, zone_of
from kvota.pipeline.sources.log_line import BadLineError, LineReader, OldLogError, OtherLineError
from kvota.pipeline.sources.log_lines import Block, Ending, Line, blocks_of, lines_of, open_log
from kvota.pipeline.sources.log_quotas import LogQuotas
from kvota.pipeline.sources.quick_lines import QuickReader
from kvota.pipeline.sources.request_line import Charge, Request, Skipped, Who

# So many rows go into one table: about 100 MB of a worker's memory.
_ROWS_AT_ONCE = 500_000
# The log's clock was set where a line is earlier than the one before by more than this.
_STEP_US = 2_000_000
# What is kept of a bad line, and of how many in one range; the others are counted.
_SAMPLE_BYTES, _BAD_KEPT = 1024, 20_000

_NEWLINE = ord("\n")

_OTHER_LINES = "lines of other loggers"


@dataclass(frozen=True, slots=True)
class LogReading:
    """How a log is read.

    Attributes:
        pattern: of log4j, in which its lines are written.
        zone: of its times; None: they say it themselves.
        quotas: that were in force.
    """

    pattern: str = KAFKAS_PATTERN
    zone: str | None = None
    quotas: ConfiguredQuotas = field(default_factory=ConfiguredQuotas)


@dataclass(frozen=True, slots=True)
class LogRange:
    """Which lines: those that begin in a part of a file.

    Attributes:
        number: of the range, in the order of the log.
        path: of the file.
        start: first byte.
        end: behind the last one; None: of the file.
        node_id: of the broker.
        gateway: a name for who has held clients to their quotas, and
        run_id: for this part of the broker's log.
        second_from: as ``LogFile`` has it.
        before: the file before this one, if this is its first range and there is one.
        behind: the file behind this one, if this is its last range and there is one.
    """

    number: int
    path: str
    start: int = 0
    end: int | None = None
    node_id: int = -2
    gateway: str = ""
    run_id: str = ""
    second_from: int | None = None
    before: str = ""
    behind: str = ""


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that could not be used."""

    path: str
    offset: int
    reason: str
    sample: str


@dataclass(slots=True)
class RangeFound:
    """What became of the lines of a range.

    Attributes:
        number: of the range.
        lines: that were read.
        rows: of events.
        bad: the first ones that could not be used.
        bad_count: all of them.
        other: lines without a charge, by what they are.
        rest: the end of a line that was cut at a roll, at the begin of the file.
        has_joined: the last line was cut at a roll, and is whole again.
        steps_back: how often the log's clock was set back.
        first_lines: names of changes of topics that clients sent to this broker.
        forwarded: of such that were forwarded to it: name, time, who, charges.
        is_old: a line is of Kafka 2.7 or earlier.
        tables: files of tables, in order.
    """

    number: int
    lines: int = 0
    rows: int = 0
    bad: list[BadLine] = field(default_factory=list)
    bad_count: int = 0
    other: dict[str, int] = field(default_factory=dict)
    rest: BadLine | None = None
    has_joined: bool = False
    steps_back: int = 0
    first_lines: list[str] = field(default_factory=list)
    forwarded: list[tuple[str, int, Who, list[Charge]]] = field(default_factory=list)
    is_old: bool = False
    tables: list[str] = field(default_factory=list)


class RangeReader:
    """Reads ranges of a log."""

    def __init__(self, reading: LogReading, folder: Path) -> None:
        """Makes ready.

        Args:
            reading: how.
            folder: for the tables.
        """
        layout = layout_of(reading.pattern)
        zone = None if reading.zone is None else zone_of(reading.zone)
        self._lines = LineReader(layout, LogClock(layout, zone))
        self._quick = QuickReader()
        self._quotas = LogQuotas(reading.quotas)
        self._folder = folder

    def read(self, part: LogRange) -> RangeFound:
        """Return what is in a range; its rows are in tables in the folder then."""
        work = _Work(part, ChargeRows(part.node_id, self._quotas), self._lines, self._quick)
        try:
            for some in self._parts(work):
                work.take(some)
                if work.rows.count >= _ROWS_AT_ONCE:
                    self._write(work)
        except OldLogError:
            work.found.is_old = True
        if work.rows.count:
            self._write(work)
        return work.found

    def _parts(self, work: "_Work") -> Iterator[Block | Line]:
        """Yield the lines of a range; one that was cut at a roll is put together with what is in the next file."""
        part, offset = work.part, work.part.start
        try:
            with open_log(Path(part.path)) as stream:
                for some in blocks_of(stream, part.start, part.end):
                    offset = some.offset
                    if isinstance(some, Line) and some.ending is Ending.OPEN and part.behind:
                        yield self._joined(some, part.behind, work.found)
                    else:
                        yield some
        except (EOFError, zlib.error, OSError) as error:
            reason = f"the file cannot be read further ({error})"
            work.found.lines += 1
            _keep_bad(BadLine(part.path, offset, reason, ""), work.found)

    def _joined(self, line: Line, behind: str, found: RangeFound) -> Line:
        try:
            with open_log(Path(behind)) as stream:
                rest = next(lines_of(stream), None)
        except (EOFError, zlib.error, OSError):
            return line
        if rest is None or self._lines.is_begun(rest.text):
            return line
        whole = Line(line.offset, line.text + rest.text, rest.ending)
        try:
            self._lines.read(whole, is_second=False)
        except OtherLineError:
            found.has_joined = True
        except BadLineError:
            return line
        found.has_joined = True
        return whole

    def _write(self, work: "_Work") -> None:
        part, found = work.part, work.found
        table = work.rows.table(gateway=part.gateway, run_id=part.run_id)
        path = self._folder / f"range-{found.number:08}-{len(found.tables):04}.arrow"
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with (
            pa.OSFile(str(path), "wb") as out,
            pa.ipc.new_file(out, table.schema, options=options) as writer,
        ):
            writer.write_table(table)
        found.rows += table.num_rows
        found.tables.append(str(path))


class _Work:
    """Takes the lines of one range."""

    def __init__(
        self, part: LogRange, rows: ChargeRows, lines: LineReader, quick: QuickReader
    ) -> None:
        self.part, self.rows = part, rows
        self.found = RangeFound(part.number)
        self._lines, self._quick = lines, quick
        self._latest_us = 0

    def take(self, some: Block | Line) -> None:
        """Take some lines.

        Raises:
            OldLogError: one is of Kafka 2.7 or earlier.
        """
        if isinstance(some, Line):
            times_us = [self._take_line(some)] if some.text else []
        else:
            times_us = self._take_block(some)
        known = [self._latest_us, *(time_us for time_us in times_us if time_us)]
        self.found.steps_back += int(np.count_nonzero(np.diff(known) < -_STEP_US))
        self._latest_us = known[-1]

    def _take_block(self, block: Block) -> list[int]:
        """Take lines, most of them by a kernel; return when each was written, 0 where nobody knows."""
        text = block.text
        ends = np.flatnonzero(np.frombuffer(text, np.uint8) == _NEWLINE)
        starts = np.concatenate([[0], ends[:-1] + 1])
        is_there = starts < ends
        starts, ends = starts[is_there], ends[is_there]
        times_us = np.zeros(len(starts), np.int64)
        place = 0
        while place < len(starts):
            place = self._take_minute(block, (starts, ends), times_us, place)
        found: list[int] = times_us.tolist()
        return found

    def _take_minute(
        self, block: Block, bounds: tuple[Array, Array], times_us: Array, place: int
    ) -> int:
        """Take lines up to one that begins another minute; return the place behind it."""
        starts, ends = bounds
        first_line, begin = self.found.lines, self._lines.begin
        read, unknown = None, np.arange(place, len(starts))
        if begin is not None and self.part.second_from is None:
            read = self._quick.read(block.text, starts[place:], ends[place:], begin)
            unknown = np.delete(unknown, read.places)
        until = len(starts)
        for line in unknown.tolist():
            start, end = int(starts[line]), int(ends[line])
            whole = Line(block.offset + start, block.text[start:end], Ending.WHOLE)
            self.found.lines = first_line + line - place
            times_us[line] = self._take_line(whole)
            if self._lines.begin is not begin:
                until = line + 1
                break
        self.found.lines = first_line + until - place
        if read is not None:
            read = read.up_to(until - place)
            times_us[place + read.places] = read["line_us"]
            self.rows.add_quick(read, first_line)
        return until

    def _take_line(self, line: Line) -> int:
        """Take a line; return when it was written, 0 where nobody knows."""
        number = self.found.lines
        self.found.lines += 1
        part = self.part
        is_second = part.second_from is not None and line.offset >= part.second_from
        try:
            time_us, request = self._lines.read(line, is_second=is_second)
        except OtherLineError:
            _count(_OTHER_LINES, self.found)
            return 0
        except BadLineError as error:
            self._set_aside(line, str(error))
            return 0
        at_us = time_us - round(request.answered_ms * 1000)
        _take(request, at_us, number, self.rows, self.found)
        return time_us

    def _set_aside(self, line: Line, reason: str) -> None:
        sample = line.text[:_SAMPLE_BYTES].decode(errors="replace")
        bad = BadLine(self.part.path, line.offset, reason, sample)
        if line.offset == 0 and self.part.before and not self._lines.is_begun(line.text):
            self.found.rest = bad
        else:
            _keep_bad(bad, self.found)


def _take(request: Request, time_us: int, line: int, rows: ChargeRows, found: RangeFound) -> None:
    if request.forwarded:
        _count(Skipped.FORWARDED.value, found)
        if request.charges and request.who is not None:
            charges = list(request.charges)
            found.forwarded.append((request.name, time_us, request.who, charges))
        return
    if request.name:
        found.first_lines.append(request.name)
    if request.skipped is not None:
        _count(request.skipped.value, found)
    if request.who is not None:
        rows.add(request.charges, request.who, time_us, line)


def _count(what: str, found: RangeFound) -> None:
    found.other[what] = found.other.get(what, 0) + 1


def _keep_bad(bad: BadLine, found: RangeFound) -> None:
    found.bad_count += 1
    if len(found.bad) < _BAD_KEPT:
        found.bad.append(bad)


def found_text(found: RangeFound) -> bytes:
    """Write what was found as JSON."""
    forwarded = [
        (name, time_us, list(who), [list(charge) for charge in charges])
        for name, time_us, who, charges in found.forwarded
    ]
    return orjson.dumps({**asdict(replace(found, forwarded=[])), "forwarded": forwarded})


def parsed_found(text: bytes) -> RangeFound:
    """Read what ``found_text`` wrote."""
    fields = orjson.loads(text)
    fields["bad"] = [BadLine(**bad) for bad in fields["bad"]]
    fields["rest"] = None if fields["rest"] is None else BadLine(**fields["rest"])
    fields["forwarded"] = [
        (name, at_us, Who(*who), [Charge(QuotaType(charge[0]), *charge[1:]) for charge in charges])
        for name, at_us, who, charges in fields["forwarded"]
    ]
    return RangeFound(**fields)
