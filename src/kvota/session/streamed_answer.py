"""An answer that goes on to the client while it arrives: all but its end.

Its size is already sent when its last tags come, so node endpoints are blanked, not rewritten.
"""

from abc import ABC, abstractmethod

from kvota.model.errors import ProtocolError

# What is kept back at the end: node endpoints, 100 bytes a broker.
TAIL_BYTES_MAX = 2**20


class StreamedAnswer(ABC):
    """One large answer, from its size field to its end."""

    __slots__ = ("_tail",)

    # For messages.
    _NAME: str

    def __init__(self) -> None:
        self._tail: bytearray | None = None

    @property
    @abstractmethod
    def parts(self) -> int:
        """How many topics, partitions and errors have been walked over."""

    def feed(self, part: bytes | bytearray, *, is_last: bool) -> bytes | bytearray:
        """Take the next bytes; returns those that go on: the end waits until it is whole.

        Raises:
            ProtocolError: this is no such answer, or its last tags are longer than any.
        """
        if self._tail is None:
            at = self._end_of_topics(part)
            if at >= 0:
                self._tail = bytearray(part[at:])
                part = part[:at]
        else:
            self._tail += part
            part = b""
        if self._tail is not None and len(self._tail) > TAIL_BYTES_MAX:
            msg = f"a {self._NAME} answer ends in more than {TAIL_BYTES_MAX} bytes of tags"
            raise ProtocolError(msg)
        return bytes(part) + self._end(bytes(self._tail or b"")) if is_last else part

    @abstractmethod
    def _end_of_topics(self, part: bytes | bytearray) -> int:
        """Where in the next bytes the topics end, -1: not in these."""

    @abstractmethod
    def _end(self, tail: bytes) -> bytes:
        """What the client gets in place of what stands behind the topics."""
