"""Finds a ShareFetch request's limits and the node endpoints of an answer without decoding either (KIP-932).

With max_bytes 0 a broker applies the acknowledgements of a request, acquires nothing and answers at once.
Source: Kafka 4.3.1 ``SharePartitionManager.processShareFetch``.
"""

from struct import Struct

from kvota.wire.scanner import Scanner
from kvota.wire.share_fetch_walker import ShareFetchAnswerWalker
from kvota.wire.steps import Steps, at_once
from kvota.wire.varint import Bytes, read_uvarint

# What a request asks for in order to acquire nothing.
NOTHING_BYTES = 0
# An answer that ends so has no node endpoints: each of them ends in its own tags, of which there are none, as there
# are none behind them.
PLAIN_TAIL = b"\x01\0"

_INT32 = Struct(">i")
_TWO_INT32 = Struct(">ii")
_THREE_INT32 = Struct(">iii")
# max_records, batch_size; from v2 on how to acquire, and whether locks are renewed
_BEHIND_LIMITS_BYTES = {1: 4 + 4, 2: 4 + 4 + 1 + 1}
_BEFORE_LIMITS_BYTES = 4 + 4  # session epoch, how long to wait


def min_bytes_offset(data: Bytes, body: int, end: int, version: int) -> int:
    """Returns the offset of int32 min_bytes in a request, of which max_bytes is the next field.

    Args:
        data: has the request.
        body: offset of its body, behind the tags of its header.
        end: offset behind its last byte.
        version: of the request.

    Raises:
        ProtocolError: they do not stand before ``end``.
    """
    scanner = Scanner(data, body, end, flexible=True, what=f"ShareFetch v{version} request")
    scanner.skip_text()  # group
    scanner.skip_text()  # member
    scanner.skip(_BEFORE_LIMITS_BYTES)
    return scanner.skip(_TWO_INT32.size)


def max_bytes(data: Bytes, min_bytes_at: int) -> int:
    """Returns how much a request asks for, whose min_bytes stands at ``min_bytes_at``."""
    asked_bytes: int = _TWO_INT32.unpack_from(data, min_bytes_at)[1]
    return asked_bytes


def names_topics(data: Bytes, min_bytes_at: int, end: int, version: int) -> bool:
    """Returns whether a request names topics: with them come acknowledgements, and changes of its session.

    Raises:
        ProtocolError: their count does not stand before ``end``.
    """
    at = min_bytes_at + _TWO_INT32.size + _BEHIND_LIMITS_BYTES[version]
    return read_uvarint(data, at, end)[0] > 1


def max_wait_ms(data: Bytes, min_bytes_at: int) -> int:
    """Returns for how long a request has its broker wait for records."""
    wait_ms: int = _INT32.unpack_from(data, min_bytes_at - _INT32.size)[0]
    return wait_ms


def lowered(frame: Bytes, min_bytes_at: int, *, most_bytes: int, wait_ms: int) -> bytearray:
    """Makes a request that asks for no more than ``most_bytes`` and waits no longer; min_bytes is lowered with it."""
    changed = bytearray(frame)
    wait_at = min_bytes_at - _INT32.size
    waits_ms, least, most = _THREE_INT32.unpack_from(changed, wait_at)
    most = min(most, most_bytes)
    _THREE_INT32.pack_into(changed, wait_at, min(waits_ms, wait_ms), min(least, most), most)
    return changed


def endpoints_offset(frame: Bytes, version: int) -> int:
    """Returns the offset of the node endpoints in a whole answer frame, size field included.

    Raises:
        ProtocolError: the frame is not a ShareFetch answer.
    """
    return at_once(endpoints_offset_in_steps(frame, version))


def endpoints_offset_in_steps(frame: Bytes, version: int) -> Steps[int]:
    """Returns the same, found a little at a time.

    Raises:
        ProtocolError: as ``endpoints_offset``.
    """
    return (yield from ShareFetchAnswerWalker(version).find_in_steps(frame))
