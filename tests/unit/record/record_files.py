"""Records on a disk, as gateways write them, for the tests of what is done with their files."""

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kvota.record.event_file import runs_in_table
from kvota.record.event_parquet import parquet_bytes
from kvota.record.event_schema import EVENT_SCHEMA, WRITE_SCHEMA
from kvota.record.found_events import find_events
from kvota.testing.recorded_traffic import START_US, EventRow, RecordedTraffic

HOUR_US = 3_600_000_000
# Long after everything that the seeded traffic does.
LATER_US = START_US + 1_000 * HOUR_US

ROWS = (
    *RecordedTraffic(7, run_id="run-1", enforced=False).rows(800),
    *RecordedTraffic(8, run_id="run-2", gateway="gateway 2", enforced=True).rows(300),
)


def as_table(rows: Sequence[EventRow]) -> pa.Table:
    columns = zip(zip(*rows, strict=True), EVENT_SCHEMA, strict=True)
    arrays = [pa.array(column, field.type) for column, field in columns]
    return pa.Table.from_arrays(arrays, schema=EVENT_SCHEMA).cast(WRITE_SCHEMA)


def put(folder: Path, rows: Sequence[EventRow], *, age_s: float = 0) -> Path:
    """Write one file as a gateway does."""
    folder.mkdir(parents=True, exist_ok=True)
    table = as_table(rows)
    runs = runs_in_table(table)
    first = runs[0]
    number = len(list(folder.iterdir()))
    name = f"events-{first.gateway}-{first.run_id}-{first.first_seq:012d}-{number}.parquet"
    (folder / name).write_bytes(parquet_bytes(table, runs))
    written_s = rows[-1][0] / 1e6 - age_s
    os.utime(folder / name, (written_s, written_s))
    return folder / name


def put_record(folder: Path, rows: Sequence[EventRow] = ROWS, *, each: int = 50) -> Path:
    """Write rows in files of so many."""
    for start in range(0, len(rows), each):
        put(folder, rows[start : start + each])
    return folder


def rows_of(folder: Path) -> list[tuple[object, ...]]:
    """Return all rows that a reader finds, in the order of run and seq."""
    found = find_events([folder])
    rows = [
        tuple(row[name] for name in EVENT_SCHEMA.names)
        for path in found.good
        for row in pq.read_table(path).to_pylist()
    ]
    return in_order(rows)


def in_order(rows: Sequence[EventRow]) -> list[EventRow]:
    places = [EVENT_SCHEMA.names.index(name) for name in ("gateway", "run_id", "seq")]
    return sorted(rows, key=lambda row: tuple(row[place] for place in places))
