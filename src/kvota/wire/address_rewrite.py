"""Replaces the addresses in a message and keeps every other byte as it is."""

from collections.abc import Callable

from kvota.wire.encode import encode_text
from kvota.wire.scanner import Scanner
from kvota.wire.varint import Bytes

# Maps a broker's (node id, host, port) to the gateway's (host, port). It is called once for each
# address, in the order of the answer, and raises kvota.wire.addresses.UnknownNodeError for a node
# that has no address.
AddressOf = Callable[[int, str, int], tuple[str, int]]

# node id, host, port
ADDRESS_BYTES_MIN = 4 + 1 + 4
# A gateway has a port for no more. Each takes 3 µs, in which nobody else is served.
BROKERS_MAX = 1_000
# Nobody asks for the coordinators of as many groups at once.
COORDINATORS_MAX = 10_000


class AddressRewrite:
    """Goes over a message once; the caller steps over other fields with the scanner itself.

    Attributes:
        scanner: at the next field.
        copied_to: what of the message is not in ``replaced`` begins here.
    """

    __slots__ = ("_address_of", "_parts", "copied_to", "scanner")

    def __init__(self, scanner: Scanner, address_of: AddressOf) -> None:
        self.scanner = scanner
        self._address_of = address_of
        self.copied_to = 0
        self._parts: list[Bytes] = []

    def count(self, item_bytes_min: int, *, at_most: int = BROKERS_MAX) -> int:
        """Reads the number of items of an array that have an address each.

        Raises:
            ProtocolError: they are more than ``at_most``.
        """
        count = self.scanner.count(item_bytes_min)
        if count > at_most:
            problem = f"{count} addresses; at most {at_most} are taken"
            raise self.scanner.fault(problem)
        return count

    def address(self) -> None:
        """Replaces the address at the scanner's position: int32 node id, host, int32 port.

        An empty or null host means that no coordinator is known; it stays as it is.
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
        self._parts += (self.scanner.data[self.copied_to : at], instead)
        self.copied_to = self.scanner.at

    def replaced(self) -> list[Bytes]:
        """Returns the new message up to ``copied_to`` of the old one, in pieces."""
        return self._parts

    def parts(self) -> list[Bytes] | None:
        """Returns the new message in pieces, unread rest included; None if nothing was replaced."""
        if not self._parts:
            return None
        return [*self._parts, memoryview(self.scanner.data)[self.copied_to :]]
