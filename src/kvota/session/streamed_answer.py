"""An answer that goes on to the client while it arrives: all but its end.

Its size is already sent when its last tags come, so node endpoints are blanked, not rewritten.
"""

from abc import ABC, abstractmethod

from kvota.model.errors import ProtocolError
from kvota.wire.varint import Frame

# What is kept back at the end: node endpoints, 100 bytes a broker.
TAIL_BYTES_MAX = 2**20


class StreamedAnswer(ABC):
    """One large answer, from its size field to its end."""

    __slots__ = ("_tail",)

    # For messages.
    _NAME: str

    def __init__(self) -> None:
        self._tail: bytearray | None = None

    def feed(self, part: Frame, *, is_last: bool) -> tuple[Frame, int]:
        """Take the next bytes, or as many of them as can be looked through in a step.

        Returns:
            Those that go on (the end waits until it is whole), and how many were taken.

        Raises:
            ProtocolError: this is no such answer, or its last tags are longer than any.
        """
        taken_bytes = len(part)
        if self._tail is None:
            at, taken_bytes = self._end_of_topics(part)
            if taken_bytes < len(part):
                return part[:taken_bytes], taken_bytes
            if at >= 0:
                self._tail = bytearray(part[at:])
                part = part[:at]
        else:
            self._tail += part
            part = b""
        if self._tail is not None and len(self._tail) > TAIL_BYTES_MAX:
            msg = f"a {self._NAME} answer ends in more than {TAIL_BYTES_MAX} bytes of tags"
            raise ProtocolError(msg)
        if is_last:
            part = bytes(part) + self._end(bytes(self._tail or b""))
        return part, taken_bytes

    @abstractmethod
    def _end_of_topics(self, part: Frame) -> tuple[int, int]:
        """Where in the next bytes the topics end, -1: not in these; and how many were looked through."""

    @abstractmethod
    def _end(self, tail: bytes) -> bytes:
        """What the client gets in place of what stands behind the topics."""
