"""What both sources hand to Spark: pieces, each a block of events or the name of a file."""

from collections.abc import Iterable

import pyarrow as pa

# A piece is a row: where it is from, and its block; or a file (``value`` is null), or what is wrong with it (``fault``).
PIECES = pa.schema(
    [
        pa.field("source", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("value", pa.binary()),
        pa.field("fault", pa.string()),
    ]
)
PIECES_SQL = "source string, offset long, value binary, fault string"

Piece = tuple[str, int, bytes | None, str | None]


def piece_batch(pieces: Iterable[Piece]) -> pa.RecordBatch:
    """Return pieces as Arrow has them."""
    columns = list(zip(*pieces, strict=True)) or [(), (), (), ()]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, PIECES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=PIECES)
