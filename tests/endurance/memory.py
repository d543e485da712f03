"""The memory of another process at its peak, as the kernel counts it."""

import contextlib
import threading
from types import TracebackType
from typing import Self

from tests.adversary.memory import forget_peak, mib_of

_LOOK_S = 0.2


class PeakMemory:
    """Watches from entry to exit.

    Attributes:
        peak_pss_mib: proportional set size (what is shared counts in part), at its highest when looked at.
        peak_rss_mib: resident set size at its highest, whenever that was.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.peak_pss_mib = self.peak_rss_mib = 0.0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        forget_peak(self._pid)
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
        return mib_of(self._pid, "VmRSS:")

    def _watch(self) -> None:
        with contextlib.suppress(OSError):  # the process has ended
            while not self._ending.wait(_LOOK_S):
                self.peak_pss_mib = max(
                    self.peak_pss_mib, mib_of(self._pid, "Pss:", file="smaps_rollup")
                )
                self.peak_rss_mib = mib_of(self._pid, "VmHWM:")
