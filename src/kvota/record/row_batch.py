"""A batch is a fixed piece of memory that takes packed rows."""

from struct import Struct
from typing import Any

import numpy as np

from kvota.model.decision_sink import ChargeMemo

# seq, ts_us, value, throttle_ms, upstream_throttle_ms, index of the memo, outcome code.
ROW = Struct("<qqdiiii")
ROW_BYTES = ROW.size
# The same, as columns.
ROW_COLUMNS = np.dtype(
    [
        ("seq", "<i8"),
        ("ts_us", "<i8"),
        ("value", "<f8"),
        ("throttle_ms", "<i4"),
        ("upstream_throttle_ms", "<i4"),
        ("memo", "<i4"),
        ("outcome", "<i4"),
    ]
)
assert ROW_COLUMNS.itemsize == ROW_BYTES

PackedRows = np.ndarray[Any, np.dtype[np.void]]


class RowBatch:
    """A batch holds packed rows, and the memos they refer to by index.

    One thread appends, others read: the appender lists the memo and writes the row before it moves
    ``offset``, so whatever lies below an ``offset`` once read does not change until ``reset``.
    """

    __slots__ = (
        "counted_offset",
        "generation",
        "memos",
        "offset",
        "rows",
        "sent_offset",
        "text_chars",
        "written_offset",
    )

    def __init__(self, rows_max: int) -> None:
        self.rows = bytearray(rows_max * ROW_BYTES)
        self.offset = 0  # bytes appended
        self.written_offset = 0  # bytes that are on disk, or given up
        self.sent_offset = 0  # bytes that are on their way to a topic
        self.counted_offset = 0  # bytes that have been summed up
        self.memos: list[ChargeMemo] = []
        self.text_chars = 0
        self.generation = -1  # no two fillings in a process have the same: see RowAppender

    def enlist(self, memo: ChargeMemo) -> None:
        """Give the memo its index in this batch."""
        memo.index = len(self.memos)
        memo.generation = self.generation
        self.memos.append(memo)
        self.text_chars += len(memo.user) + len(memo.client_id) + len(memo.tags)

    def columns(self, begin: int, end: int) -> PackedRows:
        """The rows between two offsets, as columns; the batch's own memory."""
        return np.frombuffer(
            self.rows, dtype=ROW_COLUMNS, offset=begin, count=(end - begin) // ROW_BYTES
        )

    def reset(self) -> None:
        """Forget all rows; the memory is kept."""
        self.memos = []
        self.text_chars = 0
        self.written_offset = 0
        self.sent_offset = 0
        self.counted_offset = 0
        self.offset = 0
