"""The columns of recorded files are those of the model."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kvota.model.event import EVENT_COLUMNS, SCHEMA_VERSION
from kvota.record.event_parquet import parquet_bytes, run_in
from kvota.record.event_schema import EVENT_SCHEMA
from kvota.record.event_table import event_table
from kvota.record.row_batch import ROW, ROW_COLUMNS


def test_every_column_of_the_model_has_its_name_type_and_nullability() -> None:
    types = {
        "long": "int64",
        "int": "int32",
        "short": "int16",
        "double": "double",
        "boolean": "bool",
        "string": "string",
    }

    columns = [(field.name, str(field.type), field.nullable) for field in EVENT_SCHEMA]

    assert columns == [
        (column.name, types[column.type], column.nullable) for column in EVENT_COLUMNS
    ]


def test_a_file_has_plain_columns_and_the_schema_version(tmp_path: Path, make_memo) -> None:
    row = np.frombuffer(ROW.pack(0, 1_790_000_000_000_000, 5.0, 0, -1, 0, 0), ROW_COLUMNS)
    path = tmp_path / "events.parquet"

    table = event_table(row, [make_memo()], gateway="g", run_id="r")
    run = run_in(table, gateway="g", run_id="r")

    path.write_bytes(parquet_bytes(table, [run]))

    assert pq.read_schema(path).remove_metadata() == EVENT_SCHEMA.remove_metadata()
    assert pq.read_schema(path).metadata == {
        b"schema_version": SCHEMA_VERSION.encode(),
        b"runs": b'[{"gateway": "g", "run_id": "r", "first_seq": 0, "last_seq": 0, "rows": 1, '
        b'"first_us": 1790000000000000, "last_us": 1790000000000000}]',
    }
    assert pa.types.is_string(pq.read_table(path).schema.field("user").type)
