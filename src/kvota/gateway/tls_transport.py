"""TLS between a side and its socket: what comes is decrypted, what is written is encrypted, and nothing waits here.

To a side it is a transport like the one below it. A read below is one above, at most; a side that pauses leaves the
rest in its socket; what is written waits encrypted below, so all limits and counts of buffers hold as without TLS.
Either direction can be closed alone, as with TCP: ``write_eof`` says so to the peer (close_notify) as well.

OpenSSL is handed one whole record at a time: no call is in vain, and its memory never grows beyond one. What comes from
the socket is read into memory that all connections share, and is copied only where it has to wait.
"""

import asyncio
import ssl
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol, cast

from kvota.gateway.little_reads import LittleReads
from kvota.gateway.turns import Turns

# What a record holds at most; what it may be long in TLS 1.2, with all that encrypts it.
_PLAIN_BYTES_MAX = 16_384
_RECORD_BYTES_MAX = 16_384 + 2_048
# The alert that ends a direction; a record with a request is longer.
CLOSE_NOTIFY_BYTES_MAX = 31
_HEADER = struct.Struct(">BBxH")  # kind, major version, length behind it
_KINDS = range(20, 25)
# Of one turn: a large read is 16 full records, or 11,000 with a byte each.
_RECORDS_MAX = 256
# One for all: what is left of what has come is copied out of it before anything else is read.
_ENCRYPTED = memoryview(bytearray(2**18))
# One for all: what is decrypted is copied out of it before anything else is.
_PLAIN = memoryview(bytearray(2**18 + _PLAIN_BYTES_MAX))
_FILLED_MAX = len(_PLAIN) - _PLAIN_BYTES_MAX
_GONE = "the connection was closed in the middle of the TLS handshake"


class NotTlsError(OSError):
    """What has come is no TLS."""


class Upper(Protocol):
    """What is told how TLS goes."""

    def secured(self, tls: "TlsTransport") -> None:
        """Both sides have agreed; what comes from now on is theirs."""

    def tls_failed(self, tls: "TlsTransport", error: Exception) -> None:
        """They cannot agree, or what has come is damaged (``ssl.SSLError``), they take too long, or the peer has gone (``OSError``).

        Whoever is told closes the transport.
        """


class Handshake:
    """Waits for the end of a handshake.

    Attributes:
        is_over: done when it is; with an exception where it has failed.
    """

    def __init__(self, is_over: "asyncio.Future[None]") -> None:
        self.is_over = is_over

    def secured(self, _tls: "TlsTransport") -> None:
        """They have agreed."""
        if not self.is_over.done():
            self.is_over.set_result(None)

    def tls_failed(self, _tls: "TlsTransport", error: Exception) -> None:
        """They have not."""
        if not self.is_over.done():
            self.is_over.set_exception(error)


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """One connection.

    Args:
        upper: is told how it goes.
        wrap: makes OpenSSL's part of it, which reads from the first and writes to the second.
        turns: handshakes, and reads of many small records, let others go first.
        handshake_s: so long the handshake may take.
        protocol: whose transport it is from the socket's first moment on; None: one is set when it is secured.
        head: goes before the handshake, as it is.

    Attributes:
        tls: OpenSSL's part.
        upper: see above.
        is_secured: the handshake is over, and has not failed.
        is_cut: the peer's last record has not come whole; nothing of it was handed on.
    """

    __slots__ = (
        "_before",
        "_end_is_due",
        "_handshake_s",
        "_has_ended",
        "_head",
        "_incoming",
        "_left",
        "_lower",
        "_missing",
        "_outgoing",
        "_paused",
        "_protocol",
        "_says_no_more",
        "_timer",
        "_turn_is_due",
        "_turns",
        "is_cut",
        "is_secured",
        "tls",
        "upper",
    )

    def __init__(
        self,
        upper: Upper,
        wrap: Callable[[ssl.MemoryBIO, ssl.MemoryBIO], ssl.SSLObject],
        *,
        turns: Turns,
        handshake_s: float,
        protocol: asyncio.Protocol | None = None,
        head: bytes = b"",
    ) -> None:
        super().__init__()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = wrap(self._incoming, self._outgoing)
        self.upper = upper
        self._turns = turns
        self._handshake_s = handshake_s
        self._lower: asyncio.Transport
        self._protocol = protocol
        self._timer: asyncio.TimerHandle | None = None
        self._before = head
        self._head = b""  # of a record, shorter than its header
        self._missing = 0  # of a record that OpenSSL has the beginning of
        self._left = memoryview(b"")  # has come, and waits for its turn
        self._turn_is_due = False
        self._paused = False
        self._has_ended = False  # the peer sends no more, and whoever is above knows
        self._end_is_due = False  # or will know when it reads on
        self._says_no_more = False
        self.is_cut = False
        self.is_secured = False

    # ------------------------------------------------------------------ the socket's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there: shake hands."""
        self._lower = cast("asyncio.Transport", transport)
        self._timer = self._turns.later(self._handshake_s, self._is_too_slow)
        if self._protocol is not None:
            self._protocol.connection_made(self)
        if self._before:
            self._lower.write(self._before)
        if not self.tls.server_side:
            self._shake()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  (asyncio's signature)
        """Where what comes next goes."""
        return _ENCRYPTED

    def buffer_updated(self, nbytes: int) -> None:
        """Something has come."""
        self._take(_ENCRYPTED[:nbytes])
        if self._left:
            self._left = memoryview(self._left.tobytes())

    def data_received(self, data: bytes) -> None:
        """The same, where others have read it (``LittleReads``)."""
        self._take(memoryview(data))

    def _take(self, data: memoryview) -> None:
        if self._has_ended:
            return
        if self._head:
            data, self._head = memoryview(self._head + data), b""
        if self._left:  # a loop may bring more than it was asked for
            data = memoryview(self._left.tobytes() + data)
        self._left = data
        if self.is_secured and not self._turn_is_due:
            self._decrypt()
        elif not self.is_secured:
            self._lower.pause_reading()
            self._join_turns()

    def eof_received(self) -> bool:
        """The peer has closed its end of the socket, whether or not it has said so in TLS before."""
        if self._timer is not None:
            self._fail(ConnectionResetError(_GONE))
            return False
        self.is_cut = bool(self._missing or self._head) and not self._has_ended
        return self._end()

    def pause_writing(self) -> None:
        """The peer reads slowly."""
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        if self._protocol is not None:
            self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self._left = memoryview(b"")
        self._fail_handshake(exc or ConnectionResetError(_GONE))
        protocol, self._protocol = self._protocol, None  # each holds the other
        if protocol is not None:
            protocol.connection_lost(exc)

    # ------------------------------------------------------------------ the handshake

    def _shake(self) -> None:
        if self._timer is None or self._lower.is_closing():
            return  # it has been given up meanwhile
        is_over = False
        try:
            while not is_over and (self._moves_record() or not self.tls.server_side):
                is_over = self._step()
                if not self._left:
                    break
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            self._send()  # the alert that says why
            self._fail(error)
            return
        self._send()
        if is_over:
            self._timer.cancel()
            self._timer = None
            self.is_secured = True
            self.upper.secured(self)
        self._go_on()

    def _step(self) -> bool:
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def _moves_record(self) -> bool:
        """Whether OpenSSL has a whole record more than before.

        Raises:
            NotTlsError: it is none.
        """
        left = self._left
        size = self._missing
        if not size:
            if len(left) < _HEADER.size:
                self._head, self._left = left.tobytes(), memoryview(b"")
                return False
            kind, major, behind = _HEADER.unpack_from(left)
            if kind not in _KINDS or major != 3:
                msg = "it speaks no TLS"
                raise NotTlsError(msg)
            size = _HEADER.size + behind
        self._missing = max(0, size - len(left))
        self._incoming.write(left[:size])
        self._left = left[size:]
        return not self._missing or size > _RECORD_BYTES_MAX

    def _is_too_slow(self) -> None:
        self._fail_handshake(TimeoutError(f"no TLS handshake in {self._handshake_s:g} s"))

    def _fail_handshake(self, error: Exception) -> None:
        if self._timer is not None:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.upper.tls_failed(self, error)

    # ------------------------------------------------------------------ reading

    def _decrypt(self) -> None:
        """Hand on what is left; of many small records some, and the rest when others have had their turn."""
        filled, error, is_end = 0, None, False
        try:
            for _ in range(_RECORDS_MAX):
                if not self._moves_record():
                    break
                size = self._read(filled)
                is_end = size < 0
                if is_end:
                    break
                filled += size
                if filled > _FILLED_MAX:
                    break
        except (ssl.SSLError, NotTlsError) as raised:
            error = raised
            self._says_no_more = True  # OpenSSL encrypts nothing behind its alert
        self._send()
        if filled and self._protocol is not None:
            self._protocol.data_received(_PLAIN[:filled].tobytes())
        if error is not None:
            self._fail(error)
        elif is_end:
            self._end_unless_paused()
        elif self._left:
            self._lower.pause_reading()
            self._join_turns()

    def _read(self, filled: int) -> int:
        """Decrypt a record behind what is there; below 0: the peer says that no more comes."""
        try:
            size: int = self.tls.read(_PLAIN_BYTES_MAX, _PLAIN[filled:])  # type: ignore[assignment]
        except ssl.SSLWantReadError:
            return 0  # OpenSSL's own: another key, a ticket
        except ssl.SSLZeroReturnError:
            return -1  # an end like any other, but that we have said the same before
        return size or -1

    def _end_unless_paused(self) -> None:
        """Who has paused has work that was sent before this, and hears of it behind that, as from a socket."""
        if self._paused:
            self._end_is_due = True
        else:
            self._end()

    def _end(self) -> bool:
        """The peer sends no more; returns whether it is still sent to."""
        if not self._has_ended:
            self._has_ended = True
            self._left = memoryview(b"")
            if self._protocol is None or not self._protocol.eof_received():
                self.close()
        return not self._lower.is_closing()

    def _join_turns(self) -> None:
        if not self._turn_is_due:
            self._turn_is_due = True
            self._turns.join(self._turn)

    def _turn(self) -> None:
        self._turn_is_due = False
        if self._is_stopped:
            return
        if self.is_secured:
            self._go_on()
        else:
            self._shake()

    def _go_on(self) -> None:
        """Read on: what is left first."""
        if self._is_stopped:
            return
        if self._end_is_due:
            self._end()
        elif self.is_secured and self._left:
            self._decrypt()
        if not (self._left or self._turn_is_due or self._is_stopped):
            self._lower.resume_reading()

    @property
    def _is_stopped(self) -> bool:
        return self._paused or self._lower.is_closing()

    # ------------------------------------------------------------------ the transport of who is above

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand what comes to this one; to ``LittleReads``: little at a time."""
        if isinstance(protocol, LittleReads):
            self._protocol = cast("asyncio.Protocol", protocol.side)
            self._lower.set_protocol(LittleReads(self))
        else:
            self._protocol = cast("asyncio.Protocol", protocol)
            self._lower.set_protocol(self)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Who is above."""
        return cast("asyncio.Protocol", self._protocol)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send this, encrypted."""
        if self._says_no_more or self._lower.is_closing():
            return
        encrypt, take = self.tls.write, self._outgoing.read
        if len(data) <= _PLAIN_BYTES_MAX:
            encrypt(data)
            self._lower.write(take())
            return
        plain, at, end = memoryview(data), 0, len(data)
        records = []
        while at < end:
            at += encrypt(plain[at : at + _PLAIN_BYTES_MAX])
            records.append(take())
        self._lower.writelines(records)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send these, one after the other."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """A direction can be closed alone."""
        return True

    def write_eof(self) -> None:
        """Say that no more comes, and go on reading; before the handshake is over, which takes writing: close."""
        if not self.is_secured:
            self.close()
            return
        self._say_no_more()
        if self._lower.can_write_eof():
            self._lower.write_eof()

    def close(self) -> None:
        """Close when all has been sent."""
        if not self._lower.is_closing():
            self._say_no_more()
            self._lower.close()

    def abort(self) -> None:
        """Close now."""
        self._lower.abort()

    def is_closing(self) -> bool:
        """True once it has been closed, or is being."""
        return self._lower.is_closing()

    def pause_reading(self) -> None:
        """Leave what comes in the socket."""
        self._paused = True
        self._lower.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        self._paused = False
        if self._left or self._end_is_due:
            self._join_turns()
        else:
            self._lower.resume_reading()

    @property
    def unread_bytes(self) -> int:
        """What has been taken from the socket and not been handed on, encrypted or not."""
        return len(self._head) + len(self._left) + self._incoming.pending + self.tls.pending()

    def is_reading(self) -> bool:
        """False while it is paused."""
        return not self._paused

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Of what waits encrypted."""
        self._lower.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """What waits encrypted."""
        return self._lower.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Of what waits encrypted."""
        return self._lower.get_write_buffer_limits()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is known of the socket."""
        return self._lower.get_extra_info(name, default)

    # ------------------------------------------------------------------ writing

    def _send(self) -> None:
        if self._outgoing.pending and not self._lower.is_closing():
            self._lower.write(self._outgoing.read())

    def _say_no_more(self) -> None:
        if self._says_no_more or not self.is_secured:
            return
        self._says_no_more = True
        with suppress(
            ssl.SSLError, ValueError
        ):  # nearly always: the peer has not said the same yet
            self.tls.unwrap()
        self._send()
