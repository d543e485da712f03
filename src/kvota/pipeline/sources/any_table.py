"""Somebody's table becomes a record: Spark's workers read it, and its rows are put into files in order."""

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kvota.model.errors import UnreachableError, UsageError
from kvota.pipeline.any_session import arrow_table, numbered_tasks
from kvota.pipeline.arrow_columns import spark_ddl
from kvota.pipeline.sources.converted_files import Converted, write_run
from kvota.pipeline.sources.log_range import BadLine
from kvota.pipeline.sources.sorted_tables import Piece, in_one_order, write_pieces
from kvota.pipeline.sources.table_files import (
    BATCH_ROWS,
    FoundFiles,
    TableFile,
    format_of,
    parquet_batches,
    text_rows,
)
from kvota.pipeline.sources.table_mapping import TableMapping, column_faults
from kvota.pipeline.sources.table_rows import Column, TableRows, kind_faults
from kvota.pipeline.sources.table_times import MixedUnitsError, TimeReading, mixed_text

Batches = Iterator[pa.RecordBatch]

# So many rows go into one sorted table: about 100 MB of a worker's memory.
_ROWS_AT_ONCE = 500_000
# A task reads about so many rows, or so many bytes of JSON lines.
_TASK_ROWS, _TASK_BYTES = 1 << 20, 64 << 20
_BAD_KEPT = 20_000
_STEP_US = 2_000_000

_DONE = pa.schema([("found", pa.binary())])


@dataclass(frozen=True, slots=True)
class TablePart:
    """A part of a file: row groups of Parquet, so many rows from a first one on; or from a byte of a text to another."""

    path: str
    groups: tuple[int, ...] = ()
    first_row: int = 0
    rows: int = 0
    start: int = 0
    end: int | None = None


@dataclass(frozen=True, slots=True)
class TableReading:
    """How a table is read.

    Attributes:
        mapping: what is what.
        times: how times are read.
        name: for where the rows come from, as ``gateway`` of events.
    """

    mapping: TableMapping
    times: TimeReading
    name: str

    @property
    def key(self) -> str:
        """Return the column of events that the rows are in the order of."""
        return "seq" if "seq" in self.mapping.columns else "ts_us"


@dataclass(slots=True)
class PartFound:
    """What became of a part.

    Attributes:
        rows: that were read.
        bad: the first ones that charge nothing.
        bad_count: all of them.
        twice: times in an hour that a zone has twice.
        mixed: what is wrong with a table whose times are in several units; else empty.
        pieces: of sorted tables.
    """

    rows: int = 0
    bad: list[BadLine] = field(default_factory=list)
    bad_count: int = 0
    twice: int = 0
    mixed: str = ""
    pieces: list[Piece] = field(default_factory=list)

    def lose(self, path: Path, reason: str, rows: int) -> None:
        """Note a file none of whose rows can be read."""
        self.rows += rows
        self.keep_bad(BadLine(str(path), 0, reason, ""), rows)

    def keep_bad(self, bad: BadLine, count: int = 1) -> None:
        """Note what charges nothing."""
        self.bad_count += count
        if len(self.bad) < _BAD_KEPT:
            self.bad.append(bad)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableConverted(Converted):
    """What became of a table.

    Attributes:
        twice: times in an hour that the zone has twice, taken as in the first one.
    """

    twice: int


def convert_files(
    spark: SparkSession, found: FoundFiles, reading: TableReading, folder: Path
) -> TableConverted:
    """Write the charges of a table's files into files of a record.

    Args:
        spark: its workers read the files, so they have to be on the same machine, or share its folders.
        found: the files.
        reading: how.
        folder: for the files; that of the tables in between is in it, and goes.

    Raises:
        UsageError: times are in several units.
        UnreachableError: the folder cannot be written to.
    """
    lost = PartFound()
    for path, reason in found.bad:
        lost.lose(path, reason, 1)
    parts: list[TablePart] = []
    for file in found.files:
        faults = unusable(file, reading.mapping)
        if faults:
            lost.lose(file.path, faults[0], file.rows)
        else:
            parts += parts_of(file)
    tasks = numbered_tasks(spark, len(parts))
    return _converted(tasks, partial(_file_reader, parts), reading, folder, lost)


def unusable(file: TableFile, mapping: TableMapping) -> list[str]:
    """Say why a file cannot be read as it is mapped, though others can; rows of JSON lines are looked at one by one."""
    if not file.rows or file.format == "JSON lines":
        return []
    kinds = {name: one.type for name, one in file.first.items() if isinstance(one, pa.Array)}
    return [*column_faults(mapping, file.columns), *kind_faults(kinds, mapping)]


def convert_rows(table: DataFrame, reading: TableReading, folder: Path) -> TableConverted:
    """Do the same with a table that Spark reads."""
    # By plain names: Spark takes a point in one for a way into a struct, and asks for them again.
    wanted = table.select(
        [
            spark_column(name).alias(f"column_{place}")
            for place, name in enumerate(reading.mapping.needed)
        ]
    )
    return _converted(wanted, _row_reader, reading, folder, PartFound())


def spark_column(name: str) -> SparkColumn:
    """Return a column by its name, whatever characters that has."""
    return F.col("`" + name.replace("`", "``") + "`")


def parts_of(file: TableFile) -> Iterator[TablePart]:
    """Cut a file into parts, each for one task."""
    path = str(file.path)
    if file.format == "Parquet":
        groups: list[int] = []
        first_row = rows = 0
        for place, count in enumerate(file.group_rows):
            groups.append(place)
            rows += count
            if rows >= _TASK_ROWS or place + 1 == len(file.group_rows):
                yield TablePart(path, tuple(groups), first_row, rows)
                groups, first_row, rows = [], first_row + rows, 0
    elif file.format == "CSV" or file.path.suffix == ".gz":
        yield TablePart(path)
    else:
        starts = range(0, max(1, file.size_bytes), _TASK_BYTES)
        for start in starts:
            end = None if start == starts[-1] else start + _TASK_BYTES
            yield TablePart(path, start=start, end=end)


def _converted(
    table: DataFrame,
    reader: Callable[[TableReading, Path, Batches], Batches],
    reading: TableReading,
    folder: Path,
    lost: PartFound,
) -> TableConverted:
    between = folder / "_tables"
    try:
        between.mkdir()
        stage = partial(reader, reading, between)
        done = arrow_table(table.mapInArrow(stage, spark_ddl(_DONE)))
        found = [lost, *(_parsed(text.as_py()) for text in done["found"])]
        mixed = next((one.mixed for one in found if one.mixed), "")
        if mixed:
            raise mixed_units(mixed, reading)
        counted = _Counted(reading)
        pieces = [piece for one in found for piece in one.pieces]
        rows = 0
        if pieces:
            tables = counted.counting(in_one_order(pieces, reading.key))
            run_id = f"table-{min(piece.first for piece in pieces)}"
            rows = write_run(folder, _named(tables, run_id), gateway=reading.name, run_id=run_id)
        for path in between.iterdir():
            path.unlink()
        between.rmdir()
    except OSError as error:
        msg = f"{error.filename or folder}: {error.strerror or error}. It needs about 60 bytes per row"
        raise UnreachableError(msg) from error
    return TableConverted(
        read=sum(one.rows for one in found),
        rows=rows,
        bad=tuple(bad for one in found for bad in one.bad),
        bad_count=sum(one.bad_count for one in found),
        twice=sum(one.twice for one in found),
        steps_back=counted.steps_back,
    )


def mixed_units(told: str, reading: TableReading) -> UsageError:
    """Return what to say of a table whose times are in several units."""
    return UsageError(mixed_text(reading.mapping.columns["ts"], told))


class _Counted:
    """Counts where time goes back in the order that a table says."""

    def __init__(self, reading: TableReading) -> None:
        self.steps_back = 0
        self._is_ordered = reading.key == "seq"
        self._latest: list[int] = []

    def counting(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            if self._is_ordered:
                times = np.concatenate(
                    [np.array(self._latest, np.int64), table["ts_us"].to_numpy()]
                )
                self.steps_back += int(np.count_nonzero(np.diff(times) < -_STEP_US))
                self._latest = times[-1:].tolist()
            yield table


def _named(tables: Iterable[pa.Table], run_id: str) -> Iterator[pa.Table]:
    """Give rows the run that they are of, which is known when all are there."""
    for table in tables:
        place = table.schema.get_field_index("run_id")
        codes = pa.array(np.zeros(table.num_rows, np.int32))
        names = pa.DictionaryArray.from_arrays(codes, pa.array([run_id]))
        yield table.set_column(place, table.schema.field(place), names)


def _file_reader(
    parts: Sequence[TablePart], reading: TableReading, folder: Path, batches: Batches
) -> Batches:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            work = _Work(reading, folder, number)
            try:
                _read_part(parts[number], work)
            except MixedUnitsError as error:
                work.found.mixed = str(error)
            yield _done(work)


def _row_reader(reading: TableReading, folder: Path, batches: Batches) -> Batches:
    context = TaskContext.get()
    number = 0 if context is None else context.partitionId()
    work = _Work(reading, folder, number)
    where = f"{reading.name}, part {number}"
    try:
        for batch in batches:
            columns = dict(zip(reading.mapping.needed, batch.columns, strict=True))
            first = work.found.rows
            work.take(columns, batch.num_rows, where, range(first, first + batch.num_rows))
    except MixedUnitsError as error:
        work.found.mixed = str(error)
    yield _done(work)


def _done(work: "_Work") -> pa.RecordBatch:
    text = json.dumps(asdict(work.finished())).encode()
    return pa.RecordBatch.from_arrays([pa.array([text])], schema=_DONE)


def _parsed(text: bytes) -> PartFound:
    fields = json.loads(text)
    fields["bad"] = [BadLine(**bad) for bad in fields["bad"]]
    fields["pieces"] = [Piece(**piece) for piece in fields["pieces"]]
    return PartFound(**fields)


class _Work:
    """Takes the rows of one task."""

    def __init__(self, reading: TableReading, folder: Path, number: int) -> None:
        self.found = PartFound()
        self._reading, self._folder, self._number = reading, folder, number
        self._rows = TableRows(reading.mapping, reading.times)
        self._files = 0

    @property
    def columns(self) -> list[str]:
        """Return the columns of the table that are needed."""
        return self._reading.mapping.needed

    def take(
        self, columns: dict[str, Column], count: int, path: str, places: Sequence[int]
    ) -> None:
        """Take some rows.

        Args:
            columns: of the table.
            count: of the rows.
            path: where they come from.
            places: of each of them there.
        """
        self.found.rows += count
        for bad in self._rows.take(columns, count):
            self.found.keep_bad(BadLine(path, places[bad.row], bad.reason, bad.sample))
        if self._rows.count >= _ROWS_AT_ONCE:
            self._write()

    def finished(self) -> PartFound:
        """Return what became of all."""
        if self._rows.count and not self.found.mixed:
            self._write()
        self.found.twice = self._rows.twice
        return self.found

    def _write(self) -> None:
        table = self._rows.table(gateway=self._reading.name, run_id="")
        path = self._folder / f"part-{self._number:08}-{self._files:04}.arrow"
        self._files += 1
        self.found.pieces += write_pieces(path, table, self._reading.key)


def _read_part(part: TablePart, work: _Work) -> None:
    path = Path(part.path)
    try:
        if format_of(path) == "Parquet":
            _read_groups(path, part, work)
        else:
            _read_text(path, part, work)
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        reason = f"the file cannot be read further ({str(error).partition(chr(10))[0]})"
        lost = max(1, part.rows - work.found.rows)
        place = part.first_row + work.found.rows if part.rows else part.start
        work.found.rows += lost
        work.found.keep_bad(BadLine(part.path, place, reason, ""), lost)


def _read_groups(path: Path, part: TablePart, work: _Work) -> None:
    row = part.first_row
    names = work.columns
    for batch in parquet_batches(path, part.groups, names):
        columns = {name: _decoded(batch.column(name)) for name in names}
        work.take(columns, batch.num_rows, part.path, range(row, row + batch.num_rows))
        row += batch.num_rows


def _read_text(path: Path, part: TablePart, work: _Work) -> None:
    rows: list[dict[str, object]] = []
    offsets: list[int] = []
    for row in text_rows(path, part.start, part.end):
        if isinstance(row.cells, str):
            work.found.rows += row.lines
            work.found.keep_bad(BadLine(part.path, row.offset, row.cells, row.sample), row.lines)
            continue
        rows.append(row.cells)
        offsets.append(row.offset)
        if len(rows) >= BATCH_ROWS:
            _take_cells(rows, offsets, part, work)
            rows, offsets = [], []
    if rows:
        _take_cells(rows, offsets, part, work)


def _take_cells(
    rows: Sequence[dict[str, object]], offsets: Sequence[int], part: TablePart, work: _Work
) -> None:
    columns: dict[str, Column] = {name: [row.get(name) for row in rows] for name in work.columns}
    work.take(columns, len(rows), part.path, offsets)


def _decoded(column: pa.Array) -> pa.Array:
    """Return a column of codes of anything but texts as what they mean."""
    kind = column.type
    if pa.types.is_dictionary(kind) and not pa.types.is_string(kind.value_type):
        return column.dictionary_decode()
    return column
