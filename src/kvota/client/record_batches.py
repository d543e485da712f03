"""Rows of a topic as brokers keep them: record batches, written plain, read plain.

Source: Kafka's record batch, magic 2 (KIP-98), as kio has it.
"""

import io
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from struct import Struct
from typing import NamedTuple

from kio.records.readers import read_batch
from kio.records.schema import NewRecordBatch, Record
from kio.records.writers import write_new_batch
from kio.serial.errors import SerialError
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i64

# Offset, length, leader epoch, magic, checksum, attributes, last offset's distance from the first.
_HEAD = Struct(">qiibIhi")
_BEFORE_LENGTH_COUNTS = 12
_MAGIC = 2
_COMPRESSION, _CONTROL = 0x07, 0x20


class Row(NamedTuple):
    """One record.

    Attributes:
        offset: of it in its partition.
        key: None: it has none.
        value: None: whatever had this key is gone.
    """

    offset: int
    key: bytes | None
    value: bytes | None

    @property
    def next_offset(self) -> int:
        """Behind it."""
        return self.offset + 1


class Unread(NamedTuple):
    """Some records that cannot be read.

    Attributes:
        offset: of the first of them.
        next_offset: behind them.
        reason: why.
    """

    offset: int
    next_offset: int
    reason: str


def encode_batch(rows: Sequence[tuple[bytes, bytes | None]], *, now_ms: int) -> bytes:
    """Return one batch of keys and values; a broker takes it whole or not at all."""
    timestamp = TZAwareMicros.parse(datetime.fromtimestamp(now_ms // 1000, UTC))
    records = tuple(
        Record(
            attributes=i8(0),
            timestamp=timestamp,
            offset=i64(number),
            key=key,
            value=value,
            headers=(),
        )
        for number, (key, value) in enumerate(rows)
    )
    batch = NewRecordBatch(
        producer_id=i64(-1),
        producer_epoch=i16(-1),
        base_sequence=i32(-1),
        records=records,
        attributes=i16(0),
    )
    encoded = io.BytesIO()
    write_new_batch(encoded, batch)
    return encoded.getvalue()


class Decoded(NamedTuple):
    """What a Fetch answer has.

    Attributes:
        rows: in their order, those from the asked offset on.
        next_offset: where to read on; more than behind the last row where marks of transactions, or
            batches that compaction has emptied, follow it.
    """

    rows: Sequence[Row | Unread]
    next_offset: int


def decode_batches(data: bytes | None, offset: int) -> Decoded:
    """Return the rows of a Fetch answer from an offset on; its last batch may be cut, and is left out then.

    What cannot be read (compressed, damaged, of before magic 2) is told, and stepped over.
    """
    rows: list[Row | Unread] = []
    at, next_offset, data = 0, offset, data or b""
    while len(data) - at >= _HEAD.size:
        first, length, _, magic, _, attributes, distance = _HEAD.unpack_from(data, at)
        end = at + _BEFORE_LENGTH_COUNTS + length
        if length < _HEAD.size - _BEFORE_LENGTH_COUNTS or end > len(data):
            break
        behind = first + 1 + (max(distance, 0) if magic == _MAGIC else 0)
        if behind > offset:  # a batch is answered whole, also where its middle was asked for
            rows += _rows(data[at:end], first, behind, magic, attributes)
            next_offset = max(next_offset, behind)
        at = end
    return Decoded([row for row in rows if row.next_offset > offset], next_offset)


def _rows(
    batch: bytes, first: int, behind: int, magic: int, attributes: int
) -> Iterable[Row | Unread]:
    if magic != _MAGIC:
        return [Unread(first, behind, f"a message of format {magic}")]
    if attributes & _COMPRESSION:
        return [Unread(first, behind, "a compressed batch")]
    if attributes & _CONTROL:
        return []
    try:
        read, _ = read_batch(batch, 0)
    # kio raises what its parts raise on bytes that it does not understand, and on times out of reach.
    except (SerialError, ValueError, ArithmeticError, LookupError, TypeError, OSError) as error:
        return [Unread(first, behind, f"a batch that cannot be read: {error}")]
    return [Row(int(record.offset), record.key, record.value) for record in read.records]
