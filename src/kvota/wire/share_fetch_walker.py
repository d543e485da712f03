"""Finds the end of a ShareFetch answer's topics while its bytes stream by, keeping a few of them.

Behind the topics stand the node endpoints, a plain array, and the last tags.
"""

from collections.abc import Callable

from kvota.wire.answer_walker import AnswerWalker
from kvota.wire.apis import APIS, SHARE_FETCH
from kvota.wire.scanner import TOPIC_ID_BYTES
from kvota.wire.varint import Bytes, try_uvarint

_BODY_HEAD_BYTES = 4 + 2  # throttle, error code
_LOCK_TIMEOUT_BYTES = 4
_PARTITION_HEAD_BYTES = 4 + 2  # index, error code
_ERROR_CODE_BYTES = 2
_LEADER_BYTES = 4 + 4  # leader, epoch
_ACQUIRED_BYTES = 8 + 8 + 2  # first offset, last offset, how often delivered


class ShareFetchAnswerWalker(AnswerWalker):
    """Walks over one ShareFetch answer and finds its node endpoints."""

    __slots__ = ("_acquired_left", "_partitions_left", "_topics_left")

    _BODY_BYTES_MIN = _BODY_HEAD_BYTES

    def __init__(self, version: int) -> None:
        assert version >= APIS[SHARE_FETCH].version_min, version
        super().__init__("ShareFetch", ShareFetchAnswerWalker._begin_body)
        self._topics_left = self._partitions_left = self._acquired_left = 0

    def _left(self) -> str:
        return f"{self._topics_left} topics, {self._partitions_left} partitions"

    # ------------------------------------------------------------ steps

    def _begin_body(self) -> None:
        self._step = ShareFetchAnswerWalker._read_body_head

    def _read_body_head(self, data: Bytes, at: int, stop: int) -> int:
        return self._behind_text(
            data, at + _BODY_HEAD_BYTES, stop, ShareFetchAnswerWalker._read_topic_count
        )

    def _read_topic_count(self, data: Bytes, at: int, stop: int) -> int:
        count = try_uvarint(data, at + _LOCK_TIMEOUT_BYTES, stop)
        if count is None:
            return -1
        self._topics_left = count[0] - 1
        self._next_topic()
        return count[1]

    def _next_topic(self) -> None:
        more = self._topics_left > 0
        self._step = ShareFetchAnswerWalker._read_topic_head if more else None

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
            self._step = ShareFetchAnswerWalker._read_partition
        else:
            self._expect_tags(ShareFetchAnswerWalker._next_topic)

    def _read_partition(self, data: Bytes, at: int, stop: int) -> int:
        return self._behind_text(
            data, at + _PARTITION_HEAD_BYTES, stop, ShareFetchAnswerWalker._read_acknowledged
        )

    def _read_acknowledged(self, data: Bytes, at: int, stop: int) -> int:
        return self._behind_text(
            data, at + _ERROR_CODE_BYTES, stop, ShareFetchAnswerWalker._read_leader
        )

    def _read_leader(self, _data: Bytes, at: int, stop: int) -> int:
        if stop - at < _LEADER_BYTES:
            return -1
        self._expect_tags(ShareFetchAnswerWalker._next_records)
        return at + _LEADER_BYTES

    def _next_records(self) -> None:
        self._step = ShareFetchAnswerWalker._read_records

    def _read_records(self, data: Bytes, at: int, stop: int) -> int:
        return self._behind_text(data, at, stop, ShareFetchAnswerWalker._read_acquired_count)

    def _read_acquired_count(self, data: Bytes, at: int, stop: int) -> int:
        count = try_uvarint(data, at, stop)
        if count is None:
            return -1
        self._partitions_left -= 1
        self._acquired_left = count[0] - 1
        self._next_acquired()
        return count[1]

    def _next_acquired(self) -> None:
        if self._acquired_left > 0:
            self._step = ShareFetchAnswerWalker._read_acquired
        else:
            self._expect_tags(ShareFetchAnswerWalker._next_partition)

    def _read_acquired(self, _data: Bytes, at: int, stop: int) -> int:
        if stop - at < _ACQUIRED_BYTES:
            return -1
        self._acquired_left -= 1
        self._expect_tags(ShareFetchAnswerWalker._next_acquired)
        return at + _ACQUIRED_BYTES

    def _behind_text(
        self,
        data: Bytes,
        at: int,
        stop: int,
        then: Callable[["ShareFetchAnswerWalker", Bytes, int, int], int],
    ) -> int:
        """A compact string, or records, at ``at``, and what is read behind it."""
        length = try_uvarint(data, at, stop)
        if length is None:
            return -1
        self._step = then
        return length[1] + max(0, length[0] - 1)
