"""Ways to end one side of a connection without losing what is on its way.

A transport that can close one direction alone (TCP, and TLS of our own: ``tls_transport``) says that no more comes and still
listens; one that cannot (asyncio's TLS) is closed, which writes first what is still to be written.
"""

import asyncio
import select
from array import array
from collections.abc import Iterable
from fcntl import ioctl
from termios import FIONREAD, TIOCOUTQ

from kvota.gateway.side import Side
from kvota.gateway.tls_transport import CLOSE_NOTIFY_BYTES_MAX, TlsTransport

# How long a closed connection may take to write what it still holds.
LINGER_S = 30.0
# How long a client may take to close after it was told that no more answers come.
GOODBYE_S = 1.0


def close_when_written(side: Side, loop: asyncio.AbstractEventLoop) -> None:
    """Close once what was written has gone out."""
    transport = side.transport
    transport.close()
    # TLS counts its own bytes only, not those that the socket below it has not taken.
    if transport.get_write_buffer_size() or not transport.can_write_eof():
        _abort_after(LINGER_S, side, loop)


def say_goodbye(side: Side, loop: asyncio.AbstractEventLoop) -> None:
    """Tell the client that no more answers come, and let it close.

    A socket closed with unread bytes in it resets the connection, and the client may not have read its
    last answers yet: what still comes is read and dropped.
    """
    transport = side.transport
    transport.set_protocol(_Unheard(side))
    side.resume()
    if half_close(side):
        _abort_after(GOODBYE_S, side, loop)
    else:
        close_when_written(side, loop)


def leave_unread(side: Side, loop: asyncio.AbstractEventLoop) -> None:
    """Take nothing of what the client sends; what comes before the transport can be paused is dropped."""
    side.transport.set_protocol(_Unheard(side))
    loop.call_soon(side.pause)  # it begins to read behind connection_made


def leave_upstream(side: Side, loop: asyncio.AbstractEventLoop, *, is_inside_frame: bool) -> None:
    """Close once what was forwarded has been written: a record with acks=0 is still on its way.

    In the middle of a frame the broker closes first: it has taken memory for all of the frame, and only
    its own end of the connection says that it has let go.
    """
    if side.transport.is_closing() or side.linger is not None:
        return
    if is_inside_frame:
        side.resume()
        if half_close(side):
            _abort_after(LINGER_S, side, loop)
            return
    close_when_written(side, loop)


def has_gone(side: Side) -> bool:
    """True when the client has closed; while its socket is not read, the loop does not see that."""
    return bool(gone_among([side]))


def gone_among(sides: Iterable[Side]) -> list[Side]:
    """Those whose client has closed, in their order; one question for all of them."""
    asked = select.poll()
    of_number: dict[int, Side] = {}
    for side in sides:
        number = _socket_number(side)
        if number >= 0:
            asked.register(number, select.POLLRDHUP)
            of_number[number] = side
    if not of_number:
        return []
    gone = {number for number, _ in asked.poll(0)}
    return [side for number, side in of_number.items() if number in gone]


def has_unread(side: Side) -> bool:
    """True while bytes of the client wait in its socket, or before TLS; with TLS, more than say that it has closed."""
    tls = side.transport if isinstance(side.transport, TlsTransport) else None
    in_socket = _bytes_in_socket(side, FIONREAD)
    return in_socket > 0 if tls is None else in_socket + tls.unread_bytes > CLOSE_NOTIFY_BYTES_MAX


def has_unsent(side: Side) -> bool:
    """True while bytes that were written have not reached the client's machine."""
    return _bytes_in_socket(side, TIOCOUTQ) > 0


def _bytes_in_socket(side: Side, question: int) -> int:
    number = _socket_number(side)
    if number < 0:
        return 0
    count = array("i", [0])
    ioctl(number, question, count)
    return count[0]


def _socket_number(side: Side) -> int:
    """Below 0 where there is none (any more)."""
    socket = side.transport.get_extra_info("socket")
    number: int = -1 if socket is None else socket.fileno()
    return number


def half_close(side: Side) -> bool:
    """Say that no more comes, and go on listening; False where the transport cannot."""
    transport = side.transport
    if not transport.can_write_eof():
        return False
    if not transport.is_closing():
        transport.write_eof()
    return True


def _abort_after(delay_s: float, side: Side, loop: asyncio.AbstractEventLoop) -> None:
    side.linger = loop.call_later(delay_s, side.transport.abort)


class _Unheard(asyncio.Protocol):
    """Reads past what a client still sends while it learns that no more answers come."""

    __slots__ = ("_side",)

    def __init__(self, side: Side) -> None:
        self._side = side

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has closed, or has not in time."""
        self._side.connection_lost(exc)
