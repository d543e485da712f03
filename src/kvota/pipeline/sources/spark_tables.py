"""Tables that Spark itself reads: of its catalogs, of other storage, of other formats."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePosixPath

from pyspark.sql import DataFrame, SparkSession

from kvota.pipeline.sources.table_files import format_of

# Spark refuses Parquet's nanoseconds, unless they are read as numbers.
_NANOSECONDS = "spark.sql.legacy.parquet.nanosAsLong"
_FORMAT = re.compile(r"([A-Za-z][A-Za-z0-9_.]*):(?!//)(.+)", re.DOTALL)
_CATALOG_TABLE = re.compile(r"[^\s/.:\\]+(\.[^\s/.:\\]+)+")
_OF_ENDING: Mapping[str, tuple[str, dict[str, str]]] = {
    "CSV": ("csv", {"header": "true"}),
    "JSON lines": ("json", {}),
}


def is_catalog_table(place: str) -> bool:
    """Return whether a place is the name of a table in one of Spark's catalogs.

    >>> is_catalog_table("audit.kafka.requests"), is_catalog_table("requests.csv")
    (True, False)
    """
    return _CATALOG_TABLE.fullmatch(place) is not None and format_of(PurePosixPath(place)) is None


def format_and_place(place: str) -> tuple[str, str] | None:
    """Return what a place like ``delta:/tables/requests`` names; None: no format stands in front.

    >>> format_and_place("orc:s3a://bucket/requests"), format_and_place("s3a://bucket/requests")
    (('orc', 's3a://bucket/requests'), None)
    """
    match = _FORMAT.fullmatch(place)
    return None if match is None else (match[1], match[2])


@contextmanager
def nanoseconds_as_numbers(spark: SparkSession) -> Iterator[None]:
    """Have Spark read nanoseconds of Parquet as numbers."""
    before = spark.conf.get(_NANOSECONDS, None)
    spark.conf.set(_NANOSECONDS, "true")
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_NANOSECONDS)
        else:
            spark.conf.set(_NANOSECONDS, before)


def open_table(spark: SparkSession, place: str) -> DataFrame:
    """Return a table; what is wrong with it is often told only when it is read.

    Raises:
        PySparkException: there is none.
    """
    if is_catalog_table(place):
        return spark.table(place)
    named = format_and_place(place)
    if named is not None:
        return spark.read.format(named[0]).load(named[1])
    ending = format_of(PurePosixPath(place)) or "Parquet"
    format_, options = _OF_ENDING.get(ending, ("parquet", {}))
    return spark.read.format(format_).options(**options).load(place)
