"""A Produce answer that goes on to the client while it arrives: all but its end.

A request of 100 MB may name millions of partitions, and its answer is larger still. So nothing of a
large one is kept but what stands behind its topics: the throttle time and the last tags.
"""

from collections.abc import Callable
from struct import Struct

from kvota.model.errors import ProtocolError
from kvota.session.streamed_answer import StreamedAnswer
from kvota.wire import node_endpoints
from kvota.wire.apis import APIS, PRODUCE
from kvota.wire.produce_walker import ProduceAnswerWalker
from kvota.wire.varint import Frame

_INT32 = Struct(">i")
_FLEXIBLE_FROM = APIS[PRODUCE].flexible_from
_THROTTLE_FROM = APIS[PRODUCE].throttle_from


class StreamedProduce(StreamedAnswer):
    """One large answer, from its size field to its end.

    Args:
        version: of the answer.
        frame_bytes: its length, size field included.
        answered: takes the broker's throttle time when the answer is here, returns the client's.
    """

    __slots__ = ("_answered", "_bytes_left", "_version", "_walker")

    _NAME = "Produce"

    def __init__(self, version: int, frame_bytes: int, answered: Callable[[int], int]) -> None:
        super().__init__()
        self._answered = answered
        self._version = version
        flexible = version >= _FLEXIBLE_FROM
        self._walker = ProduceAnswerWalker(version) if flexible else None
        # Below v9 the throttle time is the last field.
        self._bytes_left = frame_bytes - 4 * (version >= _THROTTLE_FROM)

    def _end_of_topics(self, part: Frame) -> tuple[int, int]:
        if self._walker is not None:
            return self._walker.feed_some(part)
        before = self._bytes_left
        self._bytes_left -= len(part)
        return before if self._bytes_left <= 0 else -1, len(part)

    def _end(self, tail: bytes) -> bytes:
        if self._version < _THROTTLE_FROM:
            self._answered(0)
            return tail
        if len(tail) < _INT32.size:
            msg = f"a Produce v{self._version} answer ends within its throttle time"
            raise ProtocolError(msg)
        tags = tail[_INT32.size :]
        if self._walker is not None:
            tags = node_endpoints.blank_endpoints(tags, what=f"Produce v{self._version} answer")
        return _INT32.pack(self._answered(_INT32.unpack_from(tail)[0])) + tags
