"""Folders of one run go with it, even with a killed one."""

import fcntl
import shutil
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from kvota.files.cache import cache_folder

_LOCK, _KEPT = "lock", "kept"
_KEPT_S = 7 * 24 * 3600


class RunFolder:
    """A new folder ``PREFIX…`` belongs to this process alone; in a ``with`` block it goes at the end.

    A folder that a killed process left is removed when the next one makes one at the same place: a lock that
    nobody holds tells. Kept folders (logs of a failure) go after a week.

    Attributes:
        path: the folder.
    """

    def __init__(self, prefix: str, *, inside: Path | None = None) -> None:
        """Make it inside that folder; large data of a run lie in ``<cache>/run``.

        Raises:
            OSError: nothing can be written there.
        """
        home = cache_folder() / "run" if inside is None else inside
        home.mkdir(parents=True, exist_ok=True)
        for left in home.iterdir():
            _remove_dead(left)
        self.path, self._lock = _new_folder(home, prefix)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.remove()

    def keep(self) -> None:
        """Let it lie for a week."""
        (self.path / _KEPT).touch()
        self._lock.close()

    def remove(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _new_folder(home: Path, prefix: str) -> tuple[Path, IO[str]]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=home))
        lock = (path / _LOCK).open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (path / _LOCK).exists():
            return path, lock
        # Another process saw a lock that nobody held yet, and removed the folder.
        lock.close()


def _remove_dead(folder: Path) -> None:
    try:
        kept_s = time.time() - (folder / _KEPT).stat().st_mtime  # noqa: TID251  (against a file's)
    except OSError:
        kept_s = _KEPT_S
    if kept_s < _KEPT_S:
        return
    try:
        with (folder / _LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:  # it is in use, or it is none of ours
        return
