"""A thread sums rows up as they come, before they are written: whoever wants to know need not read files."""

import logging
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Protocol

from kvota.model.clock import Clock
from kvota.model.decision_sink import ChargeMemo
from kvota.record.row_appender import RowAppender
from kvota.record.row_batch import PackedRows, RowBatch

logger = logging.getLogger(__name__)

# Rows are looked at as often where no batch gets full: log lines that depend on them are as late.
LOOK_S = 1.0

# Three batches take milliseconds; an observer that hangs must not keep the process alive.
_CLOSE_S = 5.0


class RowObserver(Protocol):
    """Who sums rows up; called on one thread, which is not the one that decides."""

    def take(self, rows: PackedRows, memos: Sequence[ChargeMemo]) -> None:
        """Take the next rows; they are only borrowed."""
        ...

    def look(self, now_ms: int) -> None:
        """Some time has passed; due at least every ``LOOK_S``."""
        ...


class _Nobody:
    """Is shown rows and forgets them."""

    def take(self, rows: PackedRows, memos: Sequence[ChargeMemo]) -> None: ...

    def look(self, now_ms: int) -> None: ...


NOBODY: RowObserver = _Nobody()


class RowCounter:
    """Shows each row to an observer once, then hands its batch on.

    Args:
        appender: whose rows these are.
        observer: to whom they are shown; what it raises is logged once, and its rows go on.
        hand_on: takes each full batch, and None when no more come.
        clock: Unix time.
    """

    def __init__(
        self,
        appender: RowAppender,
        observer: RowObserver,
        *,
        hand_on: Callable[[RowBatch | None], None],
        clock: Clock,
    ) -> None:
        self._appender = appender
        self._observer = observer
        self._hand_on = hand_on
        self._clock = clock
        self._has_failed = False
        self._thread = Thread(target=self._run, name="kvota-count", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Wait until all is shown, behind the end of the rows; no longer than that."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def when_counted(self, call: Callable[[], None]) -> None:
        """Call this on the counter's thread once all rows of now have been shown; from any thread.

        It is never called where the counting has ended.
        """
        self._appender.full.put(call)

    def _run(self) -> None:
        full: SimpleQueue[RowBatch | Callable[[], None] | None] = self._appender.full
        while True:
            try:
                item = full.get(timeout=LOOK_S)
            except Empty:
                self._show(self._appender.batch)
            else:
                if item is None:
                    self._hand_on(None)
                    return
                if isinstance(item, RowBatch):
                    self._show(item)
                    self._hand_on(item)
                else:
                    self._show(self._appender.batch)
                    self._guarded(item)
            self._guarded(self._look)

    def _show(self, batch: RowBatch) -> None:
        begin, end = batch.counted_offset, batch.offset  # read once: the appender may go on
        if end > begin:
            batch.counted_offset = end
            self._guarded(lambda: self._observer.take(batch.columns(begin, end), batch.memos))

    def _look(self) -> None:
        self._observer.look(self._clock.now_us() // 1000)

    def _guarded(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            if not self._has_failed:
                self._has_failed = True
                logger.exception("decisions are not summed up as they should be; traffic goes on")


class CountingSink:
    """A gateway that records nothing has this sink: rows are summed up and forgotten; a ``DecisionSink``.

    Args:
        observer: who sums them up.
        clock: Unix time.
        rows_max: of one batch. There are three: rows for which none is free are not summed up.
    """

    def __init__(self, observer: RowObserver, *, clock: Clock, rows_max: int = 10_000) -> None:
        self._appender = RowAppender(batches=3, rows_max=rows_max)
        self.counter = RowCounter(self._appender, observer, hand_on=self._set_free, clock=clock)
        # These are not methods of this class: that saves one call per row.
        self.next_seq = self._appender.next_seq
        self.append = self._appender.append

    @property
    def rows_refused(self) -> int:
        """So many rows were not summed up."""
        return self._appender.rows_refused

    def start(self) -> None:
        """Start to sum up."""
        self.counter.start()

    def close(self) -> None:
        """Sum up what has come, and no more."""
        self._appender.close()
        # Who is within Arrow's or NumPy's code when the interpreter ends has the process aborted.
        self.counter.wait(_CLOSE_S)

    def _set_free(self, batch: RowBatch | None) -> None:
        if batch is not None:
            batch.reset()
            self._appender.free.append(batch)
