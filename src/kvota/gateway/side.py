"""One end of a relayed connection: its transport, and whether it is read."""

import asyncio
from abc import abstractmethod

# Reads that are larger may have thousands of requests or answers in them: how long they took is looked at.
TIMED_READ_BYTES = 32_768
# Who has taken so long waits for others before more of it is read.
LONG_NS = 2_000_000


class Side(asyncio.Protocol):
    """What the client's end and the broker's end have in common.

    Attributes:
        transport: asyncio's, once connected.
        paused: true while it is not read.
        held_bytes: what it was last seen to hold (``gateway.backlog``).
        timed_bytes: of reads of more bytes than this is looked at how long they took.
        linger: aborts the transport when its orderly end takes too long (``gateway.closing``).
    """

    __slots__ = ("held_bytes", "linger", "paused", "timed_bytes", "transport")

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.paused = False
        self.timed_bytes = TIMED_READ_BYTES
        self.held_bytes = 0
        self.linger: asyncio.TimerHandle | None = None

    def time_reads(self, *, are_charged: bool) -> None:
        """How long every read takes is charged from now on, or not any more."""
        self.timed_bytes = -1 if are_charged else TIMED_READ_BYTES

    def pause(self) -> None:
        """Leave what comes in the socket."""
        if not self.paused and not self.transport.is_closing():
            self.paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self.paused and not self.transport.is_closing():
            self.paused = False
            self.transport.resume_reading()

    def forget_linger(self) -> None:
        """The transport has closed."""
        if self.linger is not None:
            self.linger.cancel()
            self.linger = None


class BrokerSide(Side):
    """What the driver, and TLS, ask of the broker's end."""

    __slots__ = ()

    def secured(self, tls: asyncio.Transport) -> None:
        """It is made behind the handshake: nothing is left to do."""

    @abstractmethod
    def tls_failed(self, tls: asyncio.Transport, error: Exception) -> None:
        """What has come cannot be decrypted."""

    @abstractmethod
    def look(self) -> None:
        """Read on, or leave what comes in the socket, as machine and client have it."""

    @abstractmethod
    def breathe(self) -> None:
        """What has come is not all looked at, and goes on when others have had their turn."""


def written_nowhere(_data: bytes | bytearray) -> None:
    """Stands for a side's ``write`` while there is no such side."""
    msg = "written to a side that is not there"
    raise AssertionError(msg)
