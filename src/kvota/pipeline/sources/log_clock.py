"""The times of a log become Unix time: an hour that a zone has twice or not at all is known as such. Pure."""

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple
from zoneinfo import ZoneInfo

from kvota.pipeline.sources.log_layout import MONTHS, Layout

# A log has so many different minutes, or is not worth remembering.
_MINUTES_MAX = 100_000
_SECONDS_MAX = 10_000

_MINUTE_PARTS = ("year", "month", "day", "hour", "minute")
_MONTHS = {name.encode(): number for number, name in enumerate(MONTHS, 1)}


class Minute(NamedTuple):
    """When a minute of a log began.

    Attributes:
        first_us: Unix microseconds.
        second_us: of the second time, where the zone's clocks were put back; else the same.
    """

    first_us: int
    second_us: int

    @property
    def is_twice(self) -> bool:
        """Return whether the zone has it twice."""
        return self.first_us != self.second_us


_NO_MINUTE = Minute(0, 0)


class LogClock:
    """Turns the times of a layout into Unix time; minutes are remembered."""

    def __init__(self, layout: Layout, zone: ZoneInfo | None) -> None:
        """Reads times.

        Args:
            layout: whose ``head`` finds them.
            zone: of times that do not say theirs; the layout's own wins.
        """
        self._zone = layout.zone or zone or UTC
        names = layout.head.groupindex
        self._is_count = "epoch_ms" in names
        self._has_offset, self._has_fraction = "offset" in names, "fraction" in names
        of_minute = (*_MINUTE_PARTS, *(["offset"] if self._has_offset else []))
        self._of_minute = [names[name] for name in of_minute if name in names]
        self._of_second = [*self._of_minute, *([names["second"]] if "second" in names else [])]
        self._of_fraction = names.get("fraction", 0)
        self._minutes: dict[tuple[bytes, ...], Minute] = {}
        self._seconds: tuple[dict[tuple[bytes, ...], int], ...] = ({}, {})

    def minute(self, head: re.Match[bytes]) -> Minute:
        """Return the minute of a line; of times that are counted since 1970, 1970.

        Raises:
            ValueError: there is no such time.
        """
        if self._is_count:
            return _NO_MINUTE
        key = head.group(*self._of_minute)
        found = self._minutes.get(key)
        if found is None:
            if len(self._minutes) >= _MINUTES_MAX:
                self._minutes.clear()
            found = self._minutes[key] = self._looked_up(*key)
        return found

    def time_us(self, head: re.Match[bytes], *, is_second: bool = False) -> int:
        """Return when a line was written, Unix microseconds.

        Args:
            head: of the line.
            is_second: an hour that is there twice is meant the second time.

        Raises:
            ValueError: there is no such time.
        """
        if self._is_count:
            return int(head["epoch_ms"]) * 1000
        key = head.group(*self._of_second)
        seconds = self._seconds[is_second]
        second_us = seconds.get(key)
        if second_us is None:
            if len(seconds) >= _SECONDS_MAX:
                seconds.clear()
            second_us = seconds[key] = self._second_us(head, is_second=is_second)
        if not self._has_fraction:
            return second_us
        return second_us + int(head[self._of_fraction].ljust(6, b"0")[:6])

    def fraction_in(self, head: re.Match[bytes]) -> tuple[int, int]:
        """Return where in a line the fraction of its second is; nowhere: two equal places."""
        return head.span(self._of_fraction) if self._has_fraction else (0, 0)

    def _second_us(self, head: re.Match[bytes], *, is_second: bool) -> int:
        minute = self.minute(head)
        began_us = minute.second_us if is_second else minute.first_us
        return began_us + int(head["second"]) * 1_000_000

    def is_near_twice(self, time_us: int) -> bool:
        """Return whether a moment's time of day is there twice in the zone."""
        if self._is_count or self._has_offset:
            return False
        moment = datetime.fromtimestamp(time_us // 1_000_000, self._zone)
        return _us(moment.replace(fold=0)) != _us(moment.replace(fold=1))

    def _looked_up(
        self, year: bytes, month: bytes, day: bytes, hour: bytes, minute: bytes, offset: bytes = b""
    ) -> Minute:
        month_number = _MONTHS.get(month) or int(month)
        moment = datetime(int(year), month_number, int(day), int(hour), int(minute))  # noqa: DTZ001
        if offset:
            zone = UTC if offset == b"Z" else timezone(_offset(offset.decode()))
            return Minute(*[_us(moment.replace(tzinfo=zone))] * 2)
        first, second = (moment.replace(tzinfo=self._zone, fold=fold) for fold in (0, 1))
        if _us(first) > _us(second):  # clocks were put forward over it
            msg = f"{self._zone} has no {moment:%Y-%m-%d %H:%M}: clocks were put forward"
            raise ValueError(msg)
        return Minute(_us(first), _us(second))


def _us(moment: datetime) -> int:
    return round(moment.timestamp()) * 1_000_000


def _offset(text: str) -> timedelta:
    sign = -1 if text[0] == "-" else 1
    digits = text[1:].replace(":", "").ljust(4, "0")
    return sign * timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
