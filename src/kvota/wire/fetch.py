"""Finds a Fetch request's limits and an answer's last tags without decoding either."""

from struct import Struct

from kvota.wire.apis import FETCH
from kvota.wire.fetch_walker import FetchAnswerWalker
from kvota.wire.headers import ANSWER_HEAD_BYTES, encode_answer, is_flexible
from kvota.wire.steps import Steps, at_once
from kvota.wire.varint import Bytes

_ERROR_AND_SESSION = Struct(">hi").unpack_from

# Of the end of an answer, so many may tell that no node endpoints are in it.
TAIL_BYTES = 7

_MAX_BYTES_FROM = 3
_ERROR_CODE_FROM = 7
_REPLICA_ID_IN_TAGS_FROM = 15
# of the header: tags; throttle, error code, session id, no topics, no tags
_EMPTY_ANSWER_BYTES = ANSWER_HEAD_BYTES + 1 + 4 + 2 + 4 + 1 + 1


def limits_offset(version: int) -> int:
    """Returns the offset of int32 max_wait_ms in a request's body; int32 min_bytes follows.

    The body begins behind the header's tag buffer. From v3 on int32 max_bytes follows as well.
    """
    return 0 if version >= _REPLICA_ID_IN_TAGS_FROM else 4


def max_bytes_offset(version: int) -> int:
    """Returns the offset of int32 max_bytes in a request's body; -1 below v3, which has none.

    The body begins behind the header's tag buffer.
    """
    return limits_offset(version) + 8 if version >= _MAX_BYTES_FROM else -1


def tail_has_no_endpoints(tail: Bytes) -> bool:
    """Returns whether the last ``TAIL_BYTES`` or more of a v16+ answer rule out node endpoints.

    With endpoints the answer ends in host, int32 port, rack, tag count. If the last three bytes are
    zero, then the rack is null and the low byte of the port is zero; so its high byte is not, and
    the two bytes before (-6 and -5), the upper half of the port, both are. Before them (-7) stands the
    host's last letter, or the length of an empty one, which is 1: so not zero. False says nothing.
    """
    return tail[-3:] == b"\0\0\0" and (tail[-6:-4] != b"\0\0" or tail[-7] == 0)


def has_no_topics(answer: Bytes) -> bool:
    """Returns whether a whole v16+ answer frame is that of a long poll which found nothing."""
    return (
        len(answer) == _EMPTY_ANSWER_BYTES
        and answer[-2:] == b"\x01\0"
        and answer[ANSWER_HEAD_BYTES] == 0
    )


def tags_offset(frame: Bytes, version: int) -> int:
    """Returns the offset of the last tag buffer in a whole v16+ answer frame, size field included.

    Raises:
        ProtocolError: the frame is not a Fetch answer of this version.
    """
    return at_once(tags_offset_in_steps(frame, version))


def tags_offset_in_steps(frame: Bytes, version: int) -> Steps[int]:
    """Returns the same, found a little at a time.

    Raises:
        ProtocolError: as ``tags_offset``.
    """
    return (yield from FetchAnswerWalker(version).find_in_steps(frame))


def session_offset(version: int) -> int:
    """Returns the offset of int32 session_id in a request's body; int32 session_epoch follows; -1 below v7.

    The body begins behind the header's tag buffer. Between max_bytes and it stands int8 isolation_level.
    """
    return max_bytes_offset(version) + 5 if version >= _ERROR_CODE_FROM else -1


def head_of_answer(data: Bytes, at: int, end: int, version: int) -> tuple[int, int] | None:
    """Returns error code and session id of an answer whose body begins at ``at``: (0, 0) below v7.

    None: they do not stand before ``end``.
    """
    if version < _ERROR_CODE_FROM:
        return 0, 0
    if at + 10 > end:
        return None
    error_and_session: tuple[int, int] = _ERROR_AND_SESSION(data, at + 4)
    return error_and_session


def empty_answer(
    correlation_id: int, version: int, *, throttle_ms: int, error_code: int, session_id: int = 0
) -> bytes:
    """Makes a whole answer frame without topics, for a request that the gateway answers itself.

    Below v7 there is no place for an error code and a session.
    """
    session = session_id.to_bytes(4, "big", signed=True)
    error = error_code.to_bytes(2, "big", signed=True) + session
    body = (
        throttle_ms.to_bytes(4, "big") * (version >= 1)
        + error * (version >= _ERROR_CODE_FROM)
        + (b"\x01\0" if is_flexible(FETCH, version) else bytes(4))
    )
    return encode_answer(FETCH, version, correlation_id, body)
