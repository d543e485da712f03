"""Looks at the volumes go into Parquet files beside the decisions, without ever holding up traffic."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread

import pyarrow as pa
import pyarrow.parquet as pq

from kvota.files.whole_file import UNFINISHED, remove_if_dead, write_whole
from kvota.model.clock import Clock
from kvota.model.volume_row import VOLUME_COLUMNS, VOLUME_SCHEMA_VERSION, VolumeRow
from kvota.record.event_schema import ARROW_TYPES
from kvota.record.places import VOLUME_FOLDER, is_of_volumes
from kvota.record.record_limits import RecordLimits

log = logging.getLogger(__name__)

VOLUME_SCHEMA = pa.schema(
    [
        pa.field(column.name, ARROW_TYPES[column.type], nullable=column.nullable)
        for column in VOLUME_COLUMNS
    ],
    metadata={"schema_version": VOLUME_SCHEMA_VERSION},
)

# The file of the hour is written again with each flush, so it must stay small. Where the disk takes nothing, twice
# as many wait in memory; later ones are dropped and counted.
ROWS_MAX = 20_000
# Of what the record may take on the disk. 100 volumes looked at every ten seconds take some 2 MB a day.
_SHARE_OF_FOLDER = 0.05


class VolumeRecord:
    """Writes rows as they come, each hour's into a file of its own; a kill leaves whole files only.

    ``append`` is for the event loop's thread and never waits; files are written on another one.

    Args:
        folder: of the record; the files lie in a folder of it that readers of decisions pass over.
        gateway: its name.
        run_id: of this start of it.
        limits: of the record: how often files are written, for how long they are kept.
        clock: tells the time.

    Attributes:
        rows_written: rows that are on disk.
        rows_dropped: rows that will be in no file.
    """

    def __init__(
        self, folder: Path, *, gateway: str, run_id: str, limits: RecordLimits, clock: Clock
    ) -> None:
        self.rows_written = 0
        self.rows_dropped = 0
        self._folder = folder / VOLUME_FOLDER
        self._name = f"volumes-{gateway}-{run_id}"
        self._limits = limits
        self._clock = clock
        self._came: SimpleQueue[Sequence[VolumeRow] | None] = SimpleQueue()
        self._closing = Event()
        self._hour = ""
        self._number = 0
        self._rows: list[VolumeRow] = []  # of the file that is being filled
        self._in_file = 0  # how many of them it has
        self._is_failing = False
        # The interpreter does not join it: a disk that hangs must not keep the process alive.
        self._thread = Thread(target=self._run, name="kvota-volume-record", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def append(self, rows: Sequence[VolumeRow]) -> None:
        """Take the rows of one look."""
        self._came.put(rows)

    def close(self) -> None:
        """Write what there is; gives up after ``close_timeout_s``."""
        self._closing.set()
        self._came.put(None)
        self._thread.join(self._limits.close_timeout_s)

    def _run(self) -> None:
        self._clear_away()
        is_over = False
        while not is_over:
            came = [self._came.get()]
            self._closing.wait(self._limits.flush_interval_s)
            with suppress(Empty):
                while True:
                    came.append(self._came.get_nowait())
            is_over = None in came
            for rows in filter(None, came):
                self._take(rows)
            self._write()

    def _take(self, rows: Sequence[VolumeRow]) -> None:
        hour = f"{datetime.fromtimestamp(rows[0].ts_us / 1e6, UTC):%Y%m%d%H}"
        if hour != self._hour or len(self._rows) + len(rows) > ROWS_MAX:
            self._write()
            if not self._is_failing:
                self._number = self._number + 1 if hour == self._hour else 0
                self._hour, self._rows, self._in_file = hour, [], 0
        if len(self._rows) + len(rows) > 2 * ROWS_MAX:  # the disk has taken nothing for long
            self.rows_dropped += len(rows)
        else:
            self._rows += rows

    def _write(self) -> None:
        """Write the file of the hour again, where there is anything new."""
        new = len(self._rows) - self._in_file
        if not new:
            return
        path = self._folder / f"{self._name}-{self._hour}-{self._number}.parquet"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(path, _parquet(self._rows))
            self._remove_old()
        except OSError as error:
            if not self._is_failing:
                log.warning(
                    "looks at the volumes are not recorded: %s: %s",
                    self._folder,
                    error.strerror or error,
                )
            self._is_failing = True
            return
        if self._is_failing:
            log.warning(
                "looks at the volumes are recorded again: %d rows were dropped", self.rows_dropped
            )
        self._is_failing = False
        self.rows_written += new
        self._in_file = len(self._rows)

    def _remove_old(self) -> None:
        """Files that are too old go, and the oldest where there are too many bytes; never the newest one."""
        files = sorted(
            (status.st_mtime, status.st_size, path)
            for path in self._folder.iterdir()
            if is_of_volumes(path.name) and (status := path.stat())
        )
        size = sum(each[1] for each in files)
        for modified_s, size_bytes, path in files[:-1]:
            is_old = self._now_s() - modified_s > self._limits.age_s_max
            if not is_old and size <= _SHARE_OF_FOLDER * self._limits.folder_bytes_max:
                return
            path.unlink(missing_ok=True)
            size -= size_bytes

    def _clear_away(self) -> None:
        """Remove what dead runs have left half done."""
        if self._folder.is_dir():
            for path in self._folder.glob(f"*{UNFINISHED}"):
                if is_of_volumes(path.name.removesuffix(UNFINISHED)):
                    remove_if_dead(path)

    def _now_s(self) -> float:
        return self._clock.now_us() / 1e6


def _parquet(rows: Sequence[VolumeRow]) -> pa.Buffer:
    columns = [
        pa.array(column, field.type)
        for column, field in zip(zip(*rows, strict=True), VOLUME_SCHEMA, strict=True)
    ]
    out = pa.BufferOutputStream()
    table = pa.Table.from_arrays(columns, schema=VOLUME_SCHEMA)
    pq.write_table(table, out, compression="zstd", write_page_checksum=True)
    return out.getvalue()
