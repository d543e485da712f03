"""How much the system keeps of what a client sends and is not read: little for everybody, more for a few who fill theirs.

By default it keeps up to 6 MB (33 MB on some machines) for each connection; a few hundred that pour and are not read leave
too little for all others, whose packets are then dropped. But through a small buffer what comes faster than it is read comes
in many small pieces: a Produce of 1 MB takes 1.4 times the CPU that it takes by large reads.
"""

import socket
from contextlib import suppress

from kvota.gateway.side import Side

# Kafka's socket.receive.buffer.bytes is 100 KiB. The system doubles it.
RECEIVE_BUFFER_BYTES = 131_072
# Who brings so much in one read has filled half of it, and would send more.
FILLED_BYTES = RECEIVE_BUFFER_BYTES // 2
# The system doubles it, too, and allows no more than net.core.rmem_max.
WIDE_BYTES = 1_048_576
# So that all of them have 64 MB.
WIDE_MAX = 32


class ReceiveBuffers:
    """Of a gateway's clients."""

    def __init__(self) -> None:
        self._wide: dict[Side, bool] = {}  # whether it has been filled since the last sweep

    def filled(self, side: Side) -> None:
        """A read of this client has brought ``FILLED_BYTES`` or more."""
        if side not in self._wide:
            if len(self._wide) >= WIDE_MAX:
                return
            _resize(side, WIDE_BYTES)
        self._wide[side] = True

    def sweep(self) -> None:
        """Due every other second: who has not filled its large one again makes room for others."""
        for side, is_filled in list(self._wide.items()):
            if is_filled:
                self._wide[side] = False
            else:
                self._narrow(side)

    def narrow_all(self) -> None:
        """Memory is short."""
        for side in list(self._wide):
            self._narrow(side)

    def forget(self, side: Side) -> None:
        """Its transport has closed."""
        self._wide.pop(side, None)

    def _narrow(self, side: Side) -> None:
        del self._wide[side]
        _resize(side, RECEIVE_BUFFER_BYTES)


def _resize(side: Side, size_bytes: int) -> None:
    connected = side.transport.get_extra_info("socket")
    with suppress(OSError):  # it has gone in this moment
        if connected is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size_bytes)
