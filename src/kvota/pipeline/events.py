"""Reads the events table from kvota's own Parquet files, and checks them before Spark does."""

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t

from kvota.model.errors import UsageError
from kvota.model.event import EVENT_COLUMNS, READABLE_VERSIONS, SCHEMA_VERSION, ColumnType
from kvota.model.event import Column as EventColumn
from kvota.model.quota_type import FACTS
from kvota.record.event_schema import ARROW_TYPES

logger = logging.getLogger(__name__)

_SPARK_TYPES: dict[ColumnType, t.DataType] = {
    "long": t.LongType(),
    "int": t.IntegerType(),
    "short": t.ShortType(),
    "double": t.DoubleType(),
    "boolean": t.BooleanType(),
    "string": t.StringType(),
}

# Every column may be missing in an older file, so Spark sees all of them as nullable.
EVENTS_SCHEMA = t.StructType(
    [
        t.StructField(column.name, _SPARK_TYPES[column.type], nullable=True)
        for column in EVENT_COLUMNS
    ]
)
BAD_INPUT_SCHEMA = t.StructType(
    [
        t.StructField("source", t.StringType(), nullable=False),
        t.StructField("file", t.StringType(), nullable=False),
        t.StructField("offset", t.LongType(), nullable=False),
        t.StructField("reason", t.StringType(), nullable=False),
        t.StructField("sample", t.BinaryType(), nullable=True),
    ]
)

# A file without these columns is not of this table, whatever else it contains.
_ESSENTIAL_COLUMNS = frozenset({"ts_us", "seq", "quota_type", "value"})

# How much of a bad file is kept to look at.
_SAMPLE_BYTES_MAX = 1024

# Hadoop reads these characters of a path as a pattern.
_PATTERN_CHARACTERS = re.compile(r"([\\*?\[\]{}^])")


@dataclass(frozen=True, slots=True)
class BadInput:
    """An input that could not be used; one row of the table ``bad_input``."""

    file: Path
    reason: str
    sample: bytes = b""
    offset: int = 0
    source: str = "events"

    def __str__(self) -> str:
        """Return one line for people."""
        return f"{self.file}: {self.reason}; left out"


@dataclass(frozen=True, slots=True)
class FoundEvents:
    """The files in the folders of a record: those to read, and those to report as bad."""

    good: tuple[Path, ...]
    bad: tuple[BadInput, ...] = field(default=())
    rows: int = 0  # in the good ones, as their footers say


def find_events(paths: Iterable[Path | str]) -> FoundEvents:
    """Look at the footer of every Parquet file in these folders (or at these files).

    Files still being written (``*.tmp``) are passed over silently.

    Raises:
        UsageError: a path does not exist, or nothing that can be read lies there.
    """
    places = [Path(path) for path in paths]
    bad: list[BadInput] = []
    good: list[Path] = []
    rows = 0
    for file in _files(places):
        footer = _footer(file)
        fault = footer if isinstance(footer, str) else _fault(footer)
        if fault is None and isinstance(footer, pq.FileMetaData):
            good.append(file)
            rows += footer.num_rows
        else:
            bad.append(BadInput(file, str(fault), _sample(file)))
    if not good:
        raise UsageError(_nothing_found(places, bad))
    return FoundEvents(tuple(good), tuple(bad), rows)


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


def read_files(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    """Read the events table from files that ``find_events`` found good."""
    patterns = [_PATTERN_CHARACTERS.sub(r"\\\1", str(file.absolute())) for file in files]
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


def _files(places: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            found += sorted(place.rglob("*.parquet"))
        elif place.exists():
            found.append(place)
        else:
            msg = (
                f'"{place}" does not exist. Name the folder the gateway records into '
                "(record.folder in gateway.toml)."
            )
            raise UsageError(msg)
    # The same file named twice would count every decision twice.
    return list(dict.fromkeys(file.resolve() for file in found))


def _footer(file: Path) -> "pq.FileMetaData | str":
    try:
        return pq.read_metadata(file)
    except pa.ArrowInvalid:
        return "not a complete Parquet file (no valid footer)"
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"


def _fault(footer: pq.FileMetaData) -> str | None:
    """Say why this file cannot be read as events; None if it can."""
    try:
        schema = footer.schema.to_arrow_schema()
    except pa.ArrowException as error:
        return f"not an events file ({error})"
    version = (footer.metadata or {}).get(b"schema_version", SCHEMA_VERSION.encode())
    if version not in {readable.encode() for readable in READABLE_VERSIONS}:
        found, readable = version.decode(errors="replace"), " and ".join(READABLE_VERSIONS)
        return f"schema_version {found}, this kvota reads {readable}"
    missing = sorted(_ESSENTIAL_COLUMNS - set(schema.names))
    if len(set(schema.names)) < len(schema.names):
        return "not an events file (two columns of one name)"
    if missing:
        return f"not an events file (no column {', '.join(missing)})"
    wrong = [text for column in EVENT_COLUMNS if (text := _wrong_type(schema, column))]
    return f"not an events file ({'; '.join(wrong)})" if wrong else None


def _wrong_type(schema: pa.Schema, column: EventColumn) -> str:
    """Say that the column has another type; Spark would fail only when it reaches the row group."""
    if column.name not in schema.names:
        return ""
    found = schema.field(column.name).type
    if pa.types.is_dictionary(found):
        found = found.value_type
    if found == pa.large_string():
        found = pa.string()
    wanted = ARROW_TYPES[column.type]
    return "" if found == wanted else f"column {column.name} is {found}, expected {wanted}"


def _sample(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(_SAMPLE_BYTES_MAX)
    except OSError:
        return b""


def _nothing_found(places: Sequence[Path], bad: Sequence[BadInput]) -> str:
    where = ", ".join(f'"{place}"' for place in places)
    if bad:
        return f"no events file in {where} can be read:\n" + "\n".join(f"  {item}" for item in bad)
    return (
        f"no events in {where} (no *.parquet file). The gateway writes a file every few seconds "
        "once traffic flows; look at record.folder in gateway.toml."
    )
