"""Rows of a topic as brokers keep them: record batches, written plain, read plain.

Thousands of rows come at once, beside traffic, so records are written and read here, five times as fast as kio does.
Source: Kafka's record batch, magic 2 (KIP-98).
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from kvota.client.producer_state import NO_PRODUCER, ProducerState
from kvota.wire.varint import uvarint

# Offset, length, leader epoch, magic, checksum, attributes, last offset's distance from the first.
_HEAD = Struct(">qiibIhi")
_BEFORE_LENGTH_COUNTS = 12
# What the checksum is of begins with attributes, that distance, the first and the last time, producer id,
# its epoch, its sequence, and how many records there are.
_CHECKED_FROM = 21
_CHECKED = Struct(">hiqqqhii")
_MAGIC = 2
_COMPRESSION, _CONTROL = 0x07, 0x20
_NONE = b"\1"  # the length of what is null, -1
_VARINT_BITS_MAX = 63


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


def encode_batch(
    rows: Sequence[tuple[bytes | None, bytes | None]],
    *,
    now_ms: int,
    producer: ProducerState = NO_PRODUCER,
) -> bytes:
    """Return one batch of keys and values; a broker takes it whole or not at all, and of a producer once."""
    checked = [_CHECKED.pack(0, len(rows) - 1, now_ms, now_ms, *producer, len(rows))]
    for number, (key, value) in enumerate(rows):
        # No attributes, the batch's own time; no headers at the end.
        record = b"".join(
            (
                b"\0\0",
                uvarint(2 * number),
                _NONE if key is None else uvarint(2 * len(key)) + key,
                _NONE if value is None else uvarint(2 * len(value)) + value,
                b"\0",
            )
        )
        checked += uvarint(2 * len(record)), record
    content = b"".join(checked)
    length = len(content) + _CHECKED_FROM - _BEFORE_LENGTH_COUNTS
    head = _HEAD.pack(0, length, -1, _MAGIC, crc32c(content), 0, 0)
    return head[:_CHECKED_FROM] + content


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
        return _records(batch, first)
    except (ValueError, IndexError) as error:
        return [Unread(first, behind, f"a batch that cannot be read: {error}")]


def _records(batch: bytes, first: int) -> list[Row]:
    """The records of a plain batch.

    Raises:
        ValueError: it is damaged.
        IndexError: it ends too early.
    """
    checksum = _HEAD.unpack_from(batch)[4]
    if crc32c(memoryview(batch)[_CHECKED_FROM:]) != checksum:
        msg = "its checksum is wrong"
        raise ValueError(msg)
    at = _CHECKED_FROM + _CHECKED.size
    if len(batch) < at:
        msg = "it is too short"
        raise ValueError(msg)
    count = _CHECKED.unpack_from(batch, _CHECKED_FROM)[-1]
    rows: list[Row] = []
    for _ in range(count):
        size, at = _number(batch, at)
        end = at + size
        _, at = _number(batch, at + 1)  # behind its attributes: its time
        distance, at = _number(batch, at)
        key, at = _bytes(batch, at)
        value, at = _bytes(batch, at)
        headers, at = _number(batch, at)
        for _ in range(2 * headers):
            _, at = _bytes(batch, at)
        if at != end:
            msg = f"its record {len(rows)} has another length than it says"
            raise ValueError(msg)
        rows.append(Row(first + distance, key, value))
    if at != len(batch):
        msg = "it has another length than its records"
        raise ValueError(msg)
    return rows


def _number(data: bytes, at: int) -> tuple[int, int]:
    """The signed varint at ``at``, and the position behind it."""
    byte = data[at]
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        at += 1
        if shift > _VARINT_BITS_MAX:
            msg = "it has a number without an end"
            raise ValueError(msg)
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift += 7
    return value >> 1 ^ -(value & 1), at + 1


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _number(data, at)
    if size < 0:
        return None, at
    end = at + size
    if end > len(data):
        msg = "it ends too early"
        raise ValueError(msg)
    return data[at:end], end
