"""Looks at one file of events: its footer says what is in it, or why it cannot be used."""

import json
import os
import stat
import zlib
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kvota.model.event import (
    ADDED_COLUMNS,
    EVENT_COLUMNS,
    READABLE_VERSIONS,
    SCHEMA_VERSION,
)
from kvota.model.event import Column as EventColumn
from kvota.record.event_schema import ARROW_TYPES, EVENT_SCHEMA
from kvota.record.period import Period
from kvota.record.runs import RUNS_KEY, Run, parsed_runs
from kvota.record.valid_texts import refuse_fewer_rows, refuse_invalid_texts

# A file without these columns is not of this table, whatever else it contains.
_ESSENTIAL_COLUMNS = frozenset({"ts_us", "seq", "gateway", "run_id", "quota_type", "value"})

# How much of a bad file is kept to look at.
_SAMPLE_BYTES_MAX = 1024

# The key of a compacted file's footer under which the names of the files stand that were merged into it.
SOURCES_KEY = "sources"

# More text than that is no list of names of ours (an hour of files of one row each has 200 KB).
_SOURCES_BYTES_MAX = 64 * 1024**2


@dataclass(frozen=True, slots=True)
class BadInput:
    """An input that could not be used; one row of the table ``bad_input``."""

    file: Path | str  # a URI where it is not on this machine
    reason: str
    sample: bytes = b""
    offset: int = 0
    source: str = "events"

    def __str__(self) -> str:
        """Return one line for people."""
        return f"{self.file}: {self.reason}; left out"


@dataclass(frozen=True, slots=True)
class EventFile:
    """One file of events, as it was when it was looked at.

    Attributes:
        path: absolute, without links; of a file that is not on this machine its URI, for its name and folder.
        size_bytes: of the file.
        modified_ns: Unix nanoseconds.
        rows: of all its runs.
        runs: whose rows are in it.
        is_plain: its columns are those of the table (of its version), none fewer and none more.
        lacking: the columns of the table (of its version) that it has not: rows are read as without a value there.
        sources: the names of all files that were merged into it, in any number of steps; empty: none were,
            and a gateway wrote it.
        uri: of a file that is not on this machine; else empty.
    """

    path: Path
    size_bytes: int
    modified_ns: int
    rows: int
    runs: tuple[Run, ...]
    is_plain: bool = True
    lacking: tuple[str, ...] = ()
    sources: frozenset[str] = frozenset()
    uri: str = ""

    @property
    def place(self) -> str:
        """Return where it is, for people and for programs that open it."""
        return self.uri or str(self.path)

    @property
    def is_compacted(self) -> bool:
        """Return whether it was made of others; ``sorting_columns`` say whether its rows lie counter by counter."""
        return bool(self.sources)

    @property
    def first_us(self) -> int:
        """Return when its first decision was made, Unix microseconds; 0 without any."""
        return min((run.first_us for run in self.runs), default=0)

    @property
    def last_us(self) -> int:
        """Return when its last decision was made, Unix microseconds; 0 without any."""
        return max((run.last_us for run in self.runs), default=0)

    def is_within(self, period: Period) -> bool:
        """Return whether rows of the period may be in it."""
        return any(
            run.first_us < period.until_us and run.last_us >= period.since_us for run in self.runs
        )

    def is_unchanged(self) -> bool:
        """Return whether the same file is still there."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return False
        return (status.st_size, status.st_mtime_ns) == (self.size_bytes, self.modified_ns)


def look_at(path: Path) -> EventFile | BadInput | None:
    """Return what the file holds; None if it was removed meanwhile, as old ones are."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode(errors="backslashreplace")
        return BadInput(shown, "its path is no UTF-8; rename it")
    try:
        status = path.stat()
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            return BadInput(path, "is no file, but a pipe, a socket or a device")
        if stat.S_ISDIR(status.st_mode) and path.is_symlink():
            return BadInput(
                path, "a link to a folder, which is not followed; name that folder, too"
            )
        with pa.OSFile(str(path)) as source:
            found = read_footer(source)
    except FileNotFoundError:
        return None
    except NoEventsError as error:
        fault = str(error)
    except OSError as error:
        fault = f"cannot be read ({error.strerror or error})"
    else:
        return replace(found, path=path, size_bytes=status.st_size, modified_ns=status.st_mtime_ns)
    return BadInput(path, fault, _sample(path))


class NoEventsError(Exception):
    """A file is no whole file of events; the text says why."""


def read_footer(source: pa.NativeFile) -> EventFile:
    """Return what a file holds, without saying which one it is.

    Raises:
        NoEventsError: it is no whole file of events.
        OSError: it cannot be read.
    """
    try:
        footer = pq.read_metadata(source)
        fault = _fault(footer)
        if fault is None:
            return EventFile(
                Path(),
                0,
                0,
                footer.num_rows,
                _runs(source, footer),
                *_other_columns(footer),
                _sources(footer),
            )
    except (pa.ArrowInvalid, UnicodeDecodeError):  # the latter of a column's name
        fault = "not a complete Parquet file (no valid footer)"
    except _UnnamedRunError:
        fault = "not an events file (rows without gateway or run_id)"
    except pa.ArrowException as error:
        fault = f"not an events file ({error})"
    raise NoEventsError(fault)


def sources_text(names: Iterable[str]) -> str:
    """Write the names of merged files for a footer; they resemble each other, so they are compressed."""
    return b64encode(zlib.compress(json.dumps(sorted(names)).encode())).decode()


class _UnnamedRunError(Exception):
    """Rows do not say which run they are of."""


def _sources(footer: pq.FileMetaData) -> frozenset[str]:
    text = (footer.metadata or {}).get(SOURCES_KEY.encode())
    if text is None:
        return frozenset()
    try:
        unpacked = zlib.decompressobj().decompress(b64decode(text), _SOURCES_BYTES_MAX)
        names = json.loads(unpacked)
    except (ValueError, zlib.error, RecursionError):
        return frozenset()
    if not isinstance(names, list):
        return frozenset()
    return frozenset(name for name in names if isinstance(name, str))


def _runs(source: pa.NativeFile, footer: pq.FileMetaData) -> tuple[Run, ...]:
    """Return the runs in a file: as its footer names them, else from two short columns, else from four."""
    if not footer.num_rows:
        return ()
    text = (footer.metadata or {}).get(RUNS_KEY.encode())
    named = None if text is None else parsed_runs(text, rows=footer.num_rows)
    if named is not None:
        return named
    texts = ["gateway", "run_id"]
    with pq.ParquetFile(source, metadata=footer, read_dictionary=texts) as file:
        return _runs_in(file)


def _runs_in(file: pq.ParquetFile) -> tuple[Run, ...]:
    names = file.read(["gateway", "run_id"], use_threads=False)
    try:
        refuse_invalid_texts(names)
        refuse_fewer_rows(names.num_rows, file.metadata.num_rows)
    except pa.ArrowInvalid as error:
        msg = f"not an events file ({error})"
        raise NoEventsError(msg) from error
    if names["gateway"].null_count or names["run_id"].null_count:
        raise _UnnamedRunError
    pair = [names[name].unify_dictionaries().chunk(0).dictionary for name in names.column_names]
    seqs, times = _bounds(file.metadata, "seq"), _bounds(file.metadata, "ts_us")
    if len(pair[0]) == len(pair[1]) == 1 and seqs is not None and times is not None:
        gateway, run_id = (texts[0].as_py() for texts in pair)
        return (Run(gateway, run_id, *seqs, file.metadata.num_rows, *times),)
    rows = file.read(["gateway", "run_id", "seq", "ts_us"], use_threads=False)
    for name in ("seq", "ts_us"):
        if rows[name].null_count:
            msg = f"not an events file (column {name} has nulls)"
            raise NoEventsError(msg)
    return runs_in_table(rows)


def runs_in_table(rows: pa.Table) -> tuple[Run, ...]:
    """Return the runs of some rows.

    In: gateway, run_id, seq, ts_us.
    """
    # Each row group may have texts of its own, which cannot be grouped together.
    same_texts = rows.unify_dictionaries()
    of_runs = same_texts.group_by(["gateway", "run_id"], use_threads=False).aggregate(
        [("seq", "min"), ("seq", "max"), ("seq", "count"), ("ts_us", "min"), ("ts_us", "max")]
    )
    names_of = ("gateway", "run_id", "seq_min", "seq_max", "seq_count", "ts_us_min", "ts_us_max")
    return tuple(Run(*(row[name] for name in names_of)) for row in of_runs.to_pylist())


def _bounds(metadata: pq.FileMetaData, name: str) -> tuple[int, int] | None:
    """Return the smallest and the largest number of a column, if the footer has them."""
    place = metadata.schema.names.index(name)
    least: list[int] = []
    most: list[int] = []
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(place).statistics
        if statistics is None or not statistics.has_min_max or statistics.null_count:
            return None
        least.append(statistics.min)
        most.append(statistics.max)
    return min(least), max(most)


def _version(footer: pq.FileMetaData) -> str:
    version: bytes = (footer.metadata or {}).get(b"schema_version", SCHEMA_VERSION.encode())
    return version.decode(errors="replace")


def _other_columns(footer: pq.FileMetaData) -> tuple[bool, tuple[str, ...]]:
    """Return whether a file's columns are those of the table (of its version), and which of these it has not."""
    version = _version(footer)
    wanted = {column.name for column in EVENT_COLUMNS}
    for later, added in ADDED_COLUMNS.items():
        if later > version:
            wanted -= added
    there = set(footer.schema.names)
    return there == wanted, tuple(sorted(wanted - there))


def _fault(footer: pq.FileMetaData) -> str | None:
    """Say why this file cannot be read as events; None if it can."""
    version = _version(footer)
    if version not in READABLE_VERSIONS:
        return f"schema_version {version}, this kvota reads {', '.join(READABLE_VERSIONS)}"
    schema = footer.schema.to_arrow_schema()
    # As most files of a record have it, of which there may be thousands.
    if schema.equals(EVENT_SCHEMA):
        return None
    missing = sorted(_ESSENTIAL_COLUMNS - set(schema.names))
    if len(set(schema.names)) < len(schema.names):
        return "not an events file (two columns of one name)"
    if parts := _parts_called_like_columns(footer, schema):
        return f"not an events file (a part of another column is called {parts[0]})"
    if missing:
        return f"not an events file (no column {', '.join(missing)})"
    wrong = [text for column in EVENT_COLUMNS if (text := _wrong_type(schema, column))]
    return f"not an events file ({'; '.join(wrong)})" if wrong else None


def _parts_called_like_columns(footer: pq.FileMetaData, schema: pa.Schema) -> list[str]:
    """Return parts of nested columns that have the name of a column of the table; who looks by names would take them for it."""
    known = {column.name for column in EVENT_COLUMNS}
    parts = Counter(name for name in footer.schema.names if name in known)
    parts.subtract(name for name in schema.names if not pa.types.is_nested(schema.field(name).type))
    return sorted(name for name, more in parts.items() if more > 0)


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
