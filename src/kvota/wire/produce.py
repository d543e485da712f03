"""Finds a Produce request's acks and an answer's throttle_time_ms without decoding either."""

from struct import Struct

from kvota.model.errors import ProtocolError
from kvota.wire.apis import APIS, PRODUCE
from kvota.wire.headers import ANSWER_HEAD_BYTES
from kvota.wire.produce_walker import ProduceAnswerWalker
from kvota.wire.scanner import Scanner
from kvota.wire.steps import Steps, at_once
from kvota.wire.varint import Bytes, read_uvarint

_FLEXIBLE_FROM = APIS[PRODUCE].flexible_from
_TRANSACTIONAL_ID_FROM = 3

_INT16 = Struct(">h").unpack_from
_SIZE_MAX = 1 << 31

# Below v9 an answer has at least a head, the count of its topics and a throttle time.
_FRAME_BYTES_MIN = ANSWER_HEAD_BYTES + 4 + 4

# How an answer without errors ends from v9 on: no record errors (an empty compact array, 1), no
# message (null, 0), no tags of partition and topic, throttle 0, no tags. Five zeros alone rule out
# a port; with the other four bytes a tag we do not know has to look like all of this, too.
PLAIN_TAIL = b"\x01" + bytes(8)


def acks(data: Bytes, at: int, version: int, end: int = _SIZE_MAX) -> int | None:
    """Returns the request's acks; None if more bytes are needed.

    Args:
        data: has the request's body from ``at`` on, perhaps not all of it.
        at: offset of the body (``headers.request_body_offset``).
        version: of the request, 0 to 13.
        end: offset behind the request's last byte, perhaps beyond ``data``.

    Raises:
        ProtocolError: the request ends before its acks.
    """
    here = len(data)
    if here > end:  # noqa: PLR1730 - min() costs three times as much
        here = end
    acks_at: int | None = at
    if version >= _FLEXIBLE_FROM:
        # 0 is null, as for every producer without transactions.
        is_null = at < here and data[at] == 0
        acks_at = at + 1 if is_null else _behind_compact_text(data, at, here)
    elif version >= _TRANSACTIONAL_ID_FROM:
        acks_at = _behind_text(data, at, here)
    if acks_at is not None and acks_at + 2 <= here:
        value: int = _INT16(data, acks_at)[0]
        return value
    if end <= len(data) or (acks_at is not None and acks_at + 2 > end):
        msg = f"Produce v{version} request: ends before its acks"
        raise ProtocolError(msg)
    return None


def _behind_compact_text(data: Bytes, at: int, here: int) -> int | None:
    try:
        length, at = read_uvarint(data, at, here)
    except ProtocolError:
        return None
    return at + max(0, length - 1)


def _behind_text(data: Bytes, at: int, here: int) -> int | None:
    if at + 2 > here:
        return None
    length_bytes: int = _INT16(data, at)[0]
    return at + 2 + max(0, length_bytes)


def throttle_offset(frame: Bytes, version: int) -> int:
    """Returns the offset of throttle_time_ms in a whole answer frame of v1 or higher.

    Raises:
        ProtocolError: the frame is not a Produce answer of this version.
    """
    return at_once(throttle_offset_in_steps(frame, version))


def throttle_offset_in_steps(frame: Bytes, version: int) -> Steps[int]:
    """Returns the same, found a little at a time.

    Raises:
        ProtocolError: as ``throttle_offset``.
    """
    if version < _FLEXIBLE_FROM:
        if version < 1 or len(frame) < _FRAME_BYTES_MIN:
            msg = f"Produce v{version} answer: {len(frame)} bytes are too few for a throttle time"
            raise ProtocolError(msg)
        return len(frame) - 4
    if frame[-len(PLAIN_TAIL) :] == PLAIN_TAIL:
        return len(frame) - 5
    throttle_at = yield from ProduceAnswerWalker(version).find_in_steps(frame)
    what = f"Produce v{version} answer"
    scanner = Scanner(frame, throttle_at, len(frame), flexible=True, what=what)
    scanner.skip(4)
    scanner.skip_tags()
    scanner.finish()
    return throttle_at
