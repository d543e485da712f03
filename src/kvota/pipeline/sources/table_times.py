"""The times of a table become Unix time: numbers by their unit, texts and local times by their zone. Pure."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from kvota.model.errors import UsageError
from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.sources.log_layout import zone_of

# Of a second, and what the unit is called.
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}

# Numbers of this unit are below that: 10**11 s are the year 5138, 10**11 ms are 1973.
_UNIT_ENDS = (10**11, 10**14, 10**17, 10**20)
_SMALLEST = 10**8
_US = 10**6
_MINUTE_US = 60 * _US
# No calendar has later ones.
_LATEST_US = 253_402_300_800 * _US
_EPOCH, _NAIVE_EPOCH = datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1)  # noqa: DTZ001
_MICROSECOND = timedelta(microseconds=1)
_WHOLE = re.compile(r"[+-]?\d{1,19}")
_REAL = re.compile(r"[+-]?\d{1,19}\.\d{1,30}")

Cell = object
OUT_OF_CALENDAR = "its time is before 1970 or after 9999"
_NO_TIME = "its time is no time, such as 2026-11-21T14:30:00Z or a number"
NO_ZONE = "its time says no zone: name that of such times with --ts-zone"


class MixedUnitsError(Exception):
    """Times of a table are in several units; the text names two of them."""


@dataclass(frozen=True, slots=True)
class TimeReading:
    """How times are read.

    Attributes:
        unit: of numbers, a key of ``UNITS``; None: there are none.
        is_given: the unit was not guessed, so any number is taken as one of it.
        zone: of times that do not say theirs; None: there are none.
    """

    unit: str | None = None
    is_given: bool = False
    zone: str | None = None


def unit_by_size(number: float) -> str | None:
    """Return the unit in which a number would be a time of these decades.

    >>> [unit_by_size(n) for n in (1_763_700_000, 1_763_700_000_000, 1_763_700_000e9, 17)]
    ['s', 'ms', 'ns', None]
    """
    if not _SMALLEST <= number < _UNIT_ENDS[-1]:
        return None
    return next(unit for unit, end in zip(UNITS, _UNIT_ENDS, strict=True) if number < end)


def guessed_unit(cells: Iterable[Cell]) -> str | None:
    """Return the unit of the numbers among some times; None: there is no number, or none that tells.

    Raises:
        MixedUnitsError: they are of several units.
    """
    first: dict[str, float | int] = {}
    for cell in cells:
        number = number_in(cell)
        unit = None if number is None else unit_by_size(number)
        if unit is not None and number is not None:
            first.setdefault(unit, number)
    if len(first) > 1:
        (one, here), (other, there) = list(first.items())[:2]
        raise MixedUnitsError(_two_units(here, one, there, other))
    return next(iter(first), None)


def mixed_text(column: str, told: str) -> str:
    """Say that times of a column are in several units."""
    return (
        f'ts: the column "{column}" has times in different units: {told}. Bring them into one, or name with --ts-unit '
        "the one that all of them are in"
    )


def _two_units(here: float, unit: str, there: float, other: str) -> str:
    """Say of two numbers that they are times in different units."""
    return f"{here} would be {UNIT_NAMES[unit]}, {there} {UNIT_NAMES[other]}"


def number_in(cell: Cell) -> int | float | None:
    """Return the number that a time is written as; None: it is none."""
    if isinstance(cell, bool):
        return None
    if isinstance(cell, int | float):
        return cell
    if isinstance(cell, Decimal):
        return float(cell)
    if isinstance(cell, str):
        text = cell.strip()
        if _WHOLE.fullmatch(text):
            return int(text)
        if _REAL.fullmatch(text):
            return float(text)
    return None


def is_local(cell: Cell) -> bool:
    """Return whether a time is one of a calendar, and does not say of which zone."""
    if isinstance(cell, datetime):
        return cell.tzinfo is None
    if not isinstance(cell, str) or number_in(cell) is not None:
        return False
    try:
        return datetime.fromisoformat(cell.strip()).tzinfo is None
    except ValueError:
        return False


class TableClock:
    """Turns times into Unix microseconds."""

    def __init__(self, reading: TimeReading) -> None:
        self._reading = reading
        self._zone = None if reading.zone is None else zone_of(reading.zone)
        self._minutes: dict[int, tuple[int, bool, bool]] = {}
        self.twice = 0  # times in an hour that the zone has twice, taken as the first one

    def of_cells(self, cells: Iterable[Cell]) -> Iterator[int | str]:
        """Yield the time of each cell, or what is wrong with it.

        Raises:
            MixedUnitsError: a number is a time in another unit.
        """
        for cell in cells:
            yield self._of_cell(cell)

    def of_column(self, column: pa.Array) -> tuple[Array, list[tuple[Array, str]]]:
        """Return the times of a column of numbers or timestamps; and those rows that have none, and why.

        Raises:
            MixedUnitsError: a number is a time in another unit.
        """
        kind = column.type
        null = column.is_null().to_numpy(zero_copy_only=False)
        faults = [(null, "it has no time")]
        if pa.types.is_timestamp(kind):
            numbers = column.cast(pa.int64()).fill_null(0).to_numpy()
            unit = kind.unit
        else:
            if not pa.types.is_integer(kind):
                column = column.cast(pa.float64())
            numbers = column.fill_null(0).to_numpy()
            unit = self._reading.unit
            if unit is None:
                return np.zeros(len(column), np.int64), [
                    *faults,
                    (~null, "nobody knows the unit of its time: --ts-unit"),
                ]
            if not self._reading.is_given:
                faults += self._by_size(numbers, unit, null)
        is_inside = (numbers >= 0) & (numbers < _LATEST_US // _US * UNITS[unit])
        faults.append((~is_inside, OUT_OF_CALENDAR))
        numbers = np.where(is_inside, numbers, 0)
        ts_us = _in_us(numbers, unit)
        if pa.types.is_timestamp(kind) and kind.tz is None:
            ts_us, missing = self._in_zone(ts_us, null)
            if missing is None:
                faults.append((~null, NO_ZONE))
            else:
                faults.append((missing, self._no_such_time()))
        return ts_us, faults

    def _by_size(self, numbers: Array, unit: str, null: Array) -> list[tuple[Array, str]]:
        place = list(UNITS).index(unit)
        lowest = _UNIT_ENDS[place - 1] if place else _SMALLEST
        other = ~null & ~((numbers >= lowest) & (numbers < _UNIT_ENDS[place]))
        for number in numbers[other].tolist():
            self._check_unit(number)
        return [(other, _no_size(unit))]

    def _check_unit(self, number: float) -> bool:
        """Return whether a number is a time of the unit.

        Raises:
            MixedUnitsError: it is one of another unit.
        """
        found, unit = unit_by_size(number), self._reading.unit
        if found is not None and unit is not None and found != unit:
            raise MixedUnitsError(_two_units(number, found, _typical(unit), unit))
        return found is not None

    def _of_cell(self, cell: Cell) -> int | str:
        if cell is None or cell == "":
            return "it has no time"
        number = number_in(cell)
        if number is not None:
            return self._of_number(number)
        if isinstance(cell, str):
            try:
                cell = datetime.fromisoformat(cell.strip())
            except ValueError:
                return _NO_TIME
        return self._of_moment(cell) if isinstance(cell, datetime) else _NO_TIME

    def _of_moment(self, moment: datetime) -> int | str:
        if moment.tzinfo is not None:
            ts_us = (moment - _EPOCH) // _MICROSECOND
        else:
            local_us = (moment - _NAIVE_EPOCH) // _MICROSECOND
            if self._zone is None:
                return NO_ZONE
            shift_us, is_twice, is_missing = self._minute(local_us // _MINUTE_US)
            if is_missing:
                return self._no_such_time()
            self.twice += is_twice
            ts_us = local_us + shift_us
        return ts_us if 0 <= ts_us < _LATEST_US else OUT_OF_CALENDAR

    def _of_number(self, number: float) -> int | str:
        unit = self._reading.unit
        if unit is None:
            return "nobody knows the unit of its time: --ts-unit"
        if not self._reading.is_given and not self._check_unit(number):
            return _no_size(unit)
        if not 0 <= number < _LATEST_US // _US * UNITS[unit]:  # NaN neither
            return OUT_OF_CALENDAR
        per_us = UNITS[unit] // _US
        if isinstance(number, int):
            return number // per_us if per_us else number * (_US // UNITS[unit])
        return round(number / per_us if per_us else number * (_US // UNITS[unit]))

    def _in_zone(self, local_us: Array, null: Array) -> tuple[Array, Array | None]:
        """Return Unix times of local ones, and which of them do not exist; None: nobody knows the zone."""
        if self._zone is None:
            return local_us, None
        minutes, codes = np.unique(local_us // _MINUTE_US, return_inverse=True)
        known = [self._minute(minute) for minute in minutes.tolist()]
        shifts, twice, missing = (np.array(part)[codes] for part in zip(*known, strict=True))
        self.twice += int(np.count_nonzero(twice & ~null))
        return local_us + shifts, missing

    def _minute(self, minute: int) -> tuple[int, bool, bool]:
        """Return what to add to local times of a minute; and whether it is there twice, or not at all."""
        found = self._minutes.get(minute)
        if found is None:
            assert self._zone is not None
            found = self._minutes[minute] = _looked_up(minute, self._zone)
        return found

    def _no_such_time(self) -> str:
        return f"{self._reading.zone} has no such time: clocks were put forward over it"


def _looked_up(minute: int, zone: ZoneInfo) -> tuple[int, bool, bool]:
    try:
        local = _EPOCH + timedelta(minutes=minute)
        first, second = (local.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
        first_us, second_us = (round(moment.timestamp()) * _US for moment in (first, second))
    except (OverflowError, ValueError):  # at the ends of the calendar
        return 0, False, False
    return first_us - minute * _MINUTE_US, first_us < second_us, first_us > second_us


def _in_us(numbers: Array, unit: str) -> Array:
    if UNITS[unit] > _US:
        per_us = UNITS[unit] // _US
        found = numbers // per_us if numbers.dtype.kind in "iu" else np.rint(numbers / per_us)
    else:
        found = numbers * (_US // UNITS[unit])
    return (np.rint(found) if found.dtype.kind == "f" else found).astype(np.int64)


def _no_size(unit: str) -> str:
    return f"its time is no number of {UNIT_NAMES[unit]} since 1970 in these decades; --ts-unit takes it as one"


def _typical(unit: str) -> int:
    """Return a time that is written in a unit, to show one."""
    return 1_763_700_000 * UNITS[unit]


def reading_of(
    column: str,
    cells: Iterable[Cell],
    *,
    unit: str | None,
    zone: str | None,
    kind: pa.DataType | None,
) -> TimeReading:
    """Return how the times of a column are read.

    Args:
        column: its name, for people.
        cells: its first ones.
        unit: that is given, or None.
        zone: that is given, or None.
        kind: of the column, where the table says it.

    Raises:
        UsageError: the unit or the zone has to be given, or cannot be.
    """
    listed = [cell for cell in cells if cell is not None and cell != ""]
    has_numbers = any(number_in(cell) is not None for cell in listed)
    if zone is not None:
        zone_of(zone)
    try:
        guessed = guessed_unit(listed) if unit is None else None
    except MixedUnitsError as error:
        raise UsageError(mixed_text(column, str(error))) from error
    needs_zone = any(is_local(cell) for cell in listed)
    if kind is not None and pa.types.is_timestamp(kind):
        needs_zone = kind.tz is None
    if needs_zone and zone is None:
        msg = (
            f'ts: the times of the column "{column}" do not say in which zone they are: name it with --ts-zone, '
            "e.g. UTC or Europe/Berlin"
        )
        raise UsageError(msg)
    if listed and not needs_zone and zone is not None:
        msg = f'--ts-zone {zone}: the times of the column "{column}" need no zone. Leave it away'
        raise UsageError(msg)
    if unit is not None and listed and not has_numbers:
        msg = f'--ts-unit {unit}: the times of the column "{column}" are no numbers. Leave it away'
        raise UsageError(msg)
    if has_numbers and unit is None and guessed is None:
        shown = next(cell for cell in listed if number_in(cell) is not None)
        msg = (
            f'ts: {shown} in the column "{column}" is no time of these decades in s, ms, us or ns. Is this the '
            "right column? --ts-unit names the unit"
        )
        raise UsageError(msg)
    return TimeReading(unit or guessed, unit is not None, zone)
