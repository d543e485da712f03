"""What differs between Spark sessions: versions from 3.5 on, Spark Connect, and the settings of whoever made one.

Functions of the pipeline take anybody's session. They read its settings where these matter, and change none.
"""

import re

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kvota.model.errors import UsageError
from kvota.pipeline.chunk_schema import CHUNK_ROWS_MAX

# About so much of a table may be in one Arrow batch, which is held whole: once in the JVM, once in Python.
_BATCH_BYTES_MAX = 256 << 20

# More than most rows take in a chunk, be they charges or parts of seconds.
_ROW_BYTES = 48

# Shorter chunks would be mostly heads.
_CHUNK_ROWS_MIN = 256

# How many rows look for the last partition of a range.
_PROBES = 1 << 16

_SIZE = re.compile(r"(\d+)\s*([bkmgt]?)i?b?", re.IGNORECASE)
_SHIFTS = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}

_BYTES_PER_BATCH = "spark.sql.execution.arrow.maxBytesPerBatch"
_ROWS_PER_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"


def is_connect(spark: SparkSession) -> bool:
    """Return whether Spark is at the other end of Spark Connect, so that no JVM is here."""
    return ".connect." in type(spark).__module__


def refuse_connect(spark: SparkSession, what: str) -> None:
    """Refuse what needs Spark's JVM.

    Raises:
        UsageError: it is at the other end of Spark Connect.
    """
    if is_connect(spark):
        msg = f"{what} cannot be done over Spark Connect, which has no way to it. Use a session of its own: --master"
        raise UsageError(msg)


def parallelism(spark: SparkSession) -> int:
    """Return how many tasks Spark runs at once, as it says itself; over Spark Connect a small job tells."""
    if not is_connect(spark):
        return spark.sparkContext.defaultParallelism
    places = spark.range(_PROBES).select(F.spark_partition_id().alias("place"))
    last = places.agg(F.max("place").alias("last")).head()
    assert last is not None
    return int(last["last"]) + 1


def numbered_tasks(spark: SparkSession, count: int) -> DataFrame:
    """Return the numbers below ``count`` as a table of one column, one for each task, with no shuffle."""
    return spark.range(0, count, 1, numPartitions=count)


def arrow_table(table: DataFrame) -> pa.Table:
    """Bring a small table here."""
    if hasattr(table, "toArrow"):  # since 4.0
        return table.toArrow()
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415  (only for Spark 3.5)

    rows = [row.asDict() for row in table.collect()]
    return pa.Table.from_pylist(rows, schema=to_arrow_schema(table.schema))


def setting(spark: SparkSession, name: str) -> str:
    """Return a setting in force, or Spark's own for it; nothing where this Spark does not know it."""
    try:
        return str(spark.conf.get(name) or "")
    except (PySparkException, Py4JError):
        return ""


def size_bytes(text: str) -> int:
    """Read a size as Spark writes it; 0: none.

    >>> size_bytes("64m"), size_bytes("67108864b"), size_bytes("-1"), size_bytes("")
    (67108864, 67108864, 0, 0)
    """
    found = _SIZE.fullmatch(text.strip())
    return int(found[1]) << _SHIFTS[found[2].lower()] if found else 0


def chunk_rows_max(spark: SparkSession) -> int:
    """Return how long a chunk may be.

    Where a session does not bound the bytes of an Arrow batch, as Spark before 4.1, its rows are to be small.
    """
    most_bytes = size_bytes(setting(spark, _BYTES_PER_BATCH))
    if 0 < most_bytes <= _BATCH_BYTES_MAX:
        return CHUNK_ROWS_MAX
    most_rows = int(setting(spark, _ROWS_PER_BATCH) or 0)
    if most_rows <= 0:
        return _CHUNK_ROWS_MIN
    wanted = _BATCH_BYTES_MAX // (most_rows * _ROW_BYTES)
    return min(CHUNK_ROWS_MAX, max(_CHUNK_ROWS_MIN, wanted))
