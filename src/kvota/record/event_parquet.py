"""Tables of events become Parquet files, with what is in them in the footer."""

import zlib
from collections.abc import Collection, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kvota.model.decision_sink import ADMITTED, NO_ANSWER, ChargeMemo
from kvota.model.quota_type import Algorithm, QuotaType
from kvota.record.clustered import ORDER
from kvota.record.event_file import SOURCES_KEY, sources_text
from kvota.record.event_table import event_table
from kvota.record.own_texts import with_own_texts
from kvota.record.row_batch import ROW, ROW_BYTES, RowBatch
from kvota.record.runs import RUNS_KEY, Run, runs_text
from kvota.record.valid_texts import RUN_COLUMNS

# These numbers grow: written as differences a row takes 7.1 bytes in all instead of 12.6.
_DELTA_COLUMNS = ("ts_us", "seq")

# Readers take so much at once; larger groups save nothing any more.
ROW_GROUP_ROWS = 1 << 20

# Where rows lie counter by counter, readers take a group for a few counters, and skip columns that are the same in
# all of its rows, which the statistics tell.
_MERGED_GROUP_ROWS = 1 << 16

# The first group of a merged file is shorter, by one of so many lengths. Files of a record have about the same
# counters: so their groups begin at different ones, and readers can cut the record between any two of these.
_FIRST_GROUP_LENGTHS = 16


def parquet_bytes(
    table: pa.Table, runs: Collection[Run], *, sources: Collection[str] = ()
) -> pa.Buffer:
    """Return the table as one Parquet file, in memory.

    Args:
        table: with ``event_schema.WRITE_SCHEMA``.
        runs: whose rows these are.
        sources: the names of the files that were merged into it.
    """
    metadata = {**table.schema.metadata, RUNS_KEY: runs_text(runs)}
    if sources:
        metadata[SOURCES_KEY] = sources_text(sources)
    out = pa.BufferOutputStream()
    with pq.ParquetWriter(
        out,
        table.schema,
        compression="zstd",
        use_dictionary=[name for name in table.column_names if name not in _DELTA_COLUMNS],
        column_encoding=dict.fromkeys(_DELTA_COLUMNS, "DELTA_BINARY_PACKED"),
        # Of all columns of files as gateways write them: 20 % more time, and nobody asks. Where they show that all rows are of
        # the run that the footer names, readers leave these two columns out.
        write_statistics=True if sources else [*_DELTA_COLUMNS, *RUN_COLUMNS],
        sorting_columns=_sorting_columns(table.schema) if sources else None,
        store_schema=False,  # readers shall see plain strings, not our dictionaries
        write_page_checksum=True,  # so that ``kvota record check`` finds a bit that has changed
    ) as writer:
        if sources:
            for start, length in _merged_groups(table.num_rows, sources):
                writer.write_table(with_own_texts(table.slice(start, length)))
        else:
            writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        writer.add_key_value_metadata(metadata)
    return out.getvalue()


def _sorting_columns(schema: pa.Schema) -> list[pq.SortingColumn]:
    """Say that rows lie in the order of counters: who writes the file anew in another one does not say so."""
    return [pq.SortingColumn(schema.get_field_index(name)) for name in ORDER]


def _merged_groups(rows: int, sources: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yield where each row group of a merged file begins, and its length at most."""
    digest = zlib.crc32("\0".join(sorted(sources)).encode())
    lengths = _FIRST_GROUP_LENGTHS
    first = max(1, _MERGED_GROUP_ROWS * (digest % lengths + 1) // lengths)
    yield 0, first
    for start in range(first, rows, _MERGED_GROUP_ROWS):
        yield start, _MERGED_GROUP_ROWS


def run_in(table: pa.Table, *, gateway: str, run_id: str) -> Run:
    """Return what a table holds of the one run that its rows are of; it has a row at least."""
    seq, ts_us = (pc.min_max(table[name]).as_py() for name in ("seq", "ts_us"))
    return Run(gateway, run_id, seq["min"], seq["max"], table.num_rows, ts_us["min"], ts_us["max"])


def warm_up() -> None:
    """Write one row to memory: the first Arrow array and the first Parquet file cost far more than others."""
    memo = ChargeMemo(
        node_id=0,
        quota_type=QuotaType.PRODUCE,
        connection=0,
        user="",
        client_id="",
        tags="",
        api_key=0,
        api_version=0,
        limit=None,
        samples=0,
        sample_ms=0,
        algorithm=Algorithm.SAMPLED_RATE,
        enforced=False,
    )
    batch = RowBatch(1)
    ROW.pack_into(batch.rows, 0, 0, 0, 0.0, 0, NO_ANSWER, 0, ADMITTED)
    table = event_table(batch.columns(0, ROW_BYTES), [memo], gateway="", run_id="")
    parquet_bytes(table, [run_in(table, gateway="", run_id="")])
