"""One line of a log becomes a request, or what is wrong with it."""

from typing import NamedTuple

import orjson

from kvota.pipeline.sources.log_clock import LogClock
from kvota.pipeline.sources.log_layout import Layout
from kvota.pipeline.sources.log_lines import Ending, Line
from kvota.pipeline.sources.quick_json import needed_json
from kvota.pipeline.sources.quick_lines import MILLISECOND_DIGITS, LineBegin
from kvota.pipeline.sources.request_line import MARK, OLD_MARK, Request, request_of

_MICROSECOND_DIGITS = 6


class BadLineError(Exception):
    """A line cannot be used; the text says why."""


class OtherLineError(Exception):
    """A line is of another logger."""


class OldLogError(Exception):
    """A line is of Kafka 2.7 or earlier."""


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


class LineReader:
    """Reads lines one by one.

    Attributes:
        begin: of the lines of the last minute that was read; None where they are not as Kafka's own pattern has them.
    """

    def __init__(self, layout: Layout, clock: LogClock) -> None:
        """Makes ready.

        Args:
            layout: of the lines.
            clock: reads their times.
        """
        self.begin: LineBegin | None = None
        self._layout, self._clock = layout, clock
        self._before: _Before | None = None

    def is_begun(self, text: bytes) -> bool:
        """Return whether a text is the begin of a line, and not the rest of one."""
        return self._layout.head.match(text) is not None

    def read(self, line: Line, *, is_second: bool) -> tuple[int, Request]:
        """Return when a line was written, and what it says.

        Args:
            line: of a log.
            is_second: an hour that is there twice is meant the second time.

        Raises:
            BadLineError: it cannot be used.
            OtherLineError: it is of another logger.
            OldLogError: it is of Kafka 2.7 or earlier.
        """
        if line.ending is Ending.TOO_LONG:
            msg = "it is longer than 16 MiB"
            raise BadLineError(msg)
        try:
            time_us, place = self._time_and_place(line.text, is_second=is_second)
            request = request_of(orjson.loads(needed_json(line.text, place)))
        except ValueError as error:  # of orjson, too
            cut = ", and it has no end" if line.ending is Ending.OPEN else ""
            msg = f"{error}{cut}"
            raise BadLineError(msg) from error
        except LookupError as error:
            msg = f"its JSON has no {error}"
            raise BadLineError(msg) from error
        except (TypeError, AttributeError, OverflowError) as error:
            msg = f"its JSON is not what Kafka writes ({error})"
            raise BadLineError(msg) from error
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
            raise BadLineError(msg)
        place = text.find(MARK, head.end())
        if place < 0:
            raise OtherLineError
        if text.startswith(OLD_MARK, place):
            raise OldLogError
        time_us = self._clock.time_us(head, is_second=is_second)
        place += len(MARK)
        begin, end = self._clock.fraction_in(head)
        digits = end - begin
        begun = None
        if 0 < digits <= _MICROSECOND_DIGITS:
            unit_us = 10 ** (_MICROSECOND_DIGITS - digits)
            second_us = time_us - int(text[begin:end]) * unit_us
            behind = text[end:place]
            self._before = _Before(text[:begin], second_us, unit_us, behind, end, place, is_second)
            second_from, second_to = head.span("second")
            if digits == MILLISECOND_DIGITS and second_to < begin and not is_second:
                minute_us = second_us - int(head["second"]) * 1_000_000
                without = text[:second_from] + b"00" + text[second_to:begin]
                begun = LineBegin(without, second_from, minute_us, behind)
        if begun != self.begin:
            self.begin = begun
        return time_us, place
