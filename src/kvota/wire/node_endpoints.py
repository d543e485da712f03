"""Rewrites the node endpoints at the end of an answer, or makes them unreadable where its size is sent already.

In a Produce v10+ or Fetch v16+ answer (KIP-951) they are tag 0 of the last tag buffer; in answers to ShareFetch
and ShareAcknowledge (KIP-932) an array before it. Other tags pass through byte for byte, known or not.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from kvota.wire.address_rewrite import ADDRESS_BYTES_MIN, AddressOf, AddressRewrite
from kvota.wire.scanner import Scanner
from kvota.wire.varint import Bytes, uvarint

NODE_ENDPOINTS_TAG = 0
# No Kafka version gives out this number soon; it is one byte long, as the one that it replaces.
_BLANK_TAG_MAX = 127
_NO_ENDPOINT = b"\x01"  # an empty array
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
    free = _free_numbers(tags)
    blanked = [
        _Tag(next(free, _BLANK_TAG_MAX), tag.number_bytes, tag.size, bytes(len(tag.content)))
        if tag.number == NODE_ENDPOINTS_TAG
        else tag
        for tag in tags
    ]
    count_bytes = len(tag_section) - sum(
        tag.number_bytes + len(tag.size) + len(tag.content) for tag in tags
    )
    count = bytes(tag_section[:count_bytes])
    return count + _joined(sorted(blanked, key=lambda tag: tag.number))


def skip_endpoints(rewrite: AddressRewrite) -> None:
    """Goes over the array of node endpoints at the scanner's position, and puts the gateway's addresses in.

    Raises:
        ProtocolError: there is no such array.
    """
    for _ in range(rewrite.count(_ENDPOINT_BYTES_MIN)):
        rewrite.address()
        rewrite.scanner.skip_text()
        rewrite.scanner.skip_tags()


def rewrite_endpoint_array(section: Bytes, address_of: AddressOf, *, what: str) -> bytes | None:
    """Returns an answer's end, from the array on, with the gateway's addresses; None: there is none to change.

    Raises:
        ProtocolError: this is no array of node endpoints with a tag buffer behind it that ends the section.
    """
    scanner = Scanner(section, 0, len(section), flexible=True, what=f"{what}, node endpoints")
    rewrite = AddressRewrite(scanner, address_of)
    skip_endpoints(rewrite)
    scanner.skip_tags()
    scanner.finish()
    parts = rewrite.parts()
    return None if parts is None else b"".join(parts)


def blank_endpoint_array(section: Bytes, *, what: str) -> bytes:
    """Makes the array empty, and its bytes a tag that nobody knows, full of zeros; the length stays the same.

    Raises:
        ProtocolError: as ``rewrite_endpoint_array``.
    """
    scanner = Scanner(section, 0, len(section), flexible=True, what=f"{what}, node endpoints")
    rewrite = AddressRewrite(scanner, _as_it_is)
    skip_endpoints(rewrite)
    tags = _scan(section[scanner.at :], what)
    if rewrite.parts() is None:
        return bytes(section)
    kept_bytes = sum(tag.number_bytes + len(tag.size) + len(tag.content) for tag in tags)
    before = _NO_ENDPOINT + uvarint(len(tags) + 1)
    # Of the tag's number, its length and its zeros.
    left_bytes = len(section) - len(before) - kept_bytes
    length_bytes = len(uvarint(left_bytes))
    zeros = bytes(left_bytes - 1 - length_bytes)
    number = next(_free_numbers(tags), _BLANK_TAG_MAX)
    blank = _Tag(number, 1, _number(len(zeros), length_bytes), zeros)
    return before + _joined(sorted([*tags, blank], key=lambda tag: tag.number))


def _as_it_is(_node_id: int, host: str, port: int) -> tuple[str, int]:
    return host, port


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


def _free_numbers(tags: list[_Tag]) -> Iterator[int]:
    """Tags that nobody knows, and that are not among these."""
    taken = {tag.number for tag in tags}
    return (number for number in range(_BLANK_TAG_MAX, 0, -1) if number not in taken)


def _joined(tags: list[_Tag]) -> bytes:
    parts: list[bytes] = []
    for tag in tags:
        parts += _number(tag.number, tag.number_bytes), tag.size, tag.content
    return b"".join(parts)


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
    skip_endpoints(rewrite)
    scanner.finish()
    parts = rewrite.parts()
    return content if parts is None else b"".join(parts)
