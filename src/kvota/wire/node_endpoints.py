"""Rewrites the last tag buffer of a Produce v10+ or Fetch v16+ answer: tag 0 has node endpoints.

Source: KIP-951. Other tags pass through byte for byte, known or not.
"""

from dataclasses import dataclass

from kvota.wire.address_rewrite import ADDRESS_BYTES_MIN, AddressOf, AddressRewrite
from kvota.wire.scanner import Scanner
from kvota.wire.varint import Bytes, uvarint

NODE_ENDPOINTS_TAG = 0
# No Kafka version gives out this number soon; it is one byte long, as the one that it replaces.
_BLANK_TAG_MAX = 127
# with rack and tags
_ENDPOINT_BYTES_MIN = ADDRESS_BYTES_MIN + 1 + 1


@dataclass(frozen=True, slots=True)
class _Tag:
    number: int
    number_bytes: int  # how many bytes its encoding took
    size: bytes  # as encoded
    content: bytes


def rewrite_endpoints(tag_section: Bytes, address_of: AddressOf, *, what: str) -> bytes | None:
    """Returns the section with the gateway's addresses; None if there is nothing to change.

    Raises:
        ProtocolError: this is no tag buffer with node endpoints that fills the section.
    """
    if tag_section == b"\0":
        return None
    tags = _scan(tag_section, what)
    if not any(tag.number == NODE_ENDPOINTS_TAG for tag in tags):
        return None
    parts = [uvarint(len(tags))]
    for tag in tags:
        if tag.number == NODE_ENDPOINTS_TAG:
            content = _rewrite_content(tag.content, address_of, what)
            parts += uvarint(tag.number), uvarint(len(content)), content
        else:
            parts += _number(tag.number, tag.number_bytes), tag.size, tag.content
    return b"".join(parts)


def blank_endpoints(tag_section: Bytes, *, what: str = "Fetch answer") -> bytes:
    """Makes node endpoints a tag that nobody knows, full of zeros; the length stays the same.

    This is for answers whose size has been sent already. Other tags keep their bytes and their
    ascending order.

    Raises:
        ProtocolError: the bytes are not one whole tag buffer.
    """
    tags = _scan(tag_section, what)
    if not any(tag.number == NODE_ENDPOINTS_TAG for tag in tags):
        return bytes(tag_section)
    free = (n for n in range(_BLANK_TAG_MAX, 0, -1) if all(tag.number != n for tag in tags))
    blanked = [
        _Tag(next(free, _BLANK_TAG_MAX), tag.number_bytes, tag.size, bytes(len(tag.content)))
        if tag.number == NODE_ENDPOINTS_TAG
        else tag
        for tag in tags
    ]
    count_bytes = len(tag_section) - sum(
        tag.number_bytes + len(tag.size) + len(tag.content) for tag in tags
    )
    parts = [bytes(tag_section[:count_bytes])]
    for tag in sorted(blanked, key=lambda tag: tag.number):
        parts += _number(tag.number, tag.number_bytes), tag.size, tag.content
    return b"".join(parts)


def _scan(tag_section: Bytes, what: str) -> list[_Tag]:
    scanner = Scanner(tag_section, 0, len(tag_section), flexible=True, what=f"{what}, last tags")
    tags = []
    for _ in range(scanner.tag_count()):
        number_at = scanner.at
        number = scanner.uvarint()
        size_at = scanner.at
        size_bytes = scanner.uvarint()
        size = bytes(tag_section[size_at : scanner.at])
        tags.append(_Tag(number, size_at - number_at, size, scanner.take(size_bytes)))
    scanner.finish()
    return tags


def _number(number: int, length_bytes: int) -> bytes:
    """Encodes the number in ``length_bytes``, padded as a varint may be, or in more if it must."""
    shortest = uvarint(number)
    if len(shortest) >= length_bytes:
        return shortest
    padding = b"\x80" * (length_bytes - len(shortest) - 1) + b"\0"
    return shortest[:-1] + bytes((shortest[-1] | 0x80,)) + padding


def _rewrite_content(content: bytes, address_of: AddressOf, what: str) -> bytes:
    scanner = Scanner(content, 0, len(content), flexible=True, what=f"{what}, node endpoints")
    rewrite = AddressRewrite(scanner, address_of)
    for _ in range(rewrite.count(_ENDPOINT_BYTES_MIN)):
        rewrite.address()
        scanner.skip_text()
        scanner.skip_tags()
    scanner.finish()
    parts = rewrite.parts()
    return content if parts is None else b"".join(parts)
