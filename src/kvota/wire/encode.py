"""Encodes the fields of our own questions and answers."""

from struct import Struct

from kvota.wire.scanner import TEXT_BYTES_MAX
from kvota.wire.varint import uvarint

_FLOAT64 = Struct(">d")


def encode_text(text: str | None, *, flexible: bool) -> bytes:
    r"""Encodes a string or null: int16 length, or compact (length + 1 as a varint, 0 for null).

    >>> encode_text("ab", flexible=False), encode_text("ab", flexible=True)
    (b'\x00\x02ab', b'\x03ab')
    """
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    encoded = text.encode()
    if flexible:
        return uvarint(len(encoded) + 1) + encoded
    return len(encoded).to_bytes(2, "big", signed=True) + encoded


def encode_words(words: str | None, *, flexible: bool) -> bytes:
    """Encodes words that repeat what somebody else has written, or are longer than that: as much as a text may have."""
    cut = None if words is None else words.encode()[:TEXT_BYTES_MAX].decode(errors="ignore")
    return encode_text(cut, flexible=flexible)


def encode_count(count: int, *, flexible: bool) -> bytes:
    """Encodes the count of an array, -1 for null, as an int32 or compact."""
    return uvarint(count + 1) if flexible else count.to_bytes(4, "big", signed=True)


def encode_int16(value: int) -> bytes:
    """Encodes a signed number as two bytes."""
    return value.to_bytes(2, "big", signed=True)


def encode_int32(value: int) -> bytes:
    """Encodes a signed number as four bytes."""
    return value.to_bytes(4, "big", signed=True)


def encode_float64(value: float) -> bytes:
    """Encodes a double as eight bytes."""
    return _FLOAT64.pack(value)
