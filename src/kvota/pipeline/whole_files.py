"""Reads whole files in workers, and packs them: files as gateways write them, and tables that are no files at all."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kvota.pipeline import rows_done
from kvota.pipeline.event_columns import Events
from kvota.pipeline.pack import pack
from kvota.pipeline.packing_choice import COLUMN_TYPES, TEXTS, Packing
from kvota.pipeline.row_groups import FILE_CHANGED, GroupFile, same_in_all_rows, unreadable
from kvota.record.event_file import EventFile
from kvota.record.valid_texts import (
    RUN_COLUMNS,
    refuse_fewer_rows,
    refuse_invalid_texts,
    refuse_nameless_runs,
    refuse_other_runs,
)

Batches = Iterator[pa.RecordBatch]

# So many rows are packed at once: about 350 MB of a worker's memory, most of it for a moment only.
_ROWS_AT_ONCE = 1 << 20

_TASKS = pa.schema(
    [
        ("task", pa.int32()),
        ("path", pa.string()),
        ("size_bytes", pa.int64()),
        ("modified_ns", pa.int64()),
        # Of the one run that a file is of; null: of several, which its rows tell.
        ("gateway", pa.string()),
        ("run_id", pa.string()),
    ]
)

_Run = tuple[str, str]


class _Read(NamedTuple):
    """Rows of a file.

    Attributes:
        table: all columns that are asked for, but those of ``run``.
        run: of all rows: gateway and run_id; None: the table has these columns.
    """

    table: pa.Table
    run: _Run | None = None


def task_list(files: Iterable[EventFile], tasks: int) -> pa.Buffer:
    """Share the files out, runs kept together and each task about as many rows; of 100,000 files 1 MB."""
    ordered = sorted(files, key=lambda file: (file.runs, str(file.path)))
    total = max(1, sum(file.rows for file in ordered))
    before = 0
    rows: list[tuple[Any, ...]] = []
    for file in ordered:
        task = min(before * tasks // total, tasks - 1)
        run = _run_of(file) or (None, None)
        rows.append((task, str(file.path), file.size_bytes, file.modified_ns, *run))
        before += file.rows
    columns = [[row[place] for row in rows] for place in range(len(_TASKS))]
    arrays = [pa.array(column, part.type) for column, part in zip(columns, _TASKS, strict=True)]
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, _TASKS, options=options) as stream:
        stream.write_table(pa.Table.from_arrays(arrays, schema=_TASKS))
    return sink.getvalue()


def file_packer(listed: pa.Buffer, packing: Packing, folder: str) -> Callable[[Batches], Batches]:
    """Return the function that packs the files of tasks, of which it is given the numbers.

    Args:
        listed: as ``task_list`` returns it.
        packing: what is packed.
        folder: where rows that were read are counted.
    """
    # As bytes: not every version of what sends functions to workers can send a buffer.
    content = listed.to_pybytes()

    def reads(batches: Batches) -> Iterator[_Read]:
        files = pa.ipc.open_stream(content).read_all()
        for batch in batches:
            here = files.filter(pc.is_in(files["task"], batch.column(0).cast(pa.int32())))
            for read in _reads_of(here.to_pylist(), packing.columns()):
                yield read
                rows_done.count(folder, "read", read.table.num_rows)

    def stage(batches: Batches) -> Batches:
        yield from _packed(reads(batches), packing)

    return stage


def content_packer(files: Iterable[EventFile], packing: Packing) -> Callable[[Batches], Batches]:
    """Return the function that packs files, of which it is given path, length, time in ms and content."""
    known = {
        file.uri: (file.size_bytes, file.modified_ns // 1_000_000, _run_of(file)) for file in files
    }

    def reads(batches: Batches) -> Iterator[_Read]:
        for batch in batches:
            for path, length, ms, content in zip(*batch.columns, strict=True):
                *as_it_was, run = known.get(path.as_py(), (None, None, None))
                if as_it_was != [length.as_py(), ms.as_py()]:
                    msg = f"{FILE_CHANGED}: {path} is another one now"
                    raise RuntimeError(msg)
                source = pa.BufferReader(content.as_buffer())
                yield from _reads_in(source, packing.columns(), run)

    def stage(batches: Batches) -> Batches:
        yield from _packed(reads(batches), packing)

    return stage


def table_packer(packing: Packing) -> Callable[[Batches], Batches]:
    """Return the function that packs events as Spark hands them over."""

    def stage(batches: Batches) -> Batches:
        yield from _packed((_Read(pa.Table.from_batches([batch])) for batch in batches), packing)

    return stage


def _run_of(file: EventFile) -> _Run | None:
    """Return gateway and run_id of all rows of a file; None where it has several runs."""
    if len(file.runs) != 1:
        return None
    (run,) = file.runs
    return run.gateway, run.run_id


def _packed(reads: Iterable[_Read], packing: Packing) -> Batches:
    """Pack what was read, little of it together."""
    waiting: list[_Read] = []
    rows = 0
    for read in reads:
        if rows and rows + read.table.num_rows > _ROWS_AT_ONCE:
            yield from _packed_at_once(waiting, packing)
            waiting, rows = [], 0
        waiting.append(read)
        rows += read.table.num_rows
    if waiting:
        yield from _packed_at_once(waiting, packing)


def _packed_at_once(reads: list[_Read], packing: Packing) -> Batches:
    events = _joined(reads)
    reads.clear()
    chunks = pack(events, packing)
    if chunks is not None:
        yield chunks


def _joined(reads: Sequence[_Read]) -> Events:
    """Put rows one behind the other; a run that all are of is not in the table."""
    run = reads[0].run
    if run is not None and all(read.run == run for read in reads):
        return Events(
            _one_table(read.table for read in reads), dict(zip(RUN_COLUMNS, run, strict=True))
        )
    return Events(_one_table(_with_run(read) for read in reads))


def _one_table(tables: Iterable[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables, promote_options="default")


def _with_run(read: _Read) -> pa.Table:
    table = read.table
    for name, text in zip(RUN_COLUMNS, read.run or (), strict=False):
        codes = pa.array(np.zeros(table.num_rows, np.int32))
        column = pa.DictionaryArray.from_arrays(codes, pa.array([text], pa.string()))
        table = table.append_column(name, column)
    return table


def _reads_of(files: Iterable[dict[str, Any]], columns: list[str]) -> Iterator[_Read]:
    """Read files of this machine."""
    for row in files:
        file = GroupFile(row["path"], row["size_bytes"], row["modified_ns"])
        run = None if row["gateway"] is None else (row["gateway"], row["run_id"])
        file.refuse_another()
        try:
            # Opened once: to look where a path leads takes PyArrow half as long as to read the footer.
            with pa.OSFile(file.path) as source:
                yield from _reads_in(source, columns, run)
        except (pa.ArrowInvalid, OSError) as error:
            raise unreadable(file, error) from error


def _reads_in(source: pa.NativeFile, columns: list[str], run: _Run | None) -> Iterator[_Read]:
    """Read one file in parts of bounded size; texts stay codes and a dictionary."""
    footer = pq.read_metadata(source)
    there = set(footer.schema.names)
    texts = [name for name in TEXTS if name in there]
    here = [name for name in columns if name in there and not (run and name in RUN_COLUMNS)]
    # What a footer says of all rows may be wrong, where its bits or its writer are.
    unproven = () if run is None or _is_shown(footer, run) else RUN_COLUMNS
    wanted = pa.schema([(name, COLUMN_TYPES[name]) for name in here])
    with pq.ParquetFile(
        source, metadata=footer, read_dictionary=texts, page_checksum_verification=True
    ) as file:
        rows = 0
        read = [*here, *unproven]
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=read, use_threads=False):
            refuse_invalid_texts(batch)
            refuse_nameless_runs(batch)
            if run is not None and unproven:
                refuse_other_runs(batch, *run)
            rows += batch.num_rows
            yield _Read(_as_wanted(batch.select(here), wanted), run)
        refuse_fewer_rows(rows, footer.num_rows)


def _is_shown(footer: pq.FileMetaData, run: _Run) -> bool:
    """Return whether a file's statistics show that all its rows are of a run: as gateways write them, they do."""
    texts = dict(zip(RUN_COLUMNS, run, strict=True))
    groups = (footer.row_group(number) for number in range(footer.num_row_groups))
    return all(same_in_all_rows(group, RUN_COLUMNS) == texts for group in groups)


def _as_wanted(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.Table:
    """Give the columns their types, of which they mostly are."""
    if batch.schema.types == wanted.types:
        return pa.Table.from_arrays(batch.columns, schema=wanted)
    return pa.Table.from_batches([batch]).cast(wanted)
