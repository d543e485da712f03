"""Leaves out texts that no row has: a part of a table has all of the table's in its dictionaries. Pure."""

import numpy as np
import pyarrow as pa


def with_own_texts(rows: pa.Table) -> pa.Table:
    """Return the same rows; each dictionary has only the texts that some row has."""
    columns = [own_texts(column.combine_chunks()) for column in rows.columns]
    return pa.Table.from_arrays(columns, schema=rows.schema)


def own_texts(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return a column with only the texts that it has; one that is no dictionary in one piece as it is."""
    if isinstance(column, pa.ChunkedArray) or not pa.types.is_dictionary(column.type):
        return column
    indices = column.indices
    is_null = indices.is_null().to_numpy(zero_copy_only=False) if indices.null_count else None
    codes = indices.fill_null(0).to_numpy()
    is_used = np.zeros(len(column.dictionary), np.bool_)
    is_used[codes if is_null is None else codes[~is_null]] = True
    codes_now = (np.cumsum(is_used) - 1).astype(np.int32)
    own = codes_now[codes] if len(codes_now) else np.zeros(len(codes), np.int32)
    texts = column.dictionary.filter(pa.array(is_used))
    return pa.DictionaryArray.from_arrays(pa.array(own, mask=is_null), texts)
