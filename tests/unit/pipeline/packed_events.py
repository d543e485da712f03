"""Events as a table, chunks as Spark would bring them together, and sums of seconds to compare."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from kvota.pipeline import chunk_schema as s
from kvota.pipeline.kernels import second_sums as k
from kvota.pipeline.seconds import Seconds
from kvota.record.event_schema import EVENT_SCHEMA
from kvota.testing.recorded_traffic import EventRow

Second = tuple[Any, ...]

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


def seconds_by_counter(every: Iterable[Seconds]) -> dict[tuple[Any, ...], list[Second]]:
    """The seconds of each counter, numbers as bits; a counter comes once."""
    found: dict[tuple[Any, ...], list[Second]] = {}
    for seconds in every:
        names = [tuple(name.values())[1:] for name in seconds.names.to_pylist()]
        sums = seconds.sums[k.OF_SECOND :].copy()
        sums[k.OF_MARKS - k.OF_SECOND] &= ~s.OUTCOME_MASK  # of the last charge, and nobody asks
        bits = np.vstack([seconds.used, *seconds.doubles[k.OF_LIMIT :]]).view(np.int64)
        rows = zip(*sums.tolist(), *bits.tolist(), strict=True)
        here: dict[tuple[Any, ...], list[Second]] = {}
        for owner, row in zip(seconds.sums[k.OF_OWNER].tolist(), rows, strict=True):
            here.setdefault(names[owner], []).append(row)
        assert not here.keys() & found.keys()
        found |= here
    return found
