"""One end of a relayed connection: its transport, and whether it is read."""

import asyncio


class Side(asyncio.Protocol):
    """What the client's end and the broker's end have in common.

    Attributes:
        transport: asyncio's, once connected.
        paused: true while it is not read.
        linger: aborts the transport when its orderly end takes too long (``gateway.closing``).
    """

    __slots__ = ("linger", "paused", "transport")

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.paused = False
        self.linger: asyncio.TimerHandle | None = None

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
