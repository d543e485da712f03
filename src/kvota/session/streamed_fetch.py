"""A Fetch answer that goes on to the client while it arrives, without the nodes named at its end."""

from kvota.model.errors import ProtocolError
from kvota.wire import node_endpoints
from kvota.wire.fetch_walker import FetchAnswerWalker

# The tags after an answer's topics: node endpoints, 100 bytes a broker.
TAIL_BYTES_MAX = 2**20


class StreamedFetch:
    """One large answer of v16 or higher, from its size field to its end.

    Its size is already sent when its last tags come, so node endpoints are blanked, not rewritten.
    """

    __slots__ = ("_tail", "_walker")

    def __init__(self, version: int) -> None:
        self._walker = FetchAnswerWalker(version)
        self._tail: bytearray | None = None

    @property
    def parts(self) -> int:
        """How many topics and partitions have been walked over."""
        return self._walker.parts

    def feed(self, part: bytes | bytearray, *, is_last: bool) -> bytes | bytearray:
        """Take the next bytes; returns those that go on: the last tags wait until they are whole.

        Raises:
            ProtocolError: this is no Fetch answer, or its last tags are longer than any.
        """
        if self._tail is None:
            at = self._walker.feed(part)
            if at >= 0:
                self._tail = bytearray(part[at:])
                part = part[:at]
        else:
            self._tail += part
            part = b""
        if self._tail is not None and len(self._tail) > TAIL_BYTES_MAX:
            msg = f"a Fetch answer ends in more than {TAIL_BYTES_MAX} bytes of tags"
            raise ProtocolError(msg)
        if is_last:
            return bytes(part) + node_endpoints.blank_endpoints(bytes(self._tail or b""))
        return part
