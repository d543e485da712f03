"""Events on their way through a topic: a block is an Arrow IPC stream within one zstd frame.

Both are formats of others, so that anything that knows them reads a block: its columns are those of the files, and
``schema_version`` stands in the schema's metadata as it does in a file's footer.
"""

from typing import Any

import pyarrow as pa

from kvota.model.event import READABLE_VERSIONS
from kvota.record.clustered import UnfitError, as_written
from kvota.record.event_schema import EVENT_SCHEMA
from kvota.record.own_texts import with_own_texts

# A block of ours has 0.4 MB at most before it is compressed, and one with very long names 4 MB; more is not unpacked.
UNPACKED_BYTES_MAX = 64 * 2**20

# The head of a zstd frame (RFC 8878): magic number, then a byte of flags.
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SINGLE_SEGMENT = 0x20
_SIZE_BYTES = (0, 2, 4, 8)
_DICTIONARY_BYTES = (0, 1, 2, 4)


class NoBlockError(Exception):
    """A value is no block of events; the text says why."""


def block_bytes(rows: pa.Table) -> bytes:
    """Return rows (of ``event_schema.WRITE_SCHEMA``) as one block."""
    plain = pa.BufferOutputStream()
    with pa.ipc.new_stream(plain, rows.schema) as stream:
        stream.write_table(rows)
    packed: bytes = pa.Codec("zstd").compress(plain.getvalue(), asbytes=True)
    return packed


def halves(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return two tables of half the rows each, for blocks that are half as large: each with its own texts alone."""
    middle = rows.num_rows // 2
    return with_own_texts(rows.slice(0, middle)), with_own_texts(rows.slice(middle))


def read_block(value: bytes | None) -> pa.Table:
    """Return the rows of a block, as ``event_schema.WRITE_SCHEMA`` has them.

    Args:
        value: from a topic, so anything.

    Raises:
        NoBlockError: it is none.
    """
    if value is None or value[:4] != _ZSTD_MAGIC:
        msg = "no zstd frame"
        raise NoBlockError(msg)
    size = _unpacked_bytes(value)
    if not 0 < size <= UNPACKED_BYTES_MAX:
        msg = f"it would be {size} bytes unpacked, and at most {UNPACKED_BYTES_MAX} are taken"
        raise NoBlockError(msg)
    try:
        plain = pa.decompress(value, decompressed_size=size, codec="zstd")
        rows = pa.ipc.open_stream(plain).read_all()
        rows.validate(full=True)
        return _events(rows)
    except (pa.ArrowException, OSError, ValueError, KeyError, UnfitError) as error:
        raise NoBlockError(str(error)) from error


def _events(rows: pa.Table) -> pa.Table:
    """Return the rows with the columns that are written.

    Raises:
        NoBlockError: these are no events.
        UnfitError: columns are missing.
    """
    version = (rows.schema.metadata or {}).get(b"schema_version", b"").decode(errors="replace")
    if version not in READABLE_VERSIONS:
        msg = f'schema_version "{version}", this kvota reads {", ".join(READABLE_VERSIONS)}'
        raise NoBlockError(msg)
    for field in EVENT_SCHEMA:
        if field.name in rows.column_names and _plain(rows.schema.field(field.name).type) != field.type:  # fmt: skip
            msg = f"column {field.name} is {rows.schema.field(field.name).type}, expected {field.type}"
            raise NoBlockError(msg)
    return as_written(rows)


def _plain(arrow_type: Any) -> Any:
    return arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type


def _unpacked_bytes(frame: bytes) -> int:
    """How large a zstd frame says that its content is; 0 where it does not say, or is cut."""
    flags = frame[4] if len(frame) > 4 else 0
    is_single = bool(flags & _SINGLE_SEGMENT)
    begin = 5 + (0 if is_single else 1) + _DICTIONARY_BYTES[flags & 3]
    length = _SIZE_BYTES[flags >> 6] or int(is_single)
    size = int.from_bytes(frame[begin : begin + length], "little")
    return size + 256 if length == 2 else size
