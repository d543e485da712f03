"""Times of a table: their unit, their zone, and what is no time."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from kvota.model.errors import UsageError
from kvota.pipeline.sources.table_times import (
    Cell,
    MixedUnitsError,
    TableClock,
    TimeReading,
    guessed_unit,
    reading_of,
)

MOMENT = datetime(2026, 11, 21, 14, 30, 0, 250_000, tzinfo=UTC)
MOMENT_US = 1_795_271_400_250_000
BERLIN = TimeReading(zone="Europe/Berlin")


def of_column(column: pa.Array, reading: TimeReading) -> tuple[list[int | str], int]:
    clock = TableClock(reading)
    times, faults = clock.of_column(column)
    found: list[int | str] = times.tolist()
    for rows, reason in reversed(faults):
        for row in np.flatnonzero(rows).tolist():
            found[row] = reason
    return found, clock.twice


def both_ways(column: pa.Array, reading: TimeReading) -> list[int | str]:
    """Return times as a whole column and cell by cell, which have to agree."""
    found, twice = of_column(column, reading)
    clock = TableClock(reading)
    cells = [*clock.of_cells(column.to_pylist())]
    assert found == cells
    assert twice == clock.twice
    return found


@pytest.mark.parametrize(
    ("unit", "number"),
    [
        ("s", 1_795_271_400),
        ("ms", 1_795_271_400_250),
        ("us", MOMENT_US),
        ("ns", MOMENT_US * 1000 + 7),
    ],
)
def test_a_unit_is_told_by_the_size_of_numbers(unit: str, number: int) -> None:
    assert guessed_unit([None, number, str(number)]) == unit
    found = both_ways(pa.array([number]), TimeReading(unit))
    assert found == [MOMENT_US - (250_000 if unit == "s" else 0)]


def test_numbers_with_a_fraction() -> None:
    for column in (
        pa.array([1_795_271_400.25]),
        pa.array([Decimal("1795271400.250000")]),
        pa.array([Decimal("1795271400.250000000")], pa.decimal256(40, 9)),
    ):
        assert both_ways(column, TimeReading("s")) == [MOMENT_US]
    assert [*TableClock(TimeReading("s")).of_cells(["1795271400.25"])] == [MOMENT_US]


def test_numbers_of_several_units_are_an_error() -> None:
    with pytest.raises(
        MixedUnitsError, match="1795271400 would be seconds, 1795271400250 millisec"
    ):
        guessed_unit([1_795_271_400, 1_795_271_400_250])
    for column in (pa.array([1_795_271_400_250, 1_795_271_400]), pa.array([1.8e12, 1.8e9])):
        with pytest.raises(MixedUnitsError, match="would be seconds"):
            of_column(column, TimeReading("ms"))
    with pytest.raises(MixedUnitsError, match="would be microseconds"):
        [*TableClock(TimeReading("ms")).of_cells([str(MOMENT_US)])]


def test_a_given_unit_takes_any_number_that_a_calendar_has() -> None:
    reading = TimeReading("s", is_given=True)

    found = both_ways(pa.array([17, 10**12, -1, None]), reading)

    assert found[0] == 17_000_000
    assert found[1:3] == ["its time is before 1970 or after 9999"] * 2
    assert found[3] == "it has no time"


def test_what_is_no_time() -> None:
    found = both_ways(pa.array([0, 17, -5, None]), TimeReading("ms"))
    assert all(isinstance(time, str) for time in found)
    texts: list[Cell] = ["", "soon", "2026-02-30T00:00:00Z", True, "nan", "1e9"]
    assert all(isinstance(time, str) for time in TableClock(TimeReading("s")).of_cells(texts))
    floats, _ = of_column(pa.array([float("nan"), float("inf"), 1e300]), TimeReading("s", True))
    assert all(isinstance(time, str) for time in floats)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_with_a_zone(unit: str) -> None:
    whole = MOMENT.replace(microsecond=0)
    for zone in ("UTC", "+05:30", "America/New_York"):
        column = pa.array([whole], pa.timestamp(unit, zone))
        assert of_column(column, TimeReading())[0] == [MOMENT_US - 250_000]


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_timestamps_without_a_zone_are_of_the_one_that_is_named(unit: str) -> None:
    local = datetime.fromisoformat("2026-11-21T15:30:00.250")
    column = pa.array([local, None], pa.timestamp(unit))

    assert of_column(column, BERLIN)[0] == [MOMENT_US, "it has no time"]
    assert "--ts-zone" in str(of_column(column, TimeReading())[0][0])


def test_an_hour_that_is_there_twice_counts_as_the_first_and_one_that_is_not_there_as_bad() -> None:
    twice, missing = map(datetime.fromisoformat, ("2026-10-25T02:30", "2026-03-29T02:30"))
    column = pa.array([twice, missing, None], pa.timestamp("us"))

    found = both_ways(column, BERLIN)

    summer = twice.replace(tzinfo=timezone(timedelta(hours=2)))
    assert found[0] == summer.timestamp() * 1e6
    assert found[1] == "Europe/Berlin has no such time: clocks were put forward over it"
    assert of_column(column, BERLIN)[1] == 1


def test_texts_of_a_calendar() -> None:
    texts: list[Cell] = [
        "2026-11-21T14:30:00.250Z",
        "2026-11-21 15:30:00,25+01:00",
        "2026-11-21 15:30:00.250000999",
    ]

    assert [*TableClock(BERLIN).of_cells(texts)] == [MOMENT_US] * 3


def test_what_has_to_be_said_is_asked_for() -> None:
    def asked(cells: list[Cell], **given: str) -> str:
        options = {"unit": None, "zone": None, **given}
        with pytest.raises(UsageError) as refused:
            reading_of("at", cells, kind=None, **options)  # type: ignore[arg-type]
        return str(refused.value)

    assert "name it with --ts-zone" in asked([datetime.fromisoformat("2026-01-01T00:00")])
    assert "name it with --ts-zone" in asked(["2026-01-01 00:00:00"])
    assert "need no zone" in asked([1_795_271_400], zone="UTC")
    assert "are no numbers" in asked([MOMENT], unit="ms")
    assert '"Mars" is no time zone' in asked(["2026-01-01 00:00:00"], zone="Mars")
    assert "17 in the column" in asked([17])
    assert "in different units" in asked([1_795_271_400, 1_795_271_400_250])
    assert reading_of("at", [17], unit="s", zone=None, kind=None) == TimeReading("s", True)
