"""Reads the events table as a DataFrame, from files that were looked at before Spark reads them."""

import logging
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t

from kvota.model.event import EVENT_COLUMNS, ColumnType
from kvota.model.event import Column as RecordColumn
from kvota.model.quota_type import FACTS
from kvota.record.event_file import BadInput
from kvota.record.found_events import find_events

logger = logging.getLogger(__name__)

_SPARK_TYPES: dict[ColumnType, t.DataType] = {
    "long": t.LongType(),
    "int": t.IntegerType(),
    "short": t.ShortType(),
    "double": t.DoubleType(),
    "boolean": t.BooleanType(),
    "string": t.StringType(),
}


def schema_of(columns: Iterable[RecordColumn]) -> t.StructType:
    """Return what Spark reads columns of a record as: any may be missing in an older file, so all are nullable."""
    return t.StructType(
        [t.StructField(column.name, _SPARK_TYPES[column.type], nullable=True) for column in columns]
    )


EVENTS_SCHEMA = schema_of(EVENT_COLUMNS)
BAD_INPUT_SCHEMA = t.StructType(
    [
        t.StructField("source", t.StringType(), nullable=False),
        t.StructField("file", t.StringType(), nullable=False),
        t.StructField("offset", t.LongType(), nullable=False),
        t.StructField("reason", t.StringType(), nullable=False),
        t.StructField("sample", t.BinaryType(), nullable=True),
    ]
)

# Hadoop reads these characters of a path as a pattern.
_PATTERN_CHARACTERS = re.compile(r"([\\*?\[\]{}^])")


def read_events(spark: SparkSession, *paths: Path | str) -> DataFrame:
    """Read the events table from folders or files; bad files are left out, with a warning logged.

    Out: the columns of ``model.event.EVENT_COLUMNS``, null where a file lacks one; but for algorithm,
         which is then the quota type's own first.

    Raises:
        UsageError: as ``find_events``.
    """
    files = find_events(paths)
    for bad in files.bad:
        logger.warning("%s", bad)
    return read_files(spark, files.good)


def hadoop_pattern(uri: str) -> str:
    """Return what Hadoop reads as this one file, whatever characters are in its name."""
    return _PATTERN_CHARACTERS.sub(r"\\\1", uri)


def read_files(spark: SparkSession, files: Sequence[Path | str]) -> DataFrame:
    """Read the events table from files that were found good; a text is a URI."""
    # With a scheme, so that they are on this machine whatever fs.defaultFS says.
    patterns = [
        hadoop_pattern(file if isinstance(file, str) else f"file:{file.absolute()}")
        for file in files
    ]
    rows = spark.read.schema(EVENTS_SCHEMA).parquet(*patterns)
    return rows.withColumn("algorithm", F.coalesce("algorithm", _first_algorithm()))


def bad_input(spark: SparkSession, bad: Iterable[BadInput]) -> DataFrame:
    """Return the table ``bad_input``: source, file, offset, reason, sample."""
    rows = [(item.source, str(item.file), item.offset, item.reason, item.sample) for item in bad]
    return spark.createDataFrame(rows, BAD_INPUT_SCHEMA)


def _first_algorithm() -> Column:
    """Return the algorithm of rows from before there was more than one."""
    names = (
        F.lit(text) for kind in FACTS for text in (kind.value, FACTS[kind].algorithms[0].value)
    )
    return F.try_element_at(F.create_map(*names), F.col("quota_type"))
