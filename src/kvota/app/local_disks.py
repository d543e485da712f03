"""The disks under log directories of this machine, looked at apart: one that has lost its server hangs."""

from collections.abc import Sequence

from kvota.app.look_thread import LookThread
from kvota.files.log_dirs import observe_local
from kvota.volumes import Observation, Status


class LocalDisks:
    """Looks at the file systems under these directories, on a thread of its own."""

    def __init__(self, log_dirs: Sequence[str]) -> None:
        self._log_dirs = log_dirs
        self._looks_at = ""
        self._thread: LookThread[Observation] = LookThread("kvota-log-dirs")

    async def observe(self, timeout_s: float) -> Observation:
        """Look once; never raises, and ends after ``timeout_s``."""
        found = await self._thread.look(self._look, timeout_s)
        if found is not None:
            return found
        seconds = self._thread.looking_for_s
        reason = f"{self._looks_at}: its file system has not answered for {seconds:.1f} s"
        return Observation(status=Status.SAFETY_TIMEOUT, reason=reason)

    def close(self) -> None:
        """Look no more; where a look hangs it is left to itself."""
        self._thread.put(None)

    def _look(self) -> Observation:
        try:
            return observe_local(self._log_dirs, begins=self._begin)
        except Exception as error:  # noqa: BLE001  (whatever it is, somebody waits for the look)
            return Observation(status=Status.LOCAL_ERROR, reason=f"{self._looks_at}: {error!r}")

    def _begin(self, log_dir: str) -> None:
        self._looks_at = log_dir
