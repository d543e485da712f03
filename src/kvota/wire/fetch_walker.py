"""Finds the end of a Fetch answer's topics while its bytes stream by, keeping a few of them.

Behind the topics stands the top level's tag buffer, which may contain node endpoints (KIP-951), and
nothing but a walk over every partition finds it for sure.
"""

from kvota.wire.answer_walker import AnswerWalker
from kvota.wire.apis import APIS, FETCH
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


class FetchAnswerWalker(AnswerWalker):
    """Walks over one Fetch answer of v16 or higher and finds the top level's tag buffer."""

    __slots__ = ("_aborted_left", "_partitions_left", "_topics_left")

    _BODY_BYTES_MIN = _BODY_HEAD_BYTES

    def __init__(self, version: int) -> None:
        assert version >= APIS[FETCH].addresses_from, version
        super().__init__("Fetch", FetchAnswerWalker._begin_body)
        self._topics_left = self._partitions_left = self._aborted_left = 0

    def _left(self) -> str:
        return f"{self._topics_left} topics, {self._partitions_left} partitions"

    # ------------------------------------------------------------ steps

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
