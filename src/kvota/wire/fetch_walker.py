"""Finds the end of a Fetch answer's topics while its bytes stream by, keeping a few of them.

Behind the topics stands the top level's tag buffer, which may contain node endpoints (KIP-951), and
nothing but a walk over every partition finds it for sure.
"""

from collections.abc import Callable

from kvota.model.errors import ProtocolError
from kvota.wire.apis import APIS, FETCH
from kvota.wire.headers import ANSWER_HEAD_BYTES
from kvota.wire.scanner import TOPIC_ID_BYTES
from kvota.wire.varint import UVARINT_BYTES_MAX, Bytes, read_uvarint, try_uvarint

_BODY_HEAD_BYTES = 4 + 2 + 4  # throttle, error code, session id
_PARTITION_HEAD_BYTES = 4 + 2 + 8 + 8 + 8  # index, error code, three offsets
_ABORTED_BYTES = 8 + 8  # producer id, first offset
_PREFERRED_REPLICA_BYTES = 4
# Of a partition without aborted transactions: the offset of its records' length, and how many
# bytes must be there so that this length can be read.
_PLAIN_RECORDS_AT = _PARTITION_HEAD_BYTES + 1 + _PREFERRED_REPLICA_BYTES
_PLAIN_PARTITION_BYTES = _PLAIN_RECORDS_AT + UVARINT_BYTES_MAX
# No unit that is read at once (the head of a partition, topic or tag) is longer.
_UNIT_BYTES_MAX = 64
# No frame is longer (an int32 size); in force until the head has been read.
_FRAME_BYTES_MAX = 4 + (1 << 31)


class FetchAnswerWalker:
    """Walks over one Fetch answer of v16 or higher, however it is cut.

    It is fed with the frame from its size field on. Inside records a chunk costs one comparison,
    whatever its length.
    """

    __slots__ = (
        "_aborted_left",
        "_after_tags",
        "_fed_bytes",
        "_frame_bytes",
        "_partitions_left",
        "_pending",
        "_skip_bytes",
        "_step",
        "_tags_left",
        "_topics_left",
    )

    # A step reads one unit at an offset and returns the offset behind what it consumed or wants
    # skipped (perhaps beyond the chunk), or -1: the unit is not all there. None: the end is found.
    # Functions, not bound methods: those would tie every walker into a cycle.
    _step: Callable[["FetchAnswerWalker", Bytes, int, int], int] | None
    _after_tags: Callable[["FetchAnswerWalker"], None]

    def __init__(self, version: int) -> None:
        assert version >= APIS[FETCH].addresses_from, version
        self._fed_bytes = 0
        self._frame_bytes = _FRAME_BYTES_MAX
        self._skip_bytes = 0  # of the next chunk
        self._pending = b""  # of a unit that was not all there
        self._topics_left = self._partitions_left = self._aborted_left = self._tags_left = 0
        self._step = FetchAnswerWalker._read_head
        self._after_tags = FetchAnswerWalker._begin_body

    def feed(self, data: Bytes, at: int = 0, stop: int = -1) -> int:
        """Takes the answer's next bytes, ``data[at:stop]`` (all of ``data`` without a ``stop``).

        Returns:
            The offset in ``data`` where the top level's tag buffer begins (``stop``: with the next
            chunk), or -1: not reached yet. Once found, ``at`` for every further chunk.

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
            behind = self._step(self, data, at, stop)
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
            f"Fetch answer: byte {self._fed_bytes} is its last, and its last tags are yet to come"
            f" ({self._topics_left} topics, {self._partitions_left} partitions left)"
        )

    # ------------------------------------------------------------ steps

    def _read_head(self, data: Bytes, at: int, stop: int) -> int:
        if stop - at < ANSWER_HEAD_BYTES:
            return -1
        size_bytes = int.from_bytes(data[at : at + 4], "big", signed=True)
        if size_bytes < ANSWER_HEAD_BYTES - 4 + _BODY_HEAD_BYTES:
            msg = f"Fetch answer: announces {size_bytes} bytes, too few for any"
            raise ProtocolError(msg)
        self._frame_bytes = 4 + size_bytes
        self._expect_tags(FetchAnswerWalker._begin_body)
        return at + ANSWER_HEAD_BYTES

    def _begin_body(self) -> None:
        self._step = FetchAnswerWalker._read_body_head

    def _read_body_head(self, data: Bytes, at: int, stop: int) -> int:
        count = try_uvarint(data, at + _BODY_HEAD_BYTES, stop)
        if count is None:
            return -1
        self._topics_left = count[0] - 1
        self._next_topic()
        return count[1]

    def _next_topic(self) -> None:
        self._step = FetchAnswerWalker._read_topic_head if self._topics_left > 0 else None

    def _read_topic_head(self, data: Bytes, at: int, stop: int) -> int:
        count = try_uvarint(data, at + TOPIC_ID_BYTES, stop)
        if count is None:
            return -1
        self._topics_left -= 1
        self._partitions_left = count[0] - 1
        self._next_partition()
        return count[1]

    def _next_partition(self) -> None:
        if self._partitions_left > 0:
            self._step = FetchAnswerWalker._read_partition
        else:
            self._expect_tags(FetchAnswerWalker._next_topic)

    def _read_partition(self, data: Bytes, at: int, stop: int) -> int:
        behind = self._read_plain_partitions(data, at, stop)
        if behind > at:
            return behind
        count = try_uvarint(data, at + _PARTITION_HEAD_BYTES, stop)
        if count is None:
            return -1
        self._partitions_left -= 1
        self._aborted_left = count[0] - 1
        self._next_aborted()
        return count[1]

    def _read_plain_partitions(self, data: Bytes, at: int, stop: int) -> int:
        """Steps over whole partitions that have neither aborted transactions nor tags.

        Most partitions are such, and an answer with many small ones makes the walk expensive.
        """
        left = self._partitions_left
        last = stop - _PLAIN_PARTITION_BYTES
        while left and at < last and data[at + _PARTITION_HEAD_BYTES] < 2:
            # The records' length, a varint; here without a call, as this runs for every partition.
            length = data[at + _PLAIN_RECORDS_AT]
            tags_at = at + _PLAIN_RECORDS_AT + 1
            if length > 0x7F:
                second = data[tags_at]
                if second > 0x7F:
                    length, tags_at = read_uvarint(data, tags_at - 1, stop)
                else:
                    length += (second << 7) - 0x80
                    tags_at += 1
            if length:
                tags_at += length - 1
            if tags_at >= stop or data[tags_at]:
                break
            at = tags_at + 1
            left -= 1
        self._partitions_left = left
        if not left:
            self._next_partition()
        return at

    def _next_aborted(self) -> None:
        more = self._aborted_left > 0
        self._step = FetchAnswerWalker._read_aborted if more else FetchAnswerWalker._read_records

    def _read_aborted(self, _data: Bytes, at: int, stop: int) -> int:
        if stop - at < _ABORTED_BYTES:
            return -1
        self._aborted_left -= 1
        self._expect_tags(FetchAnswerWalker._next_aborted)
        return at + _ABORTED_BYTES

    def _read_records(self, data: Bytes, at: int, stop: int) -> int:
        length = try_uvarint(data, at + _PREFERRED_REPLICA_BYTES, stop)
        if length is None:
            return -1
        self._expect_tags(FetchAnswerWalker._next_partition)
        return length[1] + max(0, length[0] - 1)

    def _expect_tags(self, after: Callable[["FetchAnswerWalker"], None]) -> None:
        self._after_tags = after
        self._step = FetchAnswerWalker._read_tag_count

    def _read_tag_count(self, data: Bytes, at: int, stop: int) -> int:
        count = try_uvarint(data, at, stop)
        if count is None:
            return -1
        self._tags_left = count[0]
        self._next_tag()
        return count[1]

    def _next_tag(self) -> None:
        if self._tags_left > 0:
            self._step = FetchAnswerWalker._read_tag
        else:
            self._after_tags(self)

    def _read_tag(self, data: Bytes, at: int, stop: int) -> int:
        tag = try_uvarint(data, at, stop)
        size = None if tag is None else try_uvarint(data, tag[1], stop)
        if size is None:
            return -1
        self._tags_left -= 1
        self._next_tag()
        return size[1] + size[0]
