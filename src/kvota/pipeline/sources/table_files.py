"""Finds the files of somebody's table on this machine, and says what is in them before they are read."""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from kvota.model.errors import NegativeError, UnreachableError, UsageError
from kvota.pipeline.sources.log_lines import (
    GZ_ERRORS,
    LINE_BYTES_MAX,
    Ending,
    Line,
    lines_of,
    open_log,
)
from kvota.pipeline.sources.table_rows import Column
from kvota.pipeline.sources.table_times import Cell

# By the end of a file's name, with or without .gz behind it.
_FORMATS = {
    ".parquet": "Parquet",
    ".csv": "CSV",
    ".tsv": "CSV",
    ".jsonl": "JSON lines",
    ".ndjson": "JSON lines",
    ".json": "JSON lines",
}
# Folders that hold more than what the table has now: only who knows their logs can read them.
_LOGS = {"_delta_log": "delta", ".hoodie": "hudi", "metadata": "iceberg"}

# So many rows of a file are looked at before the work, of so many files.
_LOOKED_AT_ROWS, _LOOKED_AT_FILES = 1000, 20
# And so many rows of texts behind those, for how long rows are.
_OTHERS_ROWS = 20
# So many rows are taken at once.
BATCH_ROWS = 65_536
# A packed text unpacks to about so many times its bytes.
_UNPACKED = 8
# So much of a text's end is looked at.
_END_BYTES = 64 << 10
_BOM = b"\xef\xbb\xbf"
_DELIMITERS = ",;\t|"
_NAMED = 5

_NO_FILE = re.compile(r"[._]")


class TextRow(NamedTuple):
    """A row of a text.

    Attributes:
        offset: where it begins.
        cells: what it says, by column; or why it cannot be read.
        sample: of one that cannot be read.
        lines: so many it has, or has swallowed.
    """

    offset: int
    cells: dict[str, Cell] | str
    sample: str = ""
    lines: int = 1


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a table.

    Attributes:
        path: of it.
        format: of it, in words.
        columns: their names.
        rows: how many; about so many in a text.
        first: some of its first rows, by column.
        group_rows: how many each row group has, of Parquet.
        is_exact: the number of rows is known.
    """

    path: Path
    format: str
    columns: tuple[str, ...]
    rows: int
    first: dict[str, Column]
    group_rows: tuple[int, ...] = ()
    is_exact: bool = True

    @property
    def size_bytes(self) -> int:
        """Return its size as it lies there."""
        return self.path.stat().st_size


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The files of a table.

    Attributes:
        files: at least one, all of one format.
        bad: why others cannot be read.
    """

    files: tuple[TableFile, ...]
    bad: tuple[tuple[Path, str], ...] = ()

    @property
    def typical(self) -> TableFile:
        """Return the first one that has rows."""
        return next((file for file in self.files if file.rows), self.files[0])

    @property
    def rows(self) -> int:
        """Return about how many rows they have."""
        return sum(file.rows for file in self.files)


def find_table_files(place: Path) -> FoundFiles:
    """Look at the files of a table: one file, or all in a folder and those below it.

    Raises:
        UsageError: there is none that can be read.
        NegativeError: they have no row.
        UnreachableError: a file cannot be opened.
    """
    bad: list[tuple[Path, str]] = []
    files = []
    for number, path in enumerate(_listed(place)):
        try:
            file = _look_at(path, is_looked_into=number < _LOOKED_AT_FILES)
        except (OSError, *GZ_ERRORS) as error:
            if isinstance(error, OSError) and error.errno is not None:
                msg = f"{path} cannot be read: {error.strerror}"
                raise UnreachableError(msg) from error
            bad.append((path, f"it cannot be read ({_short(error)})"))
            continue
        except (pa.ArrowException, ValueError) as error:
            bad.append((path, f"it cannot be read ({_short(error)})"))
            continue
        files.append(file)
    if not any(file.rows for file in files) and not bad:
        msg = f'"{place}" has no row'
        raise NegativeError(msg)
    if not files:
        told = "".join(f"\n  {path}: {reason}" for path, reason in bad[:_NAMED])
        msg = f'"{place}": no file of it can be read{told}'
        raise UsageError(msg)
    formats = {file.format for file in files}
    if len(formats) > 1:
        msg = (
            f'"{place}" has files of {" and of ".join(sorted(formats))}: name a folder of one kind'
        )
        raise UsageError(msg)
    return FoundFiles(tuple(files), tuple(bad))


def format_of(path: PurePath) -> str | None:
    """Return the format that a file's name says; None: none that is read here."""
    suffixes = path.suffixes[-2:]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
        return _FORMATS.get(suffixes[-1]) if suffixes and suffixes[-1] != ".parquet" else None
    return _FORMATS.get(path.suffix)


def _listed(place: Path) -> list[Path]:
    if place.is_file():
        if format_of(place) is None:
            msg = (
                f'"{place}": what is it? Files of a table end with {", ".join(_FORMATS)} (texts with .gz behind it, too); '
                "of another format, name it in front: orc:FILE"
            )
            raise UsageError(msg)
        return [place]
    if not place.is_dir():
        msg = f'"{place}" does not exist. Name a file, a folder of files, or a table that Spark knows (catalog.table)'
        raise UsageError(msg)
    for name, format_ in _LOGS.items():
        log = place / name
        if log.is_dir() and (format_ != "iceberg" or any(log.glob("*.metadata.json"))):
            msg = (
                f'"{place}" is a table of {format_}, and some of its files may not count any more: name it as '
                f"{format_}:{place}, with its package in --conf spark.jars.packages=…"
            )
            raise UsageError(msg)
    found = sorted(
        path
        for path in place.rglob("*")
        if format_of(path) is not None
        and path.is_file()
        and not any(_NO_FILE.match(part) for part in path.relative_to(place).parts)
    )
    if not found:
        msg = f'"{place}" has no file that ends with {", ".join(_FORMATS)}'
        raise UsageError(msg)
    return found


def _look_at(path: Path, *, is_looked_into: bool) -> TableFile:
    format_ = format_of(path) or ""
    if format_ == "Parquet":
        return _parquet(path, is_looked_into=is_looked_into)
    if not path.stat().st_size:
        return TableFile(path, format_, (), 0, {})
    wanted = _LOOKED_AT_ROWS if is_looked_into else _OTHERS_ROWS
    rows: list[TextRow] = list(islice(text_rows(path), wanted))
    columns = list(
        dict.fromkeys(name for row in rows if isinstance(row.cells, dict) for name in row.cells)
    )
    if format_ == "CSV":
        columns = csv_header(path)
    elif not columns:
        msg = rows[0].cells if rows and isinstance(rows[0].cells, str) else "it has no row"
        raise ValueError(msg)
    good = [row.cells for row in rows if isinstance(row.cells, dict)]
    first: dict[str, Column] = {name: [cells.get(name) for cells in good] for name in columns}
    if len(rows) < wanted:
        return TableFile(path, format_, tuple(columns), len(rows), first)
    packed = _UNPACKED if path.suffix == ".gz" else 1
    about = path.stat().st_size * packed * len(rows) // max(1, rows[-1].offset)
    return TableFile(path, format_, tuple(columns), about, first, is_exact=False)


def _parquet(path: Path, *, is_looked_into: bool) -> TableFile:
    with pq.ParquetFile(path) as file:
        metadata = file.metadata
        columns = tuple(file.schema_arrow.names)
        schema = file.schema_arrow
        head = pa.RecordBatch.from_pylist([], schema)
        if is_looked_into and metadata.num_rows:
            head = next(file.iter_batches(_LOOKED_AT_ROWS), head)
        groups = tuple(
            metadata.row_group(place).num_rows for place in range(metadata.num_row_groups)
        )
        # Of two columns of one name the mapping says that there are two.
        first: dict[str, Column] = {name: head.column(place) for place, name in enumerate(columns)}
        return TableFile(path, "Parquet", columns, metadata.num_rows, first, groups)


def ends_of(file: TableFile, column: str) -> list[Cell]:
    """Return what a file has first and last in a column, as far as that is told without reading it."""
    if file.format == "Parquet":
        return list(_statistics(file, column))
    last = last_row(file.path)
    return [] if last is None else [last.get(column)]


def _statistics(file: TableFile, column: str) -> Iterator[Cell]:
    with pq.ParquetFile(file.path) as parquet:
        metadata = parquet.metadata
        places = [
            place
            for place in range(metadata.num_columns)
            if metadata.schema.column(place).path == column
        ]
        for group in range(metadata.num_row_groups if places else 0):
            told = metadata.row_group(group).column(places[0]).statistics
            if told is not None and told.has_min_max:
                try:
                    yield from (told.min, told.max)
                except ValueError:  # nanoseconds, which Python has not
                    return


def last_row(path: Path) -> dict[str, Cell] | None:
    """Return the last row of a text; None where it takes more than a look at its end."""
    if path.suffix == ".gz":
        return None
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - _END_BYTES))
        line = stream.read().rstrip().rpartition(b"\n")[2]
    if format_of(path) == "JSON lines":
        row = _json_row(0, line)
        return row.cells if isinstance(row.cells, dict) else None
    names = csv_header(path)
    with path.open("rb") as stream:
        delimiter = _header(_text(stream.readline(LINE_BYTES_MAX)))[1]
    try:
        cells = next(csv.reader([_text(line)], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return None
    return dict(zip(names, cells, strict=True)) if len(cells) == len(names) else None


def parquet_batches(
    path: Path, groups: Sequence[int], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some row groups of a file.

    Raises:
        OSError, ArrowException: it cannot be read further.
    """
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(BATCH_ROWS, row_groups=list(groups), columns=list(columns))


def text_rows(path: Path, start: int = 0, end: int | None = None) -> Iterator[TextRow]:
    """Yield the rows of a text.

    Args:
        path: of it.
        start: only those that begin from this byte on (of JSON lines).
        end: and before this one.

    Raises:
        OSError, EOFError, zlib.error: it cannot be read further.
    """
    with open_log(path) as stream:
        lines = lines_of(stream, start, end)
        yield from (_csv_rows(lines) if format_of(path) == "CSV" else _json_rows(lines))


def csv_header(path: Path) -> list[str]:
    """Return the names of the columns of a CSV file.

    Raises:
        ValueError: it has none.
    """
    with open_log(path) as stream:
        text = _text(next(lines_of(stream), Line(0, b"", Ending.OPEN)).text)
    if not text.strip():
        msg = "it has no header"
        raise ValueError(msg)
    return _header(text)[0]


def _header(text: str) -> tuple[list[str], str]:
    """Return the columns that a first line names, and what is between them."""
    delimiter = max(_DELIMITERS, key=text.count)
    return [name.strip() for name in next(csv.reader([text], delimiter=delimiter))], delimiter


def _text(line: bytes) -> str:
    return line.removeprefix(_BOM).rstrip(b"\r").decode(errors="backslashreplace")


def _csv_rows(lines: Iterable[Line]) -> Iterator[TextRow]:
    reading = _CsvLines(iter(lines))
    first = next(reading, None)
    if first is None:
        return
    columns, delimiter = _header(first)
    rows = csv.reader(reading, delimiter=delimiter, strict=True)
    while True:
        reading.forget()
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            reason = f"its quotes do not match, or it is too long ({error})"
            yield TextRow(reading.begin, reason, reading.first[:1024], reading.count)
            continue
        if reading.too_long:
            yield TextRow(reading.begin, "it is longer than 16 MiB")
        elif len(cells) == len(columns):
            yield TextRow(reading.begin, dict(zip(columns, cells, strict=True)))
        elif cells:
            reason = f"it has {len(cells)} columns, the header {len(columns)}"
            yield TextRow(reading.begin, reason, delimiter.join(cells)[:1024])


class _CsvLines(Iterator[str]):
    """Gives lines to a CSV reader, which takes more than one for a row with line ends in quotes.

    Attributes:
        begin: where the first line since ``forget`` begins.
        first: its text.
        count: how many there were since then.
        too_long: one of them was not kept.
    """

    def __init__(self, lines: Iterator[Line]) -> None:
        self._lines = lines
        self.forget()

    def forget(self) -> None:
        """Begin a new row."""
        self.begin, self.first, self.count, self.too_long = 0, "", 0, False

    def __next__(self) -> str:
        line = next(self._lines)
        text = _text(line.text)
        if not self.count:
            self.begin, self.first = line.offset, text
        self.count += 1
        if line.ending is Ending.TOO_LONG:
            self.too_long = True
            return "\n"
        return text + "\n"


def _json_rows(lines: Iterable[Line]) -> Iterator[TextRow]:
    for line in lines:
        text = line.text.strip().removeprefix(_BOM)
        if line.ending is Ending.TOO_LONG:
            yield TextRow(line.offset, "it is longer than 16 MiB")
        elif text:
            yield _json_row(line.offset, text)


def _json_row(offset: int, text: bytes) -> TextRow:
    sample = text[:1024].decode(errors="backslashreplace")
    if text.startswith(b"["):
        return TextRow(offset, "it is a list; each line has to be one object", sample)
    try:
        cells = _loaded(text)
    except (ValueError, RecursionError) as error:
        return TextRow(offset, f"it is no JSON ({error})", sample)
    if not isinstance(cells, dict):
        return TextRow(offset, "it is no object of JSON", sample)
    return TextRow(offset, cells)


def _loaded(text: bytes) -> object:
    try:
        return orjson.loads(text)
    except ValueError:
        # Python's own parser takes numbers such as NaN, and names with any bytes.
        loaded = json.loads(text.decode(errors="surrogateescape"))
    if isinstance(loaded, dict):
        return {_plain(name): _plain(cell) for name, cell in loaded.items()}
    return loaded


def _plain(cell: Any) -> Any:
    """Return a text as it would be read of any other table."""
    if not isinstance(cell, str):
        return cell
    try:
        return cell.encode(errors="surrogateescape").decode(errors="backslashreplace")
    except UnicodeEncodeError:  # half of a pair of surrogates, written as such
        return cell.encode(errors="backslashreplace").decode()


def _short(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
