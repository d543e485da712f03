"""Where in a log the second of two hours of the same name begins: when clocks were put back, only its order tells."""

from collections.abc import Iterable
from dataclasses import replace

from kvota.pipeline.sources.log_clock import LogClock
from kvota.pipeline.sources.log_files import BrokerLog, FoundLog, LogFile
from kvota.pipeline.sources.log_layout import Layout
from kvota.pipeline.sources.log_lines import lines_of, open_log

_HOUR_US = 3_600_000_000
# Clocks are put back by half an hour at least; a step of a clock that is set is shorter.
_BACK_US = 20 * 60 * 1_000_000
# Longer files than a year of hours are not looked through hour by hour.
_HOURS_MAX = 24 * 400


def with_second_hours(found: FoundLog, layout: Layout, clock: LogClock) -> FoundLog:
    """Return the same, with ``second_from`` in those files in which an hour is there twice.

    Only files that touch such an hour are read.

    Raises:
        OSError, EOFError, zlib.error: a file cannot be read.
    """
    brokers = tuple(_of_broker(broker, layout, clock) for broker in found.brokers)
    return replace(found, brokers=brokers)


def _of_broker(broker: BrokerLog, layout: Layout, clock: LogClock) -> BrokerLog:
    search = _Search(layout, clock)
    files = [
        search.looked_through(file) if _touches(file, clock) else file for file in broker.files
    ]
    return replace(broker, files=tuple(files))


def _touches(file: LogFile, clock: LogClock) -> bool:
    """Return whether a file may have lines of an hour that is there twice."""
    last_us = file.first_us + 24 * _HOUR_US if file.last_us is None else file.last_us
    hours = min((last_us - file.first_us) // _HOUR_US + 3, _HOURS_MAX)
    return any(clock.is_near_twice(file.first_us + hour * _HOUR_US) for hour in range(-2, hours))


class _Search:
    """Goes through the lines of a broker in order."""

    def __init__(self, layout: Layout, clock: LogClock) -> None:
        self._layout, self._clock = layout, clock
        self._latest_us = 0  # of lines of the hour that is there twice
        self._is_second = False

    def looked_through(self, file: LogFile) -> LogFile:
        with open_log(file.path) as stream:
            offset = self._first_second((line.offset, line.text) for line in lines_of(stream))
        return replace(file, second_from=offset)

    def _first_second(self, lines: Iterable[tuple[int, bytes]]) -> int | None:
        found = 0 if self._is_second else None
        for offset, text in lines:
            head = self._layout.head.match(text)
            if head is None:
                continue
            try:
                minute = self._clock.minute(head)
                time_us = self._clock.time_us(head)
            except ValueError:
                continue
            if not minute.is_twice:
                self._latest_us, self._is_second = 0, False
                continue
            if not self._is_second and time_us < self._latest_us - _BACK_US:
                self._is_second = True
                found = offset if found is None else found
            self._latest_us = max(self._latest_us, time_us)
        return found
