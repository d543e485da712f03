"""The memory of another process at its peak, as the kernel counts it."""

import contextlib
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

_LOOK_S = 0.2
_RESET_PEAK = "5"  # see proc_pid_clear_refs(5)


class PeakMemory:
    """Watches from entry to exit.

    Attributes:
        peak_pss_mib: proportional set size (what is shared counts in part), at its highest when looked at.
        peak_rss_mib: resident set size at its highest, whenever that was.
    """

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")
        self.peak_pss_mib = self.peak_rss_mib = 0.0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        (self._folder / "clear_refs").write_text(_RESET_PEAK)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.set()
        self._thread.join()

    @property
    def rss_mib(self) -> float:
        """Now."""
        return self._mib("status", "VmRSS:")

    def _watch(self) -> None:
        with contextlib.suppress(OSError):  # the process has ended
            while not self._ending.wait(_LOOK_S):
                self.peak_pss_mib = max(self.peak_pss_mib, self._mib("smaps_rollup", "Pss:"))
                self.peak_rss_mib = self._mib("status", "VmHWM:")

    def _mib(self, file: str, name: str) -> float:
        lines = (self._folder / file).read_text().splitlines()
        (line,) = (line for line in lines if line.startswith(name))
        return int(line.split()[1]) / 1024
