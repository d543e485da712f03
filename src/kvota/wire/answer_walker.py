"""Walks over one answer while its bytes stream by, keeping a few of them, however it is cut.

What is looked for stands behind everything else, and nothing but a walk over every part finds it for sure.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self

from kvota.model.errors import ProtocolError
from kvota.wire.headers import ANSWER_HEAD_BYTES
from kvota.wire.scanner import TAGS_MAX
from kvota.wire.varint import Bytes, try_uvarint

# No unit that is read at once (the head of a partition, topic or tag) is longer.
_UNIT_BYTES_MAX = 64
# No frame is longer (an int32 size); in force until the head has been read.
_FRAME_BYTES_MAX = 4 + (1 << 31)


class AnswerWalker(ABC):
    """What the walkers over answers of flexible versions have in common.

    It is fed with the frame from its size field on. Inside what is skipped a chunk costs one
    comparison, whatever its length.
    """

    __slots__ = (
        "_after_tags",
        "_fed_bytes",
        "_frame_bytes",
        "_pending",
        "_skip_bytes",
        "_step",
        "_tags_left",
        "_what",
        "parts",
    )

    # Of an answer's body, its least.
    _BODY_BYTES_MIN = 0

    # A step reads one unit at an offset and returns the offset behind what it consumed or wants
    # skipped (perhaps beyond the chunk), or -1: the unit is not all there. None: the end is found.
    # Functions, not bound methods: those would tie every walker into a cycle.
    _step: Callable[[Self, Bytes, int, int], int] | None
    _after_tags: Callable[[Self], None]

    def __init__(self, what: str, begin_body: Callable[[Self], None]) -> None:
        """``what`` it is, for messages; ``begin_body`` says what is read first behind the header."""
        self._what = what
        self._fed_bytes = 0
        self._frame_bytes = _FRAME_BYTES_MAX
        self._skip_bytes = 0  # of the next chunk
        self._pending = b""  # of a unit that was not all there
        self._tags_left = 0
        self.parts = 0  # topics, partitions and record errors so far
        self._step = AnswerWalker._read_head
        self._after_tags = begin_body  # those of the header

    @abstractmethod
    def _left(self) -> str:
        """Says how much is yet to come, for messages."""

    def feed(self, data: Bytes, at: int = 0, stop: int = -1) -> int:
        """Takes the answer's next bytes, ``data[at:stop]`` (all of ``data`` without a ``stop``).

        Returns:
            The offset in ``data`` where what is looked for begins (``stop``: with the next chunk), or
            -1: not reached yet. Once found, ``at`` for every further chunk.

        Raises:
            ProtocolError: this is no such answer; also when its announced end is reached first.
        """
        if stop < 0:
            stop = len(data)
        self._fed_bytes += stop - at
        if self._skip_bytes > stop - at:
            self._skip_bytes -= stop - at
            return self._not_found()
        at += self._skip_bytes
        self._skip_bytes = 0
        if self._pending:
            at = self._run_joined(data, at, stop)
        at = self._run(data, at, stop)
        if at > stop:
            self._skip_bytes = at - stop
            return self._not_found()
        if self._step is None:
            if at == stop and self._fed_bytes >= self._frame_bytes:
                raise self.unfinished()
            return at
        if at < stop:
            self._pending = bytes(data[at:stop])
        return self._not_found()

    def _run_joined(self, data: Bytes, at: int, stop: int) -> int:
        """Reads the unit that began in an earlier chunk; returns the offset behind it."""
        kept_bytes = len(self._pending)
        joined = self._pending + bytes(data[at : min(stop, at + _UNIT_BYTES_MAX)])
        consumed_bytes = self._run(joined, 0, len(joined))
        if consumed_bytes < kept_bytes:
            assert len(joined) - kept_bytes == stop - at, "a unit is longer than the limit"
            self._pending = joined
            return stop
        self._pending = b""
        return at + consumed_bytes - kept_bytes

    def _run(self, data: Bytes, at: int, stop: int) -> int:
        while at < stop and self._step is not None:
            behind = self._step(self, data, at, stop)  # type: ignore[arg-type]  # it is Self
            if behind < 0:
                break
            at = behind
        return at

    def _not_found(self) -> int:
        """Returns -1 if the rest of the frame has room for what is due: skips and a tag count."""
        if self._fed_bytes + self._skip_bytes >= self._frame_bytes:
            raise self.unfinished()
        return -1

    def unfinished(self) -> ProtocolError:
        """Makes the error to raise when no more bytes come."""
        return ProtocolError(
            f"{self._what} answer: byte {self._fed_bytes} is its last, and its last tags are yet to come"
            f" ({self._left()} left)"
        )

    # ------------------------------------------------------------ steps

    def _read_head(self, data: Bytes, at: int, stop: int) -> int:
        if stop - at < ANSWER_HEAD_BYTES:
            return -1
        size_bytes = int.from_bytes(data[at : at + 4], "big", signed=True)
        if size_bytes < ANSWER_HEAD_BYTES - 4 + self._BODY_BYTES_MIN:
            msg = f"{self._what} answer: announces {size_bytes} bytes, too few for any"
            raise ProtocolError(msg)
        self._frame_bytes = 4 + size_bytes
        self._step = AnswerWalker._read_tag_count
        return at + ANSWER_HEAD_BYTES

    def _expect_tags(self, after: Callable[[Self], None]) -> None:
        self._after_tags = after
        self._step = AnswerWalker._read_tag_count

    def _read_tag_count(self, data: Bytes, at: int, stop: int) -> int:
        count = try_uvarint(data, at, stop)
        if count is None:
            return -1
        if count[0] > TAGS_MAX:
            msg = f"{self._what} answer: {count[0]} tagged fields; at most {TAGS_MAX} are taken"
            raise ProtocolError(msg)
        self._tags_left = count[0]
        self._next_tag()
        return count[1]

    def _next_tag(self) -> None:
        if self._tags_left > 0:
            self._step = AnswerWalker._read_tag
        else:
            self._after_tags(self)  # type: ignore[arg-type]  # it is Self

    def _read_tag(self, data: Bytes, at: int, stop: int) -> int:
        tag = try_uvarint(data, at, stop)
        size = None if tag is None else try_uvarint(data, tag[1], stop)
        if size is None:
            return -1
        self._tags_left -= 1
        self._next_tag()
        return size[1] + size[0]
