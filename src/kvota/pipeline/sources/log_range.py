"""One range of a request log becomes tables of events, in a worker."""

import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import orjson
import pyarrow as pa

from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_type import QuotaType
from kvota.pipeline.sources.charge_rows import ChargeRows
from kvota.pipeline.sources.log_clock import LogClock
from kvota.pipeline.sources.log_layout import KAFKAS_PATTERN, layout_of, zone_of
from kvota.pipeline.sources.log_lines import Ending, Line, lines_of, open_log
from kvota.pipeline.sources.log_quotas import LogQuotas
from kvota.pipeline.sources.quick_json import needed_json
from kvota.pipeline.sources.request_line import (
    MARK,
    OLD_MARK,
    Charge,
    Request,
    Skipped,
    Who,
    request_of,
)

# So many rows go into one table: about 100 MB of a worker's memory.
_ROWS_AT_ONCE = 500_000
# The log's clock was set where a line is earlier than the one before by more than this.
_STEP_US = 2_000_000
# What is kept of a bad line, and of how many in one range; the others are counted.
_SAMPLE_BYTES, _BAD_KEPT = 1024, 20_000

_MICROSECOND_DIGITS = 6

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
        gateway: a name for the broker, and
        run_id: for this part of its log.
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


class _Before(NamedTuple):
    """How a line began.

    Attributes:
        begin: up to the fraction of its second.
        second_us: Unix microseconds.
        unit_us: of the last digit of the fraction.
        behind: from behind the fraction to its JSON.
        place_behind: where that is.
        place: where its JSON begins.
        is_second: as ``LogClock.time_us`` has it.
    """

    begin: bytes
    second_us: int
    unit_us: int
    behind: bytes
    place_behind: int
    place: int
    is_second: bool


class RangeReader:
    """Reads ranges of a log."""

    def __init__(self, reading: LogReading, folder: Path) -> None:
        """Makes ready.

        Args:
            reading: how.
            folder: for the tables.
        """
        self._layout = layout_of(reading.pattern)
        zone = None if reading.zone is None else zone_of(reading.zone)
        self._clock = LogClock(self._layout, zone)
        self._quotas = LogQuotas(reading.quotas)
        self._folder = folder
        self._before: _Before | None = None

    def read(self, part: LogRange) -> RangeFound:
        """Return what is in a range; its rows are in tables in the folder then."""
        found = RangeFound(part.number)
        rows = ChargeRows(part.node_id, self._quotas)
        latest_us = 0
        for line in self._lines(part, found):
            found.lines += 1
            is_second = part.second_from is not None and line.offset >= part.second_from
            try:
                read = self._read_line(line, is_second=is_second)
            except _OtherLineError:
                _count(_OTHER_LINES, found)
                continue
            except _OldLogError:
                found.is_old = True
                return found
            except _BadLineError as error:
                self._set_aside(line, str(error), part, found)
                continue
            time_us, request = read
            found.steps_back += time_us < latest_us - _STEP_US
            latest_us = time_us
            _take(request, time_us - round(request.answered_ms * 1000), rows, found)
            if rows.count >= _ROWS_AT_ONCE:
                self._write(rows, part, found)
        if rows.count:
            self._write(rows, part, found)
        return found

    def _lines(self, part: LogRange, found: RangeFound) -> Iterator[Line]:
        """Yield the lines of a range; one that was cut at a roll is put together with what is in the next file."""
        offset = part.start
        try:
            with open_log(Path(part.path)) as stream:
                for line in lines_of(stream, part.start, part.end):
                    offset = line.offset
                    if line.ending is Ending.OPEN and part.behind:
                        yield self._joined(line, part.behind, found)
                    elif line.text:
                        yield line
        except (EOFError, zlib.error, OSError) as error:
            reason = f"the file cannot be read further ({error})"
            found.lines += 1
            _keep_bad(BadLine(part.path, offset, reason, ""), found)

    def _joined(self, line: Line, behind: str, found: RangeFound) -> Line:
        try:
            with open_log(Path(behind)) as stream:
                rest = next(lines_of(stream), None)
        except (EOFError, zlib.error, OSError):
            return line
        if rest is None or self._layout.head.match(rest.text):
            return line
        whole = Line(line.offset, line.text + rest.text, rest.ending)
        try:
            self._read_line(whole, is_second=False)
        except _OtherLineError:
            found.has_joined = True
        except _BadLineError:
            return line
        found.has_joined = True
        return whole

    def _read_line(self, line: Line, *, is_second: bool) -> tuple[int, Request]:
        text = line.text
        if line.ending is Ending.TOO_LONG:
            msg = "it is longer than 16 MiB"
            raise _BadLineError(msg)
        try:
            time_us, place = self._time_and_place(text, is_second=is_second)
            request = request_of(orjson.loads(needed_json(text, place)))
        except ValueError as error:  # of orjson, too
            cut = ", and it has no end" if line.ending is Ending.OPEN else ""
            msg = f"{error}{cut}"
            raise _BadLineError(msg) from error
        except LookupError as error:
            msg = f"its JSON has no {error}"
            raise _BadLineError(msg) from error
        except (TypeError, AttributeError, OverflowError) as error:
            msg = f"its JSON is not what Kafka writes ({error})"
            raise _BadLineError(msg) from error
        return time_us, request

    def _time_and_place(self, text: bytes, *, is_second: bool) -> tuple[int, int]:
        """Return when a line was written and where its JSON begins; most lines begin as the one before."""
        known = self._before
        if (
            known is not None
            and known.is_second is is_second
            and text.startswith(known.begin)
            and text.startswith(known.behind, known.place_behind)
        ):
            fraction = text[len(known.begin) : known.place_behind]
            if fraction.isdigit():
                return known.second_us + int(fraction) * known.unit_us, known.place
        return self._searched(text, is_second=is_second)

    def _searched(self, text: bytes, *, is_second: bool) -> tuple[int, int]:
        head = self._layout.head.match(text)
        if head is None:
            msg = "it does not begin as the log4j pattern says"
            raise _BadLineError(msg)
        place = text.find(MARK, head.end())
        if place < 0:
            raise _OtherLineError
        if text.startswith(OLD_MARK, place):
            raise _OldLogError
        time_us = self._clock.time_us(head, is_second=is_second)
        place += len(MARK)
        begin, end = self._clock.fraction_in(head)
        if 0 < end - begin <= _MICROSECOND_DIGITS:
            unit_us = 10 ** (_MICROSECOND_DIGITS - (end - begin))
            second_us = time_us - int(text[begin:end]) * unit_us
            self._before = _Before(
                text[:begin], second_us, unit_us, text[end:place], end, place, is_second
            )
        return time_us, place

    def _set_aside(self, line: Line, reason: str, part: LogRange, found: RangeFound) -> None:
        sample = line.text[:_SAMPLE_BYTES].decode(errors="replace")
        bad = BadLine(part.path, line.offset, reason, sample)
        is_first = line.offset == 0 and part.before
        if is_first and self._layout.head.match(line.text) is None:
            found.rest = bad
            found.lines -= 1
        else:
            _keep_bad(bad, found)

    def _write(self, rows: ChargeRows, part: LogRange, found: RangeFound) -> None:
        table = rows.table(gateway=part.gateway, run_id=part.run_id)
        path = self._folder / f"range-{found.number:08}-{len(found.tables):04}.arrow"
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with (
            pa.OSFile(str(path), "wb") as out,
            pa.ipc.new_file(out, table.schema, options=options) as writer,
        ):
            writer.write_table(table)
        found.rows += table.num_rows
        found.tables.append(str(path))


class _BadLineError(Exception):
    """A line cannot be used; the text says why."""


class _OtherLineError(Exception):
    """A line is of another logger."""


class _OldLogError(Exception):
    """A line is of Kafka 2.7 or earlier."""


def _take(request: Request, time_us: int, rows: ChargeRows, found: RangeFound) -> None:
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
        rows.add(request.charges, request.who, time_us)


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
