"""A thread turns batches of packed rows into files, and hands them to whoever sends them to a topic."""

import logging
from enum import Enum, auto
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Protocol

import pyarrow as pa

from kvota.model.clock import Clock
from kvota.record.event_files import EventFiles
from kvota.record.event_parquet import parquet_bytes, run_in
from kvota.record.event_table import event_table
from kvota.record.record_limits import RecordLimits
from kvota.record.row_appender import RowAppender
from kvota.record.row_batch import ROW_BYTES, PackedRows, RowBatch

logger = logging.getLogger(__name__)

# Thin traffic is written less often, step by step, and at most so many times the interval apart: a file
# for every five seconds would be 17,000 a day. What a kill can cost then is as many rows as ever, or fewer.
_INTERVALS_MAX = 12

# A file with so many flushes' rows, or more, is no thin one.
_THIN_FLUSHES = 0.25


class _Result(Enum):
    """What became of a batch's rows."""

    WRITTEN = auto()
    NOT_WRITTEN = auto()  # there were none, or no file can hold them
    AGAIN = auto()  # they are to be tried again


class TopicRows(Protocol):
    """Takes rows for a topic; ``topic_sender.TopicSender`` does, which needs a client of the cluster."""

    def put(self, table: pa.Table) -> None:
        """Take rows, or count them as dropped; never waits."""
        ...

    def drop(self, rows: int) -> None:
        """Count rows that cannot be sent."""
        ...


class RowWriter:
    """Writes full batches, and the current one when none gets full for a while.

    Rows that cannot be written stay in memory and are tried again after a pause. Meanwhile the appender runs
    out of free batches: new rows are dropped and counted, and traffic goes on. A topic has them before that, once:
    a cluster that is away holds no file up.

    Args:
        appender: whose rows these are.
        full: its full batches.
        files: where files go; None: there are none.
        topic: who takes rows for a topic; None: nobody.
        limits: when to write, and to try again.
        clock: Unix time.
        gateway: whose rows these are.
        run_id: and of which start of it.
    """

    def __init__(  # noqa: PLR0913  (all of it is wired in one place)
        self,
        appender: RowAppender,
        full: "SimpleQueue[RowBatch | None]",
        files: EventFiles | None,
        topic: TopicRows | None = None,
        *,
        limits: RecordLimits,
        clock: Clock,
        gateway: str,
        run_id: str,
    ) -> None:
        self.rows_written = 0
        self.rows_lost = 0  # beside those that the appender refused
        self.last_error: str | None = None
        self.is_failing = False
        self._appender = appender
        self._full = full
        self._files = files
        self._topic = topic
        self._limits = limits
        self._clock = clock
        self._gateway = gateway
        self._run_id = run_id
        self._file_number = 0
        self._dropped_before = 0  # at the last success
        self._dropped_said = 0
        self._is_behind = False
        self._cannot_remove = False
        self._closing = Event()
        # The interpreter does not join it: a disk that hangs must not keep the process alive.
        self._thread = Thread(target=self._run, name="kvota-record", daemon=True)

    @property
    def rows_dropped(self) -> int:
        """This many rows will be in no file."""
        return self.rows_lost + self._appender.rows_refused

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def finish(self, *, timeout_s: float) -> bool:
        """Wait, after the appender's close, until all is written without pauses; False if it took too long."""
        self._closing.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        shortest_s = interval_s = self._limits.flush_interval_s
        taken = 0
        while True:
            try:
                batch = self._full.get(timeout=interval_s)
            except Empty:
                before = self.rows_written
                running = self._appender.batch
                # A full one may be on its way here: its rows come first, for a kill must not leave a gap.
                if self._appender.handed_over == taken and (
                    self._write(running) is _Result.WRITTEN
                ):
                    self._succeed()
                self._remove_old()
                rows = self.rows_written - before
                if rows >= _THIN_FLUSHES * self._limits.flush_rows:
                    interval_s = shortest_s
                elif rows:
                    interval_s = min(2 * interval_s, _INTERVALS_MAX * shortest_s)
                continue
            if batch is None:
                return
            taken += 1
            interval_s = shortest_s
            while (result := self._write(batch)) is _Result.AGAIN:
                self._closing.wait(self._limits.retry_pause_s)
            batch.reset()
            self._appender.free.append(batch)
            # Rows are dropped until there is a free batch again: what is said before that is too few.
            if result is _Result.WRITTEN:
                self._succeed()
            self._remove_old()

    def _write(self, batch: RowBatch) -> _Result:
        """Write the rows the batch holds now."""
        end = batch.offset  # read once: the appender may go on meanwhile
        if end == batch.written_offset:
            return _Result.NOT_WRITTEN
        try:
            self._write_rows(batch, end)
        except OSError as error:
            self._fail(error)
            if not self._closing.is_set():
                return _Result.AGAIN
            self._lose(batch, end)
        except Exception as error:  # noqa: BLE001  (rows that no file can hold; recording must go on)
            self._fail(error)
            self._lose(batch, end)
        else:
            self.rows_written += (end - batch.written_offset) // ROW_BYTES
            batch.written_offset = end
            return _Result.WRITTEN
        return _Result.NOT_WRITTEN

    def _write_rows(self, batch: RowBatch, end: int) -> None:
        rows = batch.columns(batch.written_offset, end)
        table = event_table(rows, batch.memos[:], gateway=self._gateway, run_id=self._run_id)
        self._send(batch, table, end)
        if self._files is not None:
            self._write_file(self._files, rows, table)

    def _send(self, batch: RowBatch, table: pa.Table, end: int) -> None:
        """Hand on what has not been: a file of these rows may be tried again and again."""
        if self._topic is not None and batch.sent_offset < end:
            sent = max(0, batch.sent_offset - batch.written_offset) // ROW_BYTES
            batch.sent_offset = end
            self._topic.put(table.slice(sent))

    def _write_file(self, files: EventFiles, rows: PackedRows, table: pa.Table) -> None:
        first_seq = int(rows["seq"][0])
        name = f"events-{self._gateway}-{self._run_id}-{first_seq:012d}-{self._file_number}.parquet"
        run = run_in(table, gateway=self._gateway, run_id=self._run_id)
        content = memoryview(parquet_bytes(table, [run]))
        was_there = files.write(name, content, now_s=self._now_s())
        self._file_number += 1
        if not was_there:
            logger.warning(
                "the record folder was gone and has been made again: %s; what was in it is not in it now",
                files.folder,
            )

    def _lose(self, batch: RowBatch, end: int) -> None:
        if self._topic is not None and batch.sent_offset < end:
            self._topic.drop((end - max(batch.sent_offset, batch.written_offset)) // ROW_BYTES)
            batch.sent_offset = end
        self.rows_lost += (end - batch.written_offset) // ROW_BYTES
        batch.written_offset = end

    def _fail(self, error: Exception) -> None:
        self.last_error = _reason(error)
        if self.is_failing:
            return
        self.is_failing = True
        logger.error(
            "recording stops: %s: %s. Traffic goes on; rows wait in memory, then they are dropped and"
            " counted. Trying again every %g s",
            self._where,
            self.last_error,
            self._limits.retry_pause_s,
        )

    def _succeed(self) -> None:
        """Say what has changed; in the end each dropped row has been said once."""
        dropped = self.rows_dropped  # read once: the appender may go on meanwhile
        unsaid = dropped - self._dropped_said
        if self.is_failing:
            self.is_failing = False
            logger.warning("recording again: %s: %d rows were dropped", self._where, unsaid)
            self._dropped_said = dropped
        elif unsaid and not self._is_behind:
            self._is_behind = True
            logger.warning(
                "recording is behind: decisions come faster than %s takes them; %d rows were dropped so far",
                self._where,
                unsaid,
            )
            self._dropped_said = dropped
        elif self._is_behind and dropped == self._dropped_before:
            self._is_behind = False
            logger.warning(
                "recording keeps up again: %s: %d more rows were dropped",
                self._where,
                unsaid,
            )
            self._dropped_said = dropped
        self._dropped_before = dropped

    def _remove_old(self) -> None:
        if self._files is None:
            return
        try:
            self._files.remove_old(now_s=self._now_s())
        except OSError as error:
            self.last_error = _reason(error)
            if not self._cannot_remove:
                self._cannot_remove = True
                logger.warning("old recordings stay: %s: %s", self._where, self.last_error)
        else:
            self._cannot_remove = False

    @property
    def _where(self) -> str:
        return "the topic" if self._files is None else str(self._files.folder)

    def _now_s(self) -> float:
        return self._clock.now_us() / 1e6


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {error}"
