"""Turns Arrow columns into the arrays that the kernels are compiled for, and Arrow's schemas into Spark's."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]

_SPARK_TYPES = {
    pa.string(): "string",
    pa.binary(): "binary",
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float64(): "double",
    pa.timestamp("us", tz="UTC"): "timestamp",
}


def spark_ddl(schema: pa.Schema) -> str:
    """Return the same columns as Spark's DDL has them.

    >>> spark_ddl(pa.schema([("tags", pa.string()), ("seq", pa.int64())]))
    'tags string, seq long'
    """
    return ", ".join(f"{field.name} {_SPARK_TYPES[field.type]}" for field in schema)


def arrays(
    batch: pa.RecordBatch | pa.Table, names: Iterable[str] | None = None
) -> dict[str, Array]:
    """Return columns of numbers and flags as int64, float64 or bool; a null double becomes NaN.

    Always copies: Arrow's own arrays are read-only, or not, depending on whether there are nulls, and
    Numba would compile a kernel for each combination.
    """
    wanted = batch.schema.names if names is None else names
    return {name: _array(batch.column(name)) for name in wanted}


def _array(column: pa.Array | pa.ChunkedArray) -> Array:
    values: Array = (
        column.to_numpy()
        if isinstance(column, pa.ChunkedArray)
        else column.to_numpy(zero_copy_only=False)
    )
    if pa.types.is_boolean(column.type):
        return np.array(values, np.bool_)
    return np.array(values, np.float64 if pa.types.is_floating(column.type) else np.int64)
