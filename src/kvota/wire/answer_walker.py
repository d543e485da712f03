"""Walks over one answer while its bytes stream by, keeping a few of them, however it is cut.

What is looked for stands behind everything else, and nothing but a walk over every part finds it for sure.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self

from kvota.model.errors import ProtocolError
from kvota.wire.headers import ANSWER_HEAD_BYTES
from kvota.wire.scanner import TAGS_MAX
from kvota.wire.steps import STEP_UNITS, Steps
from kvota.wire.varint import Bytes, try_uvarint

# No unit that is read at once (the head of a partition, topic or tag) is longer.
_UNIT_BYTES_MAX = 64
# No frame is longer (an int32 size); in force until the head has been read.
_FRAME_BYTES_MAX = 4 + (1 << 31)
_NO_LIMIT = 1 << 62


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
        "_stopped_at",
        "_tags_left",
        "_units_left",
        "_what",
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
        self._units_left = 0
        # Where the last ``feed`` stopped because it had read as many units as it was to; -1: it had no more.
        self._stopped_at = -1
        self._step = AnswerWalker._read_head
        self._after_tags = begin_body  # those of the header

    @abstractmethod
    def _left(self) -> str:
        """Says how much is yet to come, for messages."""

    def feed(self, data: Bytes, at: int = 0, stop: int = -1, *, units_max: int = _NO_LIMIT) -> int:
        """Takes the answer's next bytes, ``data[at:stop]`` (all of ``data`` without a ``stop``).

        ``units_max``: so many units are read, 100 or more; where there are more in these bytes, the next
        call has to begin at ``_stopped_at``.

        Returns:
            The offset in ``data`` where what is looked for begins (``stop``: with the next chunk), or
            -1: not reached yet. Once found, ``at`` for every further chunk.

        Raises:
            ProtocolError: this is no such answer; also when its announced end is reached first.
        """
        if stop < 0:
            stop = len(data)
        self._fed_bytes += stop - at
        self._stopped_at = -1
        if self._skip_bytes > stop - at:
            self._skip_bytes -= stop - at
            return self._not_found()
        at += self._skip_bytes
        self._skip_bytes = 0
        self._units_left = units_max
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
            if not self._units_left:
                self._stopped_at = at
                self._fed_bytes -= stop - at
                return -1
            self._pending = bytes(data[at:stop])
        return self._not_found()

    def feed_some(self, data: Bytes) -> tuple[int, int]:
        """Takes as many of the answer's next bytes as can be looked through in a step.

        Returns:
            What ``feed`` returns, and how many bytes were taken; the others are to come again.

        Raises:
            ProtocolError: as ``feed``.
        """
        found = self.feed(data, units_max=STEP_UNITS)
        return found, len(data) if self._stopped_at < 0 else self._stopped_at

    def find_in_steps(self, frame: Bytes) -> Steps[int]:
        """Returns the offset in a whole frame where what is looked for begins.

        Raises:
            ProtocolError: this is no such answer.
        """
        found = self.feed(frame, units_max=STEP_UNITS)
        while self._stopped_at >= 0:
            yield
            found = self.feed(frame, self._stopped_at, units_max=STEP_UNITS)
        if found < 0:
            raise self.unfinished()
        return found

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
        units = self._units_left
        while at < stop and units and self._step is not None:
            behind = self._step(self, data, at, stop)  # type: ignore[arg-type]  # it is Self
            if behind < 0:
                break
            units -= 1
            at = behind
        self._units_left = units
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
