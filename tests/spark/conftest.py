"""Records to work on with Spark."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from kvota.pipeline.events import read_events
from kvota.record.event_schema import EVENT_SCHEMA
from kvota.testing.recorded_traffic import EventRow, RecordedTraffic

# About 1,700 throttled rows or more of each quota type.
ROWS = 24_000

WriteEvents = Callable[..., Path]


def write(folder: Path, rows: Sequence[EventRow], *, files: int = 1) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    columns = [
        pa.array(column, field.type)
        for column, field in zip(zip(*rows, strict=True), EVENT_SCHEMA, strict=True)
    ]
    table = pa.Table.from_arrays(columns, schema=EVENT_SCHEMA)
    length = -(-len(rows) // files)
    for number in range(files):
        piece = table.slice(number * length, length)
        pq.write_table(
            piece, folder / f"events-gateway-1-run-1-{number * length:012}-{number}.parquet"
        )
    return folder


def of_version_1(folder: Path) -> Path:
    """Make the files of a folder what they were before a row said its algorithm."""
    for file in folder.iterdir():
        table = pq.read_table(file).drop_columns(["algorithm", "owed_ms", "producer_id"])
        pq.write_table(table.replace_schema_metadata({"schema_version": "1"}), file)
    return folder


@pytest.fixture(scope="session")
def write_for_all() -> WriteEvents:
    return write


@pytest.fixture
def write_events(tmp_path: Path) -> WriteEvents:
    def write_here(rows: Sequence[EventRow], *, files: int = 1, name: str = "events") -> Path:
        return write(tmp_path / name, rows, files=files)

    return write_here


@pytest.fixture(scope="session")
def recorded_rows() -> list[EventRow]:
    first = RecordedTraffic(7, run_id="run-1", enforced=False)
    second = RecordedTraffic(8, run_id="run-2", gateway="gateway 2", enforced=True)
    return [*first.rows(ROWS), *second.rows(ROWS // 4)]


@pytest.fixture(scope="session")
def recorded_folder(
    recorded_rows: list[EventRow], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    return write(tmp_path_factory.mktemp("recorded"), recorded_rows, files=3)


@pytest.fixture
def recorded(spark: SparkSession, recorded_folder: Path) -> DataFrame:
    return read_events(spark, recorded_folder)
