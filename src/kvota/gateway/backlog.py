"""How much all connections hold that has not gone on; while it is much, little is read at a time.

What a socket does not take at once keeps the other side from being read, so a connection holds one read in
each direction, and what it keeps back. One read may be 256 KB: with thousands of clients that do not read
their answers, or whose brokers read nothing behind a long poll, that is a gigabyte. Nobody is closed for it, or
left unread because of others: where much is held, everybody is read in small parts.
"""

from collections.abc import Iterable
from typing import Protocol

from kvota.gateway.little_reads import LittleReads
from kvota.gateway.receive_buffers import ReceiveBuffers
from kvota.gateway.side import BrokerSide, Side
from kvota.session.connection import Connection
from kvota.session.pausing import Reason
from kvota.session.shared import Shared

# What an event loop reads at a time. Of what is half written all is kept.
LARGE_READ_BYTES = 262_144
# Above this reads are small, below half of it they are large again: some 400 sides that have not taken a large
# read. 4,000 that have not taken a small one, and 2,000 requests kept back, are 100 MB beside it.
HELD_BYTES_MAX = 96 * 2**20


class Held(Protocol):
    """What is looked at of a connection."""

    client: Side
    upstream: BrokerSide | None
    closing: bool
    machine: Connection


class Backlog:
    """Of one gateway.

    Args:
        connections: all that are there.
        shared: is told whether memory is short.

    Attributes:
        held_bytes: how much they hold; a side that has not taken all counts as a large read at least.
        is_long: true while only little is read at a time.
        receive_buffers: of the clients.
    """

    def __init__(self, connections: Iterable[Held], shared: Shared) -> None:
        self._connections = connections
        self._shared = shared
        self.held_bytes = 0
        self.is_long = False
        self.receive_buffers = ReceiveBuffers()

    def look(self, connection: Held) -> None:
        """Due whenever a connection may hold more than before, or less."""
        machine, upstream = connection.machine, connection.upstream
        reasons = machine.pausing.reasons
        kept_bytes = machine.kept_bytes if reasons else 0
        if reasons & Reason.DIALLING:
            kept_bytes += LARGE_READ_BYTES
        self._count(connection.client, kept_bytes + _held_for(connection.client))
        if upstream is not None:
            self._count(upstream, _held_for(upstream))

    def leave(self, upstream: Side) -> None:
        """Its client has gone: what the broker has not taken yet nobody waits for, and in need it is not kept."""
        if self.is_long and upstream.transport.get_write_buffer_size():
            upstream.transport.abort()

    def forget(self, side: Side) -> None:
        """Its transport has closed."""
        self._count(side, 0)
        self.receive_buffers.forget(side)

    def came(self, side: Side) -> None:
        """Its transport is there and is not read yet."""
        if self.is_long:
            side.transport.set_protocol(LittleReads(side))

    def sweep(self) -> None:
        """Due every other second: where little is held reads are large again."""
        if self.is_long and self.held_bytes < HELD_BYTES_MAX // 2:
            self._read_all(is_little=False)
        self.receive_buffers.sweep()

    def _count(self, side: Side, held_bytes: int) -> None:
        self.held_bytes += held_bytes - side.held_bytes
        side.held_bytes = held_bytes
        if self.held_bytes > HELD_BYTES_MAX and not self.is_long:
            self._read_all(is_little=True)

    def _read_all(self, *, is_little: bool) -> None:
        self.is_long = self._shared.is_memory_short = is_little
        self.receive_buffers.narrow_all()
        for connection in self._connections:
            if connection.closing:
                continue
            _read(connection.client, is_little=is_little)
            if connection.upstream is not None:
                _read(connection.upstream, is_little=is_little)


def _read(side: Side, *, is_little: bool) -> None:
    transport = side.transport
    if transport.is_closing():
        return
    # A loop looks at the kind of a protocol when it begins to read.
    if not side.paused:
        transport.pause_reading()
    transport.set_protocol(LittleReads(side) if is_little else side)
    if not side.paused:
        transport.resume_reading()


def _held_for(side: Side) -> int:
    waiting_bytes = side.transport.get_write_buffer_size()
    return max(waiting_bytes, LARGE_READ_BYTES) if waiting_bytes else 0
