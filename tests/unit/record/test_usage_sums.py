"""Decisions become seconds, seconds minutes, and lines are added up: the same numbers as when each row is counted."""

import random

import pyarrow as pa
import pytest
from tests.unit.record.record_files import ROWS, as_table
from tests.unit.record.usage_oracle import assert_maxima, expected, kept, keys_of, lines_of

from kvota.record.event_schema import EVENT_SCHEMA
from kvota.record.usage_sums import LEVELS, by_tenant, joined, minutes_of, seconds_of
from kvota.testing.recorded_traffic import EventRow, RecordedTraffic

# Counted anew it is a second of its own: two gateways, one of them in shadow mode, at the same times.
BOTH = (*ROWS, *RecordedTraffic(9, run_id="run-3", gateway="g", enforced=True).rows(2_000))


def only(lines: pa.Table, level: str) -> pa.Table:
    return lines.filter(pa.compute.equal(lines["level"], level))


@pytest.mark.parametrize("level", LEVELS)
def test_sums_maxima_and_limits_are_those_of_the_rows(level: str) -> None:
    lines = only(minutes_of(seconds_of(as_table(BOTH))), level)

    assert kept(lines) == expected(BOTH, level)
    by_hand = lines_of(BOTH, level)
    assert lines["rate_max"].to_pylist() == [by_hand[key].rate_max for key in keys_of(lines)]
    assert lines["last_us"].to_pylist() == [by_hand[key].last[0] for key in keys_of(lines)]
    assert set(lines["parts"].to_pylist()) == {1}


@pytest.mark.parametrize("level", LEVELS)
def test_however_rows_are_cut_into_files_the_minutes_are_the_same(level: str) -> None:
    rows = list(BOTH)
    random.Random(1).shuffle(rows)
    pieces = [rows[begin : begin + 150] for begin in range(0, len(rows), 150)]

    lines = minutes_of(pa.concat_tables([seconds_of(as_table(p)) for p in pieces]), [level])

    by_hand = lines_of(BOTH, level)
    assert kept(lines) == expected(BOTH, level)
    assert lines["rate_max"].to_pylist() == [by_hand[key].rate_max for key in keys_of(lines)]


def test_lines_of_one_minute_are_added_up() -> None:
    parts = [minutes_of(seconds_of(as_table(BOTH[begin::3])), ["user"]) for begin in range(3)]

    lines = joined(pa.concat_tables(parts))

    by_hand = lines_of(BOTH, "user")
    assert kept(lines) == expected(BOTH, "user")
    assert_maxima(lines, by_hand)
    assert max(lines["parts"].to_pylist()) == 3
    again = joined(lines)
    assert kept(again) == kept(lines)
    assert sorted(again["parts"].to_pylist()) == sorted(lines["parts"].to_pylist())


def row(**changes: object) -> EventRow:
    values = dict(zip(EVENT_SCHEMA.names, ROWS[0], strict=True)) | changes
    return tuple(values[name] for name in EVENT_SCHEMA.names)


def test_a_limit_is_a_lines_own_where_its_counter_has_just_its_names() -> None:
    at_us = 1_900_000_000_000_000
    rows = [
        row(ts_us=at_us, user="a b", client_id="c", tags="client-id=,user=a%20b", limit=5.0),
        row(ts_us=at_us, user="d", client_id="c", tags="client-id=c,user=d", limit=6.0),
        row(ts_us=at_us, user="e", client_id="f", tags="client-id=f,user=", limit=7.0),
        row(ts_us=at_us, user="g", client_id="", tags="group=x", limit=8.0),
        row(ts_us=at_us + 1, user="a b", client_id="c", tags="client-id=,user=a%20b", limit=4.0),
    ]

    lines = minutes_of(seconds_of(as_table(rows)))

    names = ("level", "user", "client_id", "limit_last", "limit_binds")
    found = {line[:3]: line[3:] for line in zip(*(lines[n].to_pylist() for n in names), strict=True)}  # fmt: skip
    assert found == {
        ("user", "a b", None): (4.0, True),
        ("user", "d", None): (6.0, False),
        ("user", "e", None): (7.0, False),
        ("user", "g", None): (8.0, False),
        ("client", None, "c"): (4.0, False),
        ("client", None, "f"): (7.0, True),
        ("client", None, ""): (8.0, False),
        ("user-client", "a b", "c"): (4.0, False),
        ("user-client", "d", "c"): (6.0, True),
        ("user-client", "e", "f"): (7.0, False),
        ("user-client", "g", ""): (8.0, False),
    }


def test_no_rows_are_no_lines_and_odd_times_are_kept_apart() -> None:
    nothing = seconds_of(as_table(ROWS)).slice(0, 0)
    assert minutes_of(nothing).num_rows == joined(minutes_of(nothing)).num_rows == 0
    rows = [row(ts_us=us, user="u") for us in (-1, 0, 2**62, 2**62 + 1, 59_999_999, 60_000_000)]

    lines = minutes_of(seconds_of(as_table(rows)), ["user"])

    assert sorted(key[0] for key in keys_of(lines)) == [-60, 0, 60, 2**62 // 60_000_000 * 60]
    assert kept(lines) == expected(rows, "user")


def test_tenants_have_the_sums_of_their_lines() -> None:
    lines = joined(minutes_of(seconds_of(as_table(BOTH)), ["user-client"]))

    tenants = by_tenant(lines)

    values = tenants.totals["value_sum"].to_pylist()
    for place in range(tenants.totals.num_rows):
        of_tenant = [
            value
            for value, owner in zip(lines["value_sum"].to_pylist(), tenants.of_line, strict=True)
            if owner == place
        ]
        assert values[place] == sum(of_tenant)
        assert tenants.minute_max[place] == max(of_tenant)
    assert len({key[1:] for key in keys_of(lines)}) == tenants.totals.num_rows
