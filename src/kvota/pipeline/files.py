"""Finds the files of a record, and says from their footers which runs they hold; without Spark."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kvota.model.errors import UsageError
from kvota.model.event import EVENT_COLUMNS, READABLE_VERSIONS, SCHEMA_VERSION
from kvota.model.event import Column as EventColumn
from kvota.pipeline.chunk_schema import Period
from kvota.record.event_schema import ARROW_TYPES

# A file without these columns is not of this table, whatever else it contains.
_ESSENTIAL_COLUMNS = frozenset({"ts_us", "seq", "gateway", "run_id", "quota_type", "value"})

# How much of a bad file is kept to look at.
_SAMPLE_BYTES_MAX = 1024

# Footers are looked at by so many threads: mostly they wait for the disk.
_THREADS = 8

# A run counts as complete if it begins with this seq or a lower one. seq counts from 0, and one lost
# row would hardly change anything.
_FIRST_SEQ_MAX = 1


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


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """What is there of one run of a gateway; seq has no gaps in a run."""

    gateway: str
    run_id: str
    first_seq: int
    last_seq: int
    rows: int
    first_us: int
    last_us: int

    @property
    def is_complete(self) -> bool:
        """Return whether its first rows are there."""
        return self.first_seq <= _FIRST_SEQ_MAX

    @property
    def missing(self) -> int:
        """Return how many rows were lost in between; negative: some are there twice."""
        return self.last_seq - self.first_seq + 1 - self.rows

    def joined(self, other: "Run") -> "Run":
        """Return what is there of a run in two places."""
        return Run(
            self.gateway,
            self.run_id,
            min(self.first_seq, other.first_seq),
            max(self.last_seq, other.last_seq),
            self.rows + other.rows,
            min(self.first_us, other.first_us),
            max(self.last_us, other.last_us),
        )


@dataclass(frozen=True, slots=True)
class EventFile:
    """One file of events, as it was when it was looked at."""

    path: Path
    size_bytes: int
    modified_ns: int
    rows: int
    runs: tuple[Run, ...]

    def is_within(self, period: Period) -> bool:
        """Return whether rows of the period may be in it."""
        return any(
            run.first_us < period.until_us and run.last_us >= period.since_us for run in self.runs
        )


@dataclass(frozen=True, slots=True)
class FoundEvents:
    """The files in the folders of a record: those to read, and those to report as bad."""

    files: tuple[EventFile, ...]
    bad: tuple[BadInput, ...] = field(default=())

    @property
    def good(self) -> tuple[Path, ...]:
        """Return the files to read."""
        return tuple(file.path for file in self.files)

    @property
    def rows(self) -> int:
        """Return how many rows are in them."""
        return sum(file.rows for file in self.files)

    @property
    def runs(self) -> tuple[Run, ...]:
        """Return the runs in them."""
        return joined_runs(run for file in self.files for run in file.runs)


def joined_runs(parts: Iterable[Run]) -> tuple[Run, ...]:
    """Return one ``Run`` per gateway and run_id, in their order."""
    runs: dict[tuple[str, str], Run] = {}
    for part in parts:
        key = (part.gateway, part.run_id)
        runs[key] = runs[key].joined(part) if key in runs else part
    return tuple(runs[key] for key in sorted(runs))


def find_events(paths: Iterable[Path | str]) -> FoundEvents:
    """Look at the footer of every Parquet file in these folders (or at these files).

    Files still being written (``*.tmp``) are passed over silently.

    Raises:
        UsageError: a path does not exist, nothing that can be read lies there, or two files hold the
            same rows.
    """
    places = [Path(path) for path in paths]
    with ThreadPoolExecutor(_THREADS) as pool:
        looked_at = list(pool.map(_look_at, _files(places)))
    bad = tuple(item for item in looked_at if isinstance(item, BadInput))
    good = tuple(item for item in looked_at if isinstance(item, EventFile))
    if not good:
        raise UsageError(_nothing_found(places, bad))
    _refuse_copies(good)
    return FoundEvents(good, bad)


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


def _look_at(path: Path) -> EventFile | BadInput | None:
    """Return what the file holds; None if it was removed meanwhile, as old ones are."""
    try:
        status = path.stat()
        footer = pq.read_metadata(path)
        fault = _fault(footer)
        if fault is None:
            runs = _runs(path, footer)
            return EventFile(path, status.st_size, status.st_mtime_ns, footer.num_rows, runs)
    except FileNotFoundError:
        return None
    except pa.ArrowInvalid:
        fault = "not a complete Parquet file (no valid footer)"
    except _UnnamedRunError:
        fault = "not an events file (rows without gateway or run_id)"
    except OSError as error:
        fault = f"cannot be read ({error.strerror or error})"
    except pa.ArrowException as error:
        fault = f"not an events file ({error})"
    return BadInput(path, fault, _sample(path))


class _UnnamedRunError(Exception):
    """Rows do not say which run they are of."""


def _runs(path: Path, footer: pq.FileMetaData) -> tuple[Run, ...]:
    """Return the runs in a file: as a gateway writes them from two short columns, else from four."""
    if not footer.num_rows:
        return ()
    texts = ["gateway", "run_id"]
    with pq.ParquetFile(path, metadata=footer, read_dictionary=texts) as file:
        return _runs_in(file)


def _runs_in(file: pq.ParquetFile) -> tuple[Run, ...]:
    names = file.read(["gateway", "run_id"], use_threads=False)
    if names["gateway"].null_count or names["run_id"].null_count:
        raise _UnnamedRunError
    pair = [names[name].unify_dictionaries().chunk(0).dictionary for name in names.column_names]
    seqs, times = _bounds(file.metadata, "seq"), _bounds(file.metadata, "ts_us")
    if len(pair[0]) == len(pair[1]) == 1 and seqs is not None and times is not None:
        gateway, run_id = (texts[0].as_py() for texts in pair)
        return (Run(gateway, run_id, *seqs, file.metadata.num_rows, *times),)
    rows = file.read(["gateway", "run_id", "seq", "ts_us"], use_threads=False)
    of_runs = rows.group_by(["gateway", "run_id"], use_threads=False).aggregate(
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


def _fault(footer: pq.FileMetaData) -> str | None:
    """Say why this file cannot be read as events; None if it can."""
    schema = footer.schema.to_arrow_schema()
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


def _refuse_copies(files: Iterable[EventFile]) -> None:
    """Refuse a second file with the rows of a first one: every decision would count twice."""
    first_with: dict[tuple[str, str, int], EventFile] = {}
    for file in files:
        for run in file.runs:
            before = first_with.setdefault((run.gateway, run.run_id, run.first_seq), file)
            if before is not file:
                msg = (
                    f'"{file.path}" holds rows that "{before.path}" holds, too (gateway {run.gateway}, '
                    f"run {run.run_id}, from seq {run.first_seq} on): every decision would count twice. "
                    "Name each folder once, and no copy of it"
                )
                raise UsageError(msg)


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
