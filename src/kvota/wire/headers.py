"""Reads and writes the heads of requests and answers.

A request: int32 size, int16 key, int16 version, int32 correlation id, int16-string client id; in
flexible versions a tag buffer follows, while the client id stays an int16-string. An answer: int32
size, int32 correlation id; in flexible versions a tag buffer follows, except that ApiVersions never
has one (KIP-511).

Functions of the hot path take positions instead of slices and positional arguments: a slice or a
keyword costs more than what they do.
"""

from dataclasses import dataclass
from struct import Struct

from kvota.model.errors import ProtocolError
from kvota.wire.apis import API_VERSIONS, APIS, NEVER, name_of
from kvota.wire.scanner import ITEMS_MAX, Scanner
from kvota.wire.varint import Bytes, read_uvarint

# size, key, version, correlation id, length of the client id (-1: null)
REQUEST_HEAD = Struct(">ihhih")
REQUEST_HEAD_BYTES = REQUEST_HEAD.size
# The size counts everything but itself; a request of fewer bytes has no whole head.
REQUEST_SIZE_MIN = REQUEST_HEAD_BYTES - 4

# size, correlation id
ANSWER_HEAD = Struct(">ii")
ANSWER_HEAD_BYTES = ANSWER_HEAD.size

# No header tag is known yet; one that is given out some day has room for a trace id and the like.
HEADER_TAGS_BYTES_MAX = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHead:
    """The head of a request, as ``read_request_head`` reads it."""

    version: int
    correlation_id: int
    client_id: bytes  # empty for null
    body_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseHead:
    """The head of an answer, as ``read_answer_head`` reads it."""

    size_bytes: int  # as announced, without its own four bytes
    correlation_id: int
    body_at: int  # offset of the body in the frame


def request_body_offset(
    data: Bytes, head_at: int, end: int, client_id_bytes: int, header_version: int
) -> int | None:
    """Returns where the body of the request begins whose size field stands at ``head_at``.

    Args:
        data: has the request from ``head_at`` on, perhaps not all of it.
        head_at: offset of the request's size field.
        end: offset behind the request's last byte (``head_at + 4 + size``), perhaps beyond ``data``.
        client_id_bytes: the last field of ``REQUEST_HEAD``, -1 for null.
        header_version: 2 for a flexible version, else 1.

    Returns:
        An offset <= ``end`` with all bytes before it in ``data``; None: more bytes are needed.

    Raises:
        ProtocolError: negative length, or the head is longer than the request or the limit.
    """
    at = head_at + REQUEST_HEAD_BYTES
    if client_id_bytes > 0:
        at += client_id_bytes
    elif client_id_bytes < -1:
        msg = f"request header: client id of {client_id_bytes} bytes; a length is -1 (null) or more"
        raise ProtocolError(msg)
    if header_version == 2:
        if at < end and at < len(data) and not data[at]:
            return at + 1
        return skip_header_tags(data, at, end)
    if at > end:
        msg = f"request header: client id of {client_id_bytes} bytes reaches beyond the request"
        raise ProtocolError(msg)
    return at if at <= len(data) else None


def answer_body_offset(data: Bytes, head_at: int, end: int, header_version: int) -> int | None:
    """Returns where the body of the answer begins whose size field stands at ``head_at``.

    ``header_version`` is 1 for a flexible version (but ApiVersions), else 0; ``end`` and the
    result as in ``request_body_offset``.
    """
    at = head_at + ANSWER_HEAD_BYTES
    if header_version == 0:
        return at if at <= len(data) else None
    if at < end and at < len(data) and not data[at]:
        return at + 1
    return skip_header_tags(data, at, end)


def skip_header_tags(data: Bytes, at: int, end: int) -> int | None:
    """Returns the offset behind the tag buffer at ``at``; None if more bytes are needed.

    Raises:
        ProtocolError: it is longer than ``HEADER_TAGS_BYTES_MAX`` or reaches beyond ``end``.
    """
    limit = min(end, at + HEADER_TAGS_BYTES_MAX)
    here = min(limit, len(data))
    try:
        return _behind_tags(data, at, here)
    except ProtocolError as fault:
        if here < limit:
            return None
        msg = (
            f"message header: its tagged fields end neither within the message nor within"
            f" {HEADER_TAGS_BYTES_MAX} bytes"
        )
        raise ProtocolError(msg) from fault


def _behind_tags(data: Bytes, at: int, end: int) -> int:
    count, at = read_uvarint(data, at, end)
    for _ in range(count):  # each takes two bytes or more, so ``end`` bounds this
        _, at = read_uvarint(data, at, end)
        size_bytes, at = read_uvarint(data, at, end)
        at += size_bytes
    if at > end:
        msg = f"byte {at}: a tagged field reaches beyond byte {end}"
        raise ProtocolError(msg)
    return at


def answer_header_version(key: int, version: int) -> int:
    """Returns 1 if a tag buffer follows the correlation id, else 0 (always for ApiVersions)."""
    return 1 if key != API_VERSIONS and is_flexible(key, version) else 0


def request_header_version(key: int, version: int) -> int:
    """Returns 2 if a tag buffer follows the client id, else 1."""
    return 2 if is_flexible(key, version) else 1


def is_flexible(key: int, version: int) -> bool:
    """Returns whether this version of a known API has compact lengths and tagged fields."""
    api = APIS.get(key)
    return version >= (NEVER if api is None else api.flexible_from)


def read_request_head(frame: Bytes, key: int) -> RequestHead:
    """Reads the head of a whole request frame (size field included) of this key.

    Raises:
        ProtocolError: too short, or the head does not fit the frame.
    """
    if len(frame) < REQUEST_HEAD_BYTES:
        msg = f"{name_of(key)} request: {len(frame)} bytes are too few for a header"
        raise ProtocolError(msg)
    _size, _key, version, correlation_id, client_id_bytes = REQUEST_HEAD.unpack_from(frame, 0)
    header_version = request_header_version(key, version)
    body_at = request_body_offset(frame, 0, len(frame), client_id_bytes, header_version)
    assert body_at is not None, "a whole frame needs no more bytes"
    client_id = bytes(frame[REQUEST_HEAD_BYTES : REQUEST_HEAD_BYTES + max(0, client_id_bytes)])
    return RequestHead(
        version=version, correlation_id=correlation_id, client_id=client_id, body_at=body_at
    )


def read_answer_head(frame: Bytes, key: int, version: int) -> ResponseHead:
    """Reads the head of a whole answer frame (size field included).

    Raises:
        ProtocolError: too short, or the size field does not fit the frame.
    """
    if len(frame) < ANSWER_HEAD_BYTES:
        msg = f"{name_of(key)} v{version} answer: {len(frame)} bytes are too few for a header"
        raise ProtocolError(msg)
    size_bytes, correlation_id = ANSWER_HEAD.unpack_from(frame, 0)
    if size_bytes != len(frame) - 4:
        msg = (
            f"{name_of(key)} v{version} answer: announces {size_bytes} bytes, has {len(frame) - 4}"
        )
        raise ProtocolError(msg)
    body_at = answer_body_offset(frame, 0, len(frame), answer_header_version(key, version))
    assert body_at is not None, "a whole frame needs no more bytes"
    return ResponseHead(size_bytes=size_bytes, correlation_id=correlation_id, body_at=body_at)


def request_scanner(frame: Bytes, key: int, *, items_max: int = ITEMS_MAX) -> Scanner:
    """Opens a whole request frame of this key at the beginning of its body.

    Raises:
        ProtocolError: as ``read_request_head``.
    """
    head = read_request_head(frame, key)
    return Scanner(
        frame,
        head.body_at,
        len(frame),
        flexible=is_flexible(key, head.version),
        what=f"{name_of(key)} v{head.version} request",
        items_max=items_max,
    )


def answer_scanner(frame: Bytes, key: int, version: int, *, items_max: int = ITEMS_MAX) -> Scanner:
    """Opens a whole answer frame at the beginning of its body.

    Raises:
        ProtocolError: as ``read_answer_head``.
    """
    return Scanner(
        frame,
        read_answer_head(frame, key, version).body_at,
        len(frame),
        flexible=is_flexible(key, version),
        what=f"{name_of(key)} v{version} answer",
        items_max=items_max,
    )


def encode_request(
    key: int, version: int, correlation_id: int, body: bytes, *, client_id: str = "kvota"
) -> bytes:
    """Makes a whole frame of one of our own questions."""
    client = client_id.encode()
    tags = b"\0" if is_flexible(key, version) else b""
    size_bytes = REQUEST_SIZE_MIN + len(client) + len(tags) + len(body)
    head = REQUEST_HEAD.pack(size_bytes, key, version, correlation_id, len(client))
    return b"".join((head, client, tags, body))


def encode_answer(key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """Makes a whole frame of one of our own answers."""
    tags = b"\0" * answer_header_version(key, version)
    return ANSWER_HEAD.pack(4 + len(tags) + len(body), correlation_id) + tags + body


def with_size(parts: list[Bytes]) -> bytes:
    """Joins the parts of a frame whose first four bytes are a size, and corrects that size."""
    size_bytes = sum(map(len, parts)) - 4
    # One copy: an answer of tens of megabytes is held up by each.
    return b"".join((size_bytes.to_bytes(4, "big"), memoryview(parts[0])[4:], *parts[1:]))
