"""Puts the rows of several files together, counter by counter."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kvota.model.quota_type import FACTS
from kvota.record.event_schema import WRITE_SCHEMA
from kvota.record.valid_texts import refuse_fewer_rows, refuse_invalid_texts

_Array = np.ndarray[Any, np.dtype[Any]]

_TEXTS = [field.name for field in WRITE_SCHEMA if pa.types.is_dictionary(field.type)]

# The order of counters: a tenant's are neighbours, of whatever broker and run they are.
ORDER = ("quota_type", "tags", "node_id", "gateway", "run_id")

# Combinations of names are counted with whole numbers up to this.
_CODES_MAX = 2**62


class UnfitError(Exception):
    """A file cannot be merged; the text says why."""


def read_rows(path: Path) -> pa.Table:
    """Read all of a file, as ``event_schema.WRITE_SCHEMA`` has it.

    Raises:
        UnfitError: it cannot be read, or has nulls where there are none.
        FileNotFoundError: it is gone.
    """
    try:
        footer = pq.read_metadata(path)
        texts = [name for name in footer.schema.names if name in _TEXTS]
        with pq.ParquetFile(
            path, metadata=footer, read_dictionary=texts, page_checksum_verification=True
        ) as source:
            rows = source.read()
        refuse_invalid_texts(rows)
        refuse_fewer_rows(rows.num_rows, footer.num_rows)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        msg = f"its rows cannot be read ({error})"
        raise UnfitError(msg) from error
    return as_written(rows)


def as_written(rows: pa.Table) -> pa.Table:
    """Return rows of any version that is read here as ``event_schema.WRITE_SCHEMA`` has them.

    Raises:
        UnfitError: they lack a column, or have nulls where there are none.
    """
    if "algorithm" not in rows.column_names:
        rows = rows.append_column("algorithm", _first_algorithms(rows["quota_type"]))
    for field in WRITE_SCHEMA:
        if field.nullable and field.name not in rows.column_names:  # of an older version
            rows = rows.append_column(field.name, pa.nulls(rows.num_rows, field.type))
    missing = sorted(set(WRITE_SCHEMA.names) - set(rows.column_names))
    if missing:
        msg = f"it has no column {', '.join(missing)}"
        raise UnfitError(msg)
    columns = [rows[field.name].cast(field.type) for field in WRITE_SCHEMA]
    for column, field in zip(columns, WRITE_SCHEMA, strict=True):
        if column.null_count and not field.nullable:
            msg = f"column {field.name} has nulls"
            raise UnfitError(msg)
    return pa.Table.from_arrays(columns, schema=WRITE_SCHEMA)


def clustered(tables: Sequence[pa.Table]) -> pa.Table:
    """Return all rows, those of a counter together and in the order of seq."""
    rows = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    order = np.lexsort((rows["seq"].to_numpy(), _counters(rows)))
    return rows.take(pa.array(order))


def _counters(rows: pa.Table) -> _Array:
    """Return a number for each row's counter, in the order of their names."""
    counters = np.zeros(rows.num_rows, np.int64)
    count = 1
    for name in ORDER:
        column = rows[name].combine_chunks()
        codes, codes_count = _ranked(column) if name in _TEXTS else _numbered(column)
        if count * codes_count > _CODES_MAX:
            there, counters = np.unique(counters, return_inverse=True)
            count = len(there)
        counters = counters * codes_count + codes
        count *= codes_count
    return counters


def _ranked(column: pa.ChunkedArray | pa.DictionaryArray) -> tuple[_Array, int]:
    encoded = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks[encoded.indices.to_numpy()], max(1, len(order))


def _numbered(column: pa.ChunkedArray | pa.Array) -> tuple[_Array, int]:
    numbers = column.to_numpy().astype(np.int64)
    least = int(numbers.min())
    return numbers - least, int(numbers.max()) - least + 1


def _first_algorithms(quota_types: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the algorithm of rows from before there was more than one."""
    texts = quota_types.cast(pa.string())
    names = pa.array([kind.value for kind in FACTS])
    firsts = pa.array([FACTS[kind].algorithms[0].value for kind in FACTS])
    found = firsts.take(pc.index_in(texts.combine_chunks(), names))
    return pa.chunked_array([found])
