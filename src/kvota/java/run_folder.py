"""Where large data of a run lie: in the cache, and gone with the run, even a killed one."""

import fcntl
import shutil
import tempfile
import time
from pathlib import Path

from kvota.java.cache import cache_folder

_LOCK, _KEPT = "lock", "kept"
_KEPT_S = 7 * 24 * 3600


class RunFolder:
    """A new folder ``<cache>/run/PREFIX…``, this process's own.

    What a killed process left is removed when the next one makes its folder: a lock that nobody
    holds tells. Kept folders (logs of a failure) go after a week.

    Attributes:
        path: the folder.
    """

    def __init__(self, prefix: str) -> None:
        """Raises OSError where the cache cannot be written."""
        runs = cache_folder() / "run"
        runs.mkdir(parents=True, exist_ok=True)
        with (runs / ".lock").open("w") as all_runs:
            fcntl.flock(all_runs, fcntl.LOCK_EX)
            for left in runs.iterdir():
                _remove_dead(left)
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=runs))
            self._lock = (self.path / _LOCK).open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def keep(self) -> None:
        """Let it lie for a week."""
        (self.path / _KEPT).touch()
        self._lock.close()

    def remove(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


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
    except OSError:  # it is in use, or none of ours
        return
