"""The files of recorded events in one folder are written whole, and removed when old or too many."""

import os
import re
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from heapq import nsmallest
from pathlib import Path
from typing import NamedTuple

from kvota.files.folder_lock import WITHOUT_LOCKS
from kvota.files.process_lock import HeldError, ProcessLock
from kvota.files.whole_file import UNFINISHED, remove_if_dead, try_to_write, write_whole

# events-<gateway>-<run>-<first seq>-<number of the file in its run>.parquet, and compacted ones:
# events-hour-<YYYYMMDDhhmm>-<digest of its sources>.parquet
COMPLETE = re.compile(r"events-.+-[0-9]{12,}-[0-9]+\.parquet")

# The oldest files are remembered up to this number: memory stays bounded, however many the folder holds.
_REMEMBERED_MAX = 1_000

# People and other gateways add and remove files too, so the folder is looked at again after this time.
_LOOK_AGAIN_S = 600.0


class _File(NamedTuple):
    modified_s: float
    name: str
    size_bytes: int


def lock_path(folder: Path, gateway: str) -> Path:
    """Return the file that the gateway of this name holds while it records into the folder.

    Readers of Parquet pass over names that begin with a dot.
    """
    return folder / f".{gateway}.lock"


class EventFiles:
    """The event files lie in one folder, which several gateways of different names may share.

    Both limits are the folder's; only files with names of our own pattern are ever removed.
    """

    def __init__(
        self, folder: Path, *, gateway: str, folder_bytes_max: int, age_s_max: float
    ) -> None:
        self.count = 0
        self.bytes = 0
        self.folder = folder
        self._folder_bytes_max = folder_bytes_max
        self._age_s_max = age_s_max
        self._oldest: deque[_File] = deque()  # the first of all files, oldest first
        self._looked_s = 0.0
        self._changed_ns = (
            -1
        )  # when the folder was changed last, if that is known and was our doing
        self._lock: ProcessLock | None = None
        self._gateway = gateway

    def open(self, *, now_s: float) -> None:
        """Make the folder, write in it once, remove the files that dead runs left half done.

        Raises:
            HeldError: a gateway of the same name writes into it.
            OSError: the folder cannot be made, read or written to.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._hold()
        for path in self.folder.iterdir():
            name = path.name.removesuffix(UNFINISHED)
            if name != path.name and COMPLETE.fullmatch(name):
                remove_if_dead(path)
        try_to_write(self.folder / f"events-probe-{os.getpid()}-000000000000-0.parquet")
        self._look(now_s)

    def write(self, name: str, content: bytes | memoryview, *, now_s: float) -> bool:
        """Write one file: whole, or not at all. A folder that is gone is made again.

        Returns:
            False: the folder was gone, with what was in it.

        Raises:
            OSError: it could not be written; nothing of it is left.
        """
        was_there = True
        is_as_known = self._is_as_known()
        try:
            write_whole(self.folder / name, content)
        except FileNotFoundError:
            self.folder.mkdir(parents=True, exist_ok=True)
            with suppress(OSError, HeldError):  # what has been decided is recorded all the same
                self._hold()
            self._look(now_s)
            write_whole(self.folder / name, content)
            was_there = False
        size_bytes = len(content)
        if len(self._oldest) == self.count < _REMEMBERED_MAX:
            self._oldest.append(_File(now_s, name, size_bytes))
        self.count += 1
        self.bytes += size_bytes
        if is_as_known:
            self._changed_ns = self._changed()
        return was_there

    def close(self) -> None:
        """Let another gateway of this name write here."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _hold(self) -> None:
        self.close()
        try:
            self._lock = ProcessLock.take(lock_path(self.folder, self._gateway))
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:  # recording goes on without
                raise

    def remove_old(self, *, now_s: float) -> None:
        """Remove the oldest files until both limits hold; the newest one always stays.

        Raises:
            OSError: the folder could not be read, or a file not removed.
        """
        if not self._oldest or abs(now_s - self._looked_s) > _LOOK_AGAIN_S:
            self._look(now_s)
        while self.count > 1:
            oldest = self._oldest[0]
            is_old = now_s - oldest.modified_s > self._age_s_max
            if not is_old and self.bytes <= self._folder_bytes_max:
                return
            if not self._is_as_known():  # by a compaction it may have become smaller
                self._look(now_s)
                continue
            (self.folder / oldest.name).unlink(missing_ok=True)
            self._changed_ns = self._changed()
            self._oldest.popleft()
            self.count -= 1
            self.bytes -= oldest.size_bytes
            if not self._oldest:
                self._look(now_s)

    def _is_as_known(self) -> bool:
        """Return whether nobody else has added or removed anything since the last look."""
        return self._changed_ns == self._changed()

    def _changed(self) -> int:
        try:
            return self.folder.stat().st_mtime_ns
        except FileNotFoundError:
            return -1

    def _look(self, now_s: float) -> None:
        self._looked_s = now_s
        self._changed_ns = self._changed()
        self.count = 0
        self.bytes = 0
        self._oldest = deque(nsmallest(_REMEMBERED_MAX, self._tally()))

    def _tally(self) -> Iterator[_File]:
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if not COMPLETE.fullmatch(entry.name):
                    continue
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    continue  # removed meanwhile
                self.count += 1
                self.bytes += status.st_size
                yield _File(status.st_mtime, entry.name, status.st_size)
