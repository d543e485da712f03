"""Puts tables of events from other records into files of a record, each run's rows in order; what became of them."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from kvota.files.whole_file import write_whole
from kvota.pipeline.sources.log_range import BadLine
from kvota.record.event_parquet import parquet_bytes, run_in

# So many rows have a file.
_FILE_ROWS = 1 << 20
# A run whose first seq is higher than 1 does not begin with its first row: nobody knows what was charged before it.
FIRST_SEQ = 2

_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """What became of another record.

    Attributes:
        read: lines, or rows.
        rows: of events.
        bad: the first ones that could not be used.
        bad_count: all of them.
        steps_back: how often time went back by more than 2 s in the order that lines or rows have.
    """

    read: int
    rows: int
    bad: tuple[BadLine, ...]
    bad_count: int
    steps_back: int


def write_run(folder: Path, tables: Iterable[pa.Table], *, gateway: str, run_id: str) -> int:
    """Write the rows of a run; return how many there are.

    Args:
        folder: that is there.
        tables: with ``event_schema.WRITE_SCHEMA``, in order; their seqs are given anew.
        gateway: that their rows name.
        run_id: that their rows name.

    Raises:
        OSError: a file cannot be written.
    """
    seq = FIRST_SEQ
    for number, together in enumerate(_joined(tables)):
        rows = pa.concat_tables(together).unify_dictionaries().combine_chunks()
        seqs = pa.array(np.arange(seq, seq + rows.num_rows))
        place = rows.schema.get_field_index("seq")
        rows = rows.set_column(place, rows.schema.field(place), seqs)
        run = run_in(rows, gateway=gateway, run_id=run_id)
        name = f"events-{_NO_NAME.sub('_', gateway)}-{run_id}-{seq:012}-{number}.parquet"
        write_whole(folder / name, memoryview(parquet_bytes(rows, [run])))
        seq += rows.num_rows
    return seq - FIRST_SEQ


def _joined(tables: Iterable[pa.Table]) -> Iterator[list[pa.Table]]:
    together: list[pa.Table] = []
    count = 0
    for table in tables:
        together.append(table)
        count += table.num_rows
        if count >= _FILE_ROWS:
            yield together
            together, count = [], 0
    if together:
        yield together
