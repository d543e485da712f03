"""A batch is a fixed piece of memory that takes packed rows."""

from struct import Struct

from kvota.model.decision_sink import ChargeMemo

# seq, ts_us, value, throttle_ms, upstream_throttle_ms, index of the memo, outcome code.
ROW = Struct("<qqdiiii")
ROW_BYTES = ROW.size


class RowBatch:
    """A batch holds packed rows, and the memos they refer to by index.

    One thread appends, another reads: the appender lists the memo and writes the row before it moves
    ``offset``, so whatever lies below an ``offset`` once read does not change until ``reset``.
    """

    __slots__ = ("generation", "memos", "offset", "rows", "text_chars", "written_offset")

    def __init__(self, rows_max: int) -> None:
        self.rows = bytearray(rows_max * ROW_BYTES)
        self.offset = 0  # bytes appended
        self.written_offset = 0  # bytes that are on disk, or given up
        self.memos: list[ChargeMemo] = []
        self.text_chars = 0
        self.generation = -1  # no two fillings in a process have the same: see RowAppender

    def enlist(self, memo: ChargeMemo) -> None:
        """Give the memo its index in this batch."""
        memo.index = len(self.memos)
        memo.generation = self.generation
        self.memos.append(memo)
        self.text_chars += len(memo.user) + len(memo.client_id) + len(memo.tags)

    def reset(self) -> None:
        """Forget all rows; the memory is kept."""
        self.memos = []
        self.text_chars = 0
        self.written_offset = 0
        self.offset = 0
