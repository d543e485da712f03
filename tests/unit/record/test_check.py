"""What is damaged, missing or there twice in a record is named."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.record.record_files import LATER_US, ROWS, put, put_record

from kvota.model.event import EVENT_COLUMNS, SCHEMA_VERSION
from kvota.record.check import Gap, check
from kvota.record.compact import compact
from kvota.record.found_events import find_events


def test_a_whole_record_is_sound(tmp_path: Path) -> None:
    read: list[int] = []

    checked = check(
        find_events([put_record(tmp_path, each=100)]), on_file=lambda file: read.append(file.rows)
    )

    assert checked.is_sound
    assert (checked.files, checked.rows, len(read)) == (11, len(ROWS), 11)
    assert sum(read) == len(ROWS)


def test_gaps_are_named_before_and_after_merging(tmp_path: Path) -> None:
    rows = [row for row in ROWS[:500] if row[1] not in {17, 18, 19, 200}]
    folder = put_record(tmp_path, rows, each=60)

    raw = check(find_events([folder]))
    compact(folder, now_us=LATER_US)
    merged = check(find_events([folder]))

    for checked in (raw, merged):
        assert not checked.is_sound
        assert checked.gaps == (
            Gap("gateway-1", "run-1", 17, 19),
            Gap("gateway-1", "run-1", 200, 200),
        )
        assert (checked.missing, checked.repeated, checked.bad) == (4, 0, ())


def test_as_many_repeated_as_missing_rows_are_both_seen(tmp_path: Path) -> None:
    rows = [*ROWS[:100], *ROWS[90:95], *ROWS[105:300]]
    put(tmp_path, rows[:104])
    put(tmp_path, rows[104:])
    found = find_events([tmp_path])
    assert sum(run.missing for run in found.runs) == 0

    checked = check(found)

    assert (checked.missing, checked.repeated) == (5, 5)


def test_a_changed_bit_is_found(tmp_path: Path) -> None:
    folder = put_record(tmp_path, ROWS[:400], each=100)
    file = max(folder.glob("*.parquet"))
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 4
    file.write_bytes(content)

    checked = check(find_events([folder]))

    assert not checked.is_sound
    assert [item.file for item in checked.bad] == [file]
    assert "its rows cannot be read" in checked.bad[0].reason


@pytest.mark.parametrize("ts_us", [-1, 253_402_300_800_000_000, 2**63 - 1])
def test_a_time_that_no_calendar_has_is_found(ts_us: int, tmp_path: Path) -> None:
    good = put(tmp_path, ROWS[:50])
    file = put(tmp_path, [*ROWS[50:59], (ts_us, *ROWS[59][1:])])

    (bad,) = check(find_events([good, file])).bad

    assert bad.file == file
    assert f"the time of seq {ROWS[59][1]} is {ts_us} us, which is not between" in bad.reason


def test_rows_that_are_not_those_of_the_footer_are_found(tmp_path: Path) -> None:
    file, other = put(tmp_path, ROWS[:50]), put(tmp_path, ROWS[50:100])
    metadata = pq.read_table(other).schema.metadata
    table = pq.read_table(file)
    pq.write_table(table.replace_schema_metadata(metadata), other)
    file.unlink()

    (bad,) = check(find_events([tmp_path])).bad

    assert (bad.file, bad.reason) == (other, "its rows are not those that its footer names")


@pytest.mark.parametrize("name", [column.name for column in EVENT_COLUMNS if not column.nullable])
def test_a_row_that_lacks_what_each_has_is_found(name: str, tmp_path: Path) -> None:
    good, file = put(tmp_path, ROWS[:50]), put(tmp_path, ROWS[50:60])
    table = pq.read_table(file)  # with what its footer says of runs
    field = table.schema.field(name).with_nullable(True)
    column = pa.array([None, *table[name].to_pylist()[1:]], field.type)
    pq.write_table(table.set_column(table.schema.get_field_index(name), field, column), file)

    (bad,) = check(find_events([good, file])).bad

    assert (bad.file, bad.reason) == (file, f"column {name} has nulls")


def test_files_without_columns_that_not_everybody_needs_are_read(tmp_path: Path) -> None:
    file = put(tmp_path, ROWS[:50])
    pq.write_table(pq.read_table(file).drop_columns(["user", "samples"]), file)

    assert check(find_events([file])).is_sound


def test_rows_from_one_end_of_the_numbers_to_the_other_are_told_apart(tmp_path: Path) -> None:
    """No gateway numbers so; neither sum nor difference of two of them is a number."""
    file = put(tmp_path, ROWS[:5])
    table = pq.read_table(file)
    ends = [-(2**63), -(2**63), -(2**63) + 1, 2**63 - 1, 2**63 - 1]
    place = table.schema.get_field_index("seq")
    rows = table.set_column(place, table.schema.field("seq"), pa.array(ends))
    plain = rows.replace_schema_metadata({b"schema_version": SCHEMA_VERSION.encode()})
    pq.write_table(plain, file)

    checked = check(find_events([file]))

    assert checked.repeated == 2
    assert checked.missing == 2**64 - 3
    assert checked.bad == ()
