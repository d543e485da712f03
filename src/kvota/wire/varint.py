"""Reads and writes unsigned varints: seven bits a byte, lowest first, top bit set if more follow.

Source: KIP-482 (lengths, counts and tag numbers of flexible messages are such).
"""

from kvota.model.errors import ProtocolError

Bytes = bytes | bytearray | memoryview
# A whole message, perhaps the buffer in which it has arrived: a large one is not copied.
Frame = bytes | bytearray

# A length or count is at most 2^31: five bytes. Kafka's own reader refuses more as well.
UVARINT_BYTES_MAX = 5


def read_uvarint(data: Bytes, at: int, end: int) -> tuple[int, int]:
    r"""Returns the number at ``at`` and the position behind it; reads nothing from ``end`` on.

    Raises:
        ProtocolError: it does not end before ``end`` or within five bytes.

    >>> read_uvarint(b"\xac\x02", 0, 2)
    (300, 2)
    """
    # The lengths of most messages have at most three bytes, and are read for each request.
    if at < end and (low := data[at]) < 0x80:
        return low, at + 1
    if at + 1 < end and (middle := data[at + 1]) < 0x80:
        return low & 0x7F | middle << 7, at + 2
    if at + 2 < end and (high := data[at + 2]) < 0x80:
        return low & 0x7F | (middle & 0x7F) << 7 | high << 14, at + 3
    value = shift = 0
    for position in range(at, min(end, at + UVARINT_BYTES_MAX)):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
        shift += 7
    msg = f"byte {at}: a varint that does not end within {max(0, min(end - at, UVARINT_BYTES_MAX))} bytes"
    raise ProtocolError(msg)


def try_uvarint(data: Bytes, at: int, end: int) -> tuple[int, int] | None:
    """Reads as ``read_uvarint``; returns None while the last byte may still come behind ``end``."""
    try:
        return read_uvarint(data, at, end)
    except ProtocolError:
        if end - at >= UVARINT_BYTES_MAX:
            raise
        return None


def uvarint(value: int) -> bytes:
    r"""Returns the shortest encoding of a number >= 0.

    >>> uvarint(300)
    b'\xac\x02'
    """
    if value < 0x80:
        return bytes((value,))
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
