"""Reads a socket in small parts, where connections hold much that has not gone on (``gateway.backlog``)."""

import asyncio
from typing import Protocol

LITTLE_READ_BYTES = 16_384

# One for all: what has been read is copied out of it before anything else is read.
_BUFFER = memoryview(bytearray(LITTLE_READ_BYTES))


class Reader(Protocol):
    """What takes what comes: asyncio's protocol, or TLS."""

    def data_received(self, data: bytes) -> None:
        """Something has come."""

    def eof_received(self) -> bool | None:
        """No more comes."""

    def pause_writing(self) -> None:
        """The peer reads slowly."""

    def resume_writing(self) -> None:
        """The peer has caught up."""

    def connection_lost(self, exc: Exception | None) -> None:
        """It has closed."""


class LittleReads(asyncio.BufferedProtocol):
    """Hands what comes to a side, a small part at a time.

    Attributes:
        side: which.
    """

    __slots__ = ("side",)

    def __init__(self, side: Reader) -> None:
        self.side = side

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  (asyncio's signature)
        """Where the next part goes."""
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        """A part has come."""
        self.side.data_received(_BUFFER[:nbytes].tobytes())

    def eof_received(self) -> bool | None:
        """No more comes."""
        return self.side.eof_received()

    def pause_writing(self) -> None:
        """The peer reads slowly."""
        self.side.pause_writing()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self.side.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has closed."""
        self.side.connection_lost(exc)
