"""Files of events that no gateway has written: read where they say which run their rows are of, else refused by name."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.record.record_files import ROWS, as_table, put

from kvota.model.errors import UsageError
from kvota.record.event_file import runs_in_table
from kvota.record.found_events import find_events
from kvota.record.runs import RUNS_KEY, runs_text


def test_runs_are_found_in_row_groups_with_dictionaries_of_their_own(tmp_path: Path) -> None:
    with pq.ParquetWriter(tmp_path / "made.parquet", as_table(ROWS).schema) as writer:
        for start in range(0, len(ROWS), 300):
            writer.write_table(as_table(ROWS[start : start + 300]))

    runs = find_events([tmp_path]).runs

    assert sorted((run.gateway, run.run_id, run.rows) for run in runs) == [
        ("gateway 2", "run-2", 300),
        ("gateway-1", "run-1", 800),
    ]


@pytest.mark.parametrize("name", ["gateway", "run_id"])
def test_a_file_without_one_of_the_two_names_of_a_run_is_refused(name: str, tmp_path: Path) -> None:
    pq.write_table(as_table(ROWS[:50]).drop_columns([name]), tmp_path / "made.parquet")

    with pytest.raises(
        UsageError, match=rf"made\.parquet: not an events file \(no column {name}\)"
    ):
        find_events([tmp_path])


@pytest.mark.parametrize("name", ["gateway", "run_id"])
def test_rows_without_one_of_the_two_names_of_a_run_are_not_dropped_in_silence(
    name: str, tmp_path: Path
) -> None:
    table = as_table(ROWS[:50])
    place = table.schema.get_field_index(name)
    texts = [None if row == 7 else "x" for row in range(50)]
    schema = pa.schema(
        [field.with_nullable(True) if field.name == name else field for field in table.schema]
    )
    column = pa.array(texts, pa.string()).cast(table.schema.field(name).type)
    made = pa.table(table.columns, schema=schema).set_column(place, schema.field(name), column)
    pq.write_table(made, tmp_path / "made.parquet")

    with pytest.raises(UsageError, match=r"made\.parquet: .*rows without gateway or run_id"):
        find_events([tmp_path])


@pytest.mark.parametrize("name", ["seq", "ts_us"])
def test_rows_without_a_number_or_a_time_are_refused_by_name(name: str, tmp_path: Path) -> None:
    table = as_table(ROWS[:50])
    place = table.schema.get_field_index(name)
    column = pa.array([None, *table[name].to_pylist()[1:]], pa.int64())
    pq.write_table(table.set_column(place, name, column), tmp_path / "made.parquet")

    with pytest.raises(UsageError, match=rf"made\.parquet: .*column {name} has nulls"):
        find_events([tmp_path])


@pytest.mark.parametrize("name", ["user", "seq"])
def test_a_part_of_another_column_is_not_taken_for_one_of_the_table(
    name: str, tmp_path: Path
) -> None:
    table = as_table(ROWS[:50])
    parts = pa.array([{name: 1}] * 50)
    before = table.drop_columns([name]) if name == "user" else table
    pq.write_table(before.add_column(0, "own", parts), tmp_path / "made.parquet")

    with pytest.raises(UsageError, match=rf"made\.parquet: .*part of another column .* {name}"):
        find_events([tmp_path])


def test_nested_columns_of_ones_own_are_read_past(tmp_path: Path) -> None:
    table = as_table(ROWS[:50]).add_column(0, "own", pa.array([{"part": [1]}] * 50))
    pq.write_table(table, tmp_path / "made.parquet")

    (file,) = find_events([tmp_path]).files

    assert (file.rows, file.is_plain, file.lacking) == (50, False, ())


def test_columns_that_a_file_has_not_are_named(tmp_path: Path) -> None:
    pq.write_table(as_table(ROWS[:50]).drop_columns(["user", "limit"]), tmp_path / "made.parquet")

    (file,) = find_events([tmp_path]).files

    assert (file.is_plain, file.lacking) == (False, ("limit", "user"))


def test_half_a_character_in_a_footer_names_no_run(tmp_path: Path) -> None:
    """JSON may have it. The rows tell of which run they are."""
    rows = [row for row in ROWS if row in ROWS[:50]]
    table = as_table(rows)
    (run,) = runs_in_table(table)
    text = runs_text([replace(run, gateway="GATEWAY")]).replace("GATEWAY", "\\ud800")
    metadata = {**(table.schema.metadata or {}), RUNS_KEY: text}
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "made.parquet")

    assert find_events([tmp_path]).runs == (run,)


@pytest.mark.skipif(sys.platform != "linux", reason="names are UTF-8 on other systems")
def test_a_name_that_is_no_text_is_shown_and_the_others_are_read(tmp_path: Path) -> None:
    put(tmp_path, ROWS[:50])
    odd = os.fsencode(tmp_path) + b"/made-\xff.parquet"
    with open(odd, "wb") as file:  # noqa: PTH123  (bytes are no path)
        file.write((next(tmp_path.glob("events-*"))).read_bytes())

    found = find_events([tmp_path])

    assert found.rows == 50
    (bad,) = found.bad
    assert str(bad).endswith(r"made-\xff.parquet: its path is no UTF-8; rename it; left out")


@pytest.mark.parametrize("name", ["elsewhere", "elsewhere.parquet"])
def test_a_link_to_a_folder_is_not_passed_over_in_silence(name: str, tmp_path: Path) -> None:
    record, other = tmp_path / "record", tmp_path / "other"
    put(record, ROWS[:50])
    put(other, ROWS[50:80])
    (record / name).symlink_to(other)

    found = find_events([record])

    assert found.rows == 50
    (bad,) = found.bad
    assert (
        str(bad)
        == f"{record / name}: a link to a folder, which is not followed; name that folder, too; left out"
    )
