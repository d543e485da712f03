"""Finds the end of a Produce answer's topics while its bytes stream by.

Behind the topics stand the throttle time and the top level's tag buffer, which may contain node
endpoints (KIP-951).
"""

from kvota.wire.answer_walker import AnswerWalker
from kvota.wire.apis import APIS, PRODUCE
from kvota.wire.producer_ids import TOPIC_ID_FROM
from kvota.wire.scanner import TOPIC_ID_BYTES
from kvota.wire.varint import Bytes, try_uvarint

# index, error code, base offset, append time, start offset
_PARTITION_HEAD_BYTES = 4 + 2 + 8 + 8 + 8
# Behind the head of a partition without errors: no record errors (an empty compact array), no message
# (null), no tags.
_PLAIN_BYTES = _PARTITION_HEAD_BYTES + 3
_RECORD_INDEX_BYTES = 4
# So many partitions are compared at once; more, the longer the run of plain ones is.
_RUN_MIN, _RUN_MAX = 8, 4_096


class ProduceAnswerWalker(AnswerWalker):
    """Walks over one Produce answer of v9 or higher and finds its throttle time."""

    __slots__ = ("_at_once", "_has_ids", "_partitions_left", "_record_errors_left", "_topics_left")

    _BODY_BYTES_MIN = 1 + 4 + 1  # topics, throttle, tags

    def __init__(self, version: int) -> None:
        assert version >= APIS[PRODUCE].flexible_from, version
        super().__init__(f"Produce v{version}", ProduceAnswerWalker._begin_body)
        self._has_ids = version >= TOPIC_ID_FROM
        self._topics_left = self._partitions_left = self._record_errors_left = 0
        self._at_once = _RUN_MIN

    def _left(self) -> str:
        return f"{self._topics_left} topics, {self._partitions_left} partitions"

    # ------------------------------------------------------------ steps

    def _begin_body(self) -> None:
        self._step = ProduceAnswerWalker._read_topic_count

    def _read_topic_count(self, data: Bytes, at: int, stop: int) -> int:
        count = try_uvarint(data, at, stop)
        if count is None:
            return -1
        self._topics_left = count[0] - 1
        self._next_topic()
        return count[1]

    def _next_topic(self) -> None:
        self._step = ProduceAnswerWalker._read_topic if self._topics_left > 0 else None

    def _read_topic(self, data: Bytes, at: int, stop: int) -> int:
        self._step = ProduceAnswerWalker._read_partition_count
        if self._has_ids:
            return at + TOPIC_ID_BYTES
        name = try_uvarint(data, at, stop)
        if name is None:
            self._step = ProduceAnswerWalker._read_topic
            return -1
        return name[1] + max(0, name[0] - 1)

    def _read_partition_count(self, data: Bytes, at: int, stop: int) -> int:
        count = try_uvarint(data, at, stop)
        if count is None:
            return -1
        self._topics_left -= 1
        self._partitions_left = count[0] - 1
        self._next_partition()
        return count[1]

    def _next_partition(self) -> None:
        if self._partitions_left > 0:
            self._step = ProduceAnswerWalker._read_partition
        else:
            self._expect_tags(ProduceAnswerWalker._next_topic)

    def _read_partition(self, data: Bytes, at: int, stop: int) -> int:
        behind = self._behind_plain_partitions(data, at, stop)
        if behind > at:
            return behind
        count = try_uvarint(data, at + _PARTITION_HEAD_BYTES, stop)
        if count is None:
            return -1
        self._partitions_left -= 1
        self._record_errors_left = count[0] - 1
        self._next_record_error()
        return count[1]

    def _behind_plain_partitions(self, data: Bytes, at: int, stop: int) -> int:
        """Steps over partitions without errors: all have the same length, so one slice compares many."""
        while self._partitions_left:
            count = min(self._partitions_left, (stop - at) // _PLAIN_BYTES, self._at_once)
            end = at + count * _PLAIN_BYTES
            first = at + _PARTITION_HEAD_BYTES
            if (
                not count
                or bytes(data[first:end:_PLAIN_BYTES]).strip(b"\1")
                or bytes(data[first + 1 : end : _PLAIN_BYTES]).strip(b"\0")
                or bytes(data[first + 2 : end : _PLAIN_BYTES]).strip(b"\0")
            ):
                self._at_once = max(1, self._at_once // 2)
                if count <= 1:
                    break
                continue
            self._at_once = min(2 * self._at_once, _RUN_MAX)
            self._partitions_left -= count
            at = end
        if not self._partitions_left:
            self._next_partition()
        return at

    def _next_record_error(self) -> None:
        more = self._record_errors_left > 0
        self._step = (
            ProduceAnswerWalker._read_record_error if more else ProduceAnswerWalker._read_message
        )

    def _read_record_error(self, data: Bytes, at: int, stop: int) -> int:
        text = try_uvarint(data, at + _RECORD_INDEX_BYTES, stop)
        if text is None:
            return -1
        self._record_errors_left -= 1
        self._expect_tags(ProduceAnswerWalker._next_record_error)
        return text[1] + max(0, text[0] - 1)

    def _read_message(self, data: Bytes, at: int, stop: int) -> int:
        text = try_uvarint(data, at, stop)
        if text is None:
            return -1
        self._expect_tags(ProduceAnswerWalker._next_partition)
        return text[1] + max(0, text[0] - 1)
