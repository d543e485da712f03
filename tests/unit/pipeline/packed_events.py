"""Events as a table, and chunks as Spark would bring them together."""

import pyarrow as pa

from kvota.pipeline import chunk_schema as s
from kvota.record.event_schema import EVENT_SCHEMA
from kvota.testing.recorded_traffic import EventRow

RUNS = {("gateway 2", "run-2"): (0, True), ("gateway-1", "run-1"): (1, False)}


def table(rows: list[EventRow]) -> pa.Table:
    columns = zip(*rows, strict=True)
    arrays = [
        pa.array(column, field.type) for column, field in zip(columns, EVENT_SCHEMA, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=EVENT_SCHEMA)


def identified(packed: pa.Table) -> pa.Table:
    ids: dict[tuple[object, ...], int] = {}
    keys = zip(*(packed[name].to_pylist() for name in s.COUNTER_COLUMNS), strict=True)
    numbers = [ids.setdefault(key, len(ids)) for key in keys]
    numbered = packed.append_column("counter_id", pa.array(numbers, pa.int64()))
    return numbered.sort_by([("counter_id", "ascending"), ("first", "ascending")])
