"""Files of events that no gateway has written: read where they say which run their rows are of, else refused by name."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.record.record_files import ROWS, as_table

from kvota.model.errors import UsageError
from kvota.record.found_events import find_events


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
