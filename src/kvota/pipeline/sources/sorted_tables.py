"""Brings tables of events, each of which is in order, into one order: piece by piece, so that memory stays bounded."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.sources.table_rows import order_of

# A piece can be read alone; together they become tables of so many rows.
_PIECE_ROWS, _TOGETHER_ROWS = 1 << 14, 1 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file of a table.

    Attributes:
        path: of the file.
        place: of the part in it.
        rows: in it.
        first: the key of its first row.
        last: the key of its last row.
    """

    path: str
    place: int
    rows: int
    first: int
    last: int


def write_pieces(path: Path, table: pa.Table, key: str) -> list[Piece]:
    """Write a table in pieces.

    Args:
        path: of the file.
        table: of events, in order.
        key: the column that it is in the order of, first of all.

    Raises:
        OSError: it cannot be written.
    """
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    pieces = []
    with (
        pa.OSFile(str(path), "wb") as out,
        pa.ipc.new_file(out, table.schema, options=options) as writer,
    ):
        for place, batch in enumerate(table.combine_chunks().to_batches(_PIECE_ROWS)):
            writer.write_batch(batch)
            first, last = batch[key][0].as_py(), batch[key][-1].as_py()
            pieces.append(Piece(str(path), place, batch.num_rows, first, last))
    return pieces


def in_one_order(pieces: Sequence[Piece], key: str) -> Iterator[pa.Table]:
    """Yield the rows of all pieces as tables, one behind the other; rows of one key are in one table.

    Raises:
        OSError: a file cannot be read.
    """
    bounds = [*_bounds(pieces), None]
    start: int | None = None
    for end in bounds:
        inside = [
            piece
            for piece in pieces
            if (end is None or piece.first < end) and (start is None or piece.last >= start)
        ]
        if inside:
            yield _sorted(_within(inside, key, start, end))
        start = end


def _bounds(pieces: Iterable[Piece]) -> Iterator[int]:
    """Yield keys between which there are about so many rows as a table has."""
    rows, before = 0, None
    for piece in sorted(pieces, key=lambda one: one.first):
        if rows >= _TOGETHER_ROWS and piece.first != before:
            yield piece.first
            rows, before = 0, piece.first
        rows += piece.rows


def _within(
    pieces: Iterable[Piece], key: str, start: int | None, end: int | None
) -> list[pa.Table]:
    of_file: dict[str, list[int]] = {}
    for piece in pieces:
        of_file.setdefault(piece.path, []).append(piece.place)
    found = []
    for path, places in of_file.items():
        with pa.OSFile(path) as source, pa.ipc.open_file(source) as reader:
            table = pa.Table.from_batches([reader.get_batch(place) for place in places])
        keys = table[key].to_numpy()
        first = 0 if start is None else int(keys.searchsorted(start))
        last = len(keys) if end is None else int(keys.searchsorted(end))
        found.append(table.slice(first, last - first))
    return found


def _sorted(tables: Sequence[pa.Table]) -> pa.Table:
    table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    seq, ts_us, value = (_numbers(table, name) for name in ("seq", "ts_us", "value"))
    return table.take(pa.array(order_of(seq, ts_us, value)))


def _numbers(table: pa.Table, name: str) -> Array:
    numbers: Array = table[name].to_numpy()
    return numbers
