"""Replaces the addresses in a message and keeps every other byte as it is."""

from collections.abc import Callable

from kvota.wire.encode import encode_text
from kvota.wire.scanner import Scanner
from kvota.wire.varint import Bytes

# The gateway's (host, port) instead of (node id, host, port). Called once for each address, in the
# order of the answer; raises kvota.wire.addresses.UnknownNodeError for a node it has no address for.
AddressOf = Callable[[int, str, int], tuple[str, int]]

# node id, host, port
ADDRESS_BYTES_MIN = 4 + 1 + 4


class AddressRewrite:
    """One pass over a message; step over other fields with the scanner itself."""

    __slots__ = ("_address_of", "_copied_to", "_parts", "scanner")

    def __init__(self, scanner: Scanner, address_of: AddressOf, *, copied_to: int = 0) -> None:
        self.scanner = scanner
        self._address_of = address_of
        self._copied_to = copied_to
        self._parts: list[Bytes] = []

    def address(self) -> None:
        """Replaces the address at the scanner's position: int32 node id, host, int32 port.

        An empty or null host is no address (a coordinator that is not known): it stays.
        """
        scanner = self.scanner
        node_id = scanner.int32()
        host_at = scanner.at
        host = scanner.text()
        port = scanner.int32()
        if not host:
            return
        new_host, new_port = self._address_of(node_id, host, port)
        self.put(
            host_at, encode_text(new_host, flexible=scanner.flexible) + new_port.to_bytes(4, "big")
        )

    def put(self, at: int, instead: bytes) -> None:
        """Replaces the bytes from ``at`` to the scanner's position."""
        self._parts += (self.scanner.data[self._copied_to : at], instead)
        self._copied_to = self.scanner.at

    def parts(self) -> list[Bytes] | None:
        """The new message in pieces, its unread rest included; None: nothing was replaced."""
        if not self._parts:
            return None
        return [*self._parts, self.scanner.data[self._copied_to :]]
