"""Decision events go into Parquet files, and to a topic, without ever holding up traffic."""

import logging
import re
import time
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from kvota.files.process_lock import HeldError, holder
from kvota.files.whole_file import DISK_IS_FULL
from kvota.model.clock import Clock
from kvota.model.errors import UsageError
from kvota.record.event_files import EventFiles, lock_path
from kvota.record.event_parquet import warm_up
from kvota.record.record_limits import RecordLimits, RecordStatus
from kvota.record.row_appender import RowAppender
from kvota.record.row_batch import RowBatch
from kvota.record.row_counter import NOBODY, RowCounter, RowObserver
from kvota.record.row_writer import RowWriter

if TYPE_CHECKING:
    from kvota.record.topic_sender import TopicSender

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

# A full disk is no mistake in the configuration: the gateway starts, and records once there is room.


def check_alone(folder: Path, gateway: str, *, besides: int | None = None) -> None:
    """Check that no gateway of this name records into the folder.

    Args:
        folder: of the record; it may not be there.
        gateway: the name.
        besides: the process id of one that may.

    Raises:
        UsageError: one does.
    """
    pid = holder(lock_path(folder, gateway))
    if pid is not None and pid != besides:
        raise _another_records(folder, gateway, pid)


def _another_records(folder: Path, gateway: str, pid: int) -> UsageError:
    return UsageError(
        f'record: another gateway with the name "{gateway}" (process {pid or "unknown"}) records into {folder}. '
        "Give this one another gateway.name or another record.folder, or end that one"
    )


class Recorder:
    """Takes decisions on the event loop's thread, writes them on its own; implements ``DecisionSink``.

    ``next_seq`` and ``append`` belong to one thread. Rows are on disk at the latest ``flush_interval_s``
    after they were appended, or twelve times that while few of them come, when the disk does its work; a
    kill leaves whole files only. A topic has them as soon as the cluster takes them.

    Args:
        folder: for the files; None: there are none.
        topic: sends rows to a topic; None: nobody does.
        gateway: the name in each row.
        run_id: and this start of it.
        limits: what it may take.
        clock: Unix time.
        observer: is shown each row.

    Attributes:
        counter: shows each row to the observer before it is written.

    Raises:
        UsageError: ``gateway`` or ``run_id`` cannot be part of a file name.
    """

    def __init__(  # noqa: PLR0913  (all of it is wired in one place)
        self,
        folder: Path | None,
        topic: "TopicSender | None" = None,
        *,
        gateway: str,
        run_id: str,
        limits: RecordLimits,
        clock: Clock,
        observer: RowObserver = NOBODY,
    ) -> None:
        for name, value in (("gateway", gateway), ("run_id", run_id)):
            if not _NAME.fullmatch(value):
                msg = (
                    f'record: the {name} "{value}" is part of file names: write 1 to 64 letters, digits,'
                    ' ".", "_" or "-", beginning with a letter or digit'
                )
                raise UsageError(msg)
        self._limits = limits
        self._clock = clock
        self._topic = topic
        self._files = None
        if folder is not None:
            self._files = EventFiles(
                folder,
                gateway=gateway,
                folder_bytes_max=limits.folder_bytes_max,
                age_s_max=limits.age_s_max,
            )
        self._gateway = gateway
        self._appender = RowAppender(
            batches=limits.buffer_rows // limits.flush_rows, rows_max=limits.flush_rows
        )
        counted: SimpleQueue[RowBatch | None] = SimpleQueue()
        self.counter = RowCounter(self._appender, observer, hand_on=counted.put, clock=clock)
        self._writer = RowWriter(
            self._appender,
            counted,
            self._files,
            topic,
            limits=limits,
            clock=clock,
            gateway=gateway,
            run_id=run_id,
        )
        self._is_running = False
        # These are not methods of this class: that saves one call per row.
        self.next_seq = self._appender.next_seq
        self.append = self._appender.append

    def start(self) -> None:
        """Make the folder, pay Arrow's first-use costs, start writing; called before the gateway listens.

        Raises:
            UsageError: the folder cannot be used, or another gateway of this name does.
        """
        if self._files is not None:
            self._open(self._files)
        warm_up()
        if self._topic is not None:
            self._topic.start()
        self.counter.start()
        self._writer.start()
        self._is_running = True

    def close(self) -> None:
        """Write all rows; gives up after ``close_timeout_s``. Later rows are dropped and counted."""
        self._appender.close()
        if self._is_running:
            self._is_running = False
            self._finish()
        if self._files is not None:
            self._files.close()

    def _open(self, files: EventFiles) -> None:
        try:
            files.open(now_s=self._clock.now_us() / 1e6)
        except HeldError as error:
            raise _another_records(files.folder, self._gateway, error.pid) from None
        except OSError as error:
            if error.errno not in DISK_IS_FULL:
                msg = (
                    f"record: {files.folder} cannot be used: {error.strerror or error}."
                    " Name a folder that the gateway may write to"
                )
                raise UsageError(msg) from error
            logger.warning("recording begins on a full disk: %s", files.folder)

    def _finish(self) -> None:
        """Both together may take ``close_timeout_s``."""
        limit_s = self._limits.close_timeout_s
        end_s = time.perf_counter() + limit_s
        if not self._writer.finish(timeout_s=limit_s):
            where = "the topic" if self._files is None else self._files.folder
            logger.error(
                "recording ends with rows unwritten: %s did not take them within %g s",
                where,
                limit_s,
            )
        if self._topic is not None:
            left_s = max(0.0, end_s - time.perf_counter())
            if not self._topic.finish(timeout_s=left_s):
                logger.error(
                    "recording ends with rows unsent: topic %s did not take them within %g s",
                    self._topic.topic,
                    limit_s,
                )

    @property
    def rows_refused(self) -> int:
        """So many rows were neither shown to the observer nor written: there was no memory for them."""
        return self._appender.rows_refused

    def status(self) -> RecordStatus:
        """Tell how the recording stands; any thread may ask."""
        topic = None
        if self._topic is not None:
            topic = self._topic.status()
            refused = topic.rows_dropped + self.rows_refused
            topic = replace(topic, rows_dropped=refused, is_up=topic.is_up and self._is_running)
        if self._files is None and topic is not None:
            return RecordStatus(
                recording=topic.is_up,
                rows_written=topic.rows_written,
                rows_dropped=topic.rows_dropped,
                files=0,
                bytes=0,
                last_error=topic.last_error,
                topic=topic,
            )
        files = self._files
        return RecordStatus(
            recording=self._is_running and not self._writer.is_failing,
            rows_written=self._writer.rows_written,
            rows_dropped=self._writer.rows_dropped,
            files=0 if files is None else files.count,
            bytes=0 if files is None else files.bytes,
            last_error=self._writer.last_error,
            topic=topic,
        )
