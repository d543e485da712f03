"""The hot path of recording packs one row into memory that is already there."""

import struct
from collections import deque
from collections.abc import Callable
from itertools import count
from queue import SimpleQueue

from kvota.model.decision_sink import ChargeMemo
from kvota.record.row_batch import ROW, RowBatch

# Names are the clients' choice, up to 32 KB each: a batch with this much text takes no further memo.
TEXT_CHARS_MAX = 4 * 1024 * 1024

# The numbers are the whole process's: a memo that another recorder listed is not mistaken for one of ours.
_generations = count()

_pack_into = ROW.pack_into
_ROW_BYTES = ROW.size


class RowAppender:
    """Fills one batch after the other; implements ``DecisionSink``.

    Batches go round: free → current → full → (RowCounter, RowWriter) → free. There is no lock: only the thread
    that appends takes from ``free`` and replaces ``batch``, and only the last one behind ``full`` resets a
    batch. When no batch is free, rows are dropped and counted.

    Attributes:
        full: batches, and calls for whoever takes them; None: no more come.
        handed_over: so many batches are full, or are about to be put there; it moves before ``batch`` does.
    """

    __slots__ = ("_is_closed", "batch", "free", "full", "handed_over", "next_seq", "rows_refused")

    def __init__(self, *, batches: int, rows_max: int) -> None:
        self.next_seq = count().__next__
        self.free = deque(RowBatch(rows_max) for _ in range(batches - 1))
        self.full: SimpleQueue[RowBatch | Callable[[], None] | None] = SimpleQueue()
        self.batch = RowBatch(rows_max)
        self.batch.generation = next(_generations)
        self.handed_over = 0
        self.rows_refused = 0
        self._is_closed = False

    def append(  # noqa: PLR0913, PLR0917  (the columns of one row; keywords cost time)
        self,
        memo: ChargeMemo,
        seq: int,
        ts_us: int,
        value: float,
        throttle_ms: int,
        upstream_throttle_ms: int,
        outcome: int,
        /,
    ) -> None:
        """Take one row, or count it as dropped; never waits, never raises."""
        batch = self.batch
        if memo.generation != batch.generation:
            if not self._enlist(memo):
                return
            batch = self.batch
        offset = batch.offset
        # That the batch is full is found by the failure: a comparison per row would cost more.
        try:
            _pack_into(
                batch.rows,
                offset,
                seq,
                ts_us,
                value,
                throttle_ms,
                upstream_throttle_ms,
                memo.index,
                outcome,
            )
        except (struct.error, OverflowError):
            if offset < len(batch.rows) or not self._take_next_batch():
                self.rows_refused += 1
            else:
                self.append(memo, seq, ts_us, value, throttle_ms, upstream_throttle_ms, outcome)
            return
        batch.offset = offset + _ROW_BYTES

    def close(self) -> None:
        """Hand over the last batch; later rows are dropped and counted."""
        if self._is_closed:
            return
        self._is_closed = True
        self.handed_over += 1
        last, self.batch = self.batch, RowBatch(0)
        self.batch.text_chars = TEXT_CHARS_MAX
        self.full.put(last)
        self.full.put(None)

    def _enlist(self, memo: ChargeMemo) -> bool:
        if self.batch.text_chars >= TEXT_CHARS_MAX and not self._take_next_batch():
            self.rows_refused += 1
            return False
        self.batch.enlist(memo)
        return True

    def _take_next_batch(self) -> bool:
        if self._is_closed or not self.free:
            return False
        self.handed_over += 1
        last, self.batch = self.batch, self.free.popleft()
        self.batch.generation = next(_generations)
        self.full.put(last)
        return True
