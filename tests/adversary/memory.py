"""Resident memory of another process, by what the kernel counts."""

from pathlib import Path

_RESET_PEAK = "5"  # see proc_pid_clear_refs(5)


class Memory:
    """Growth from now on, at its peak."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")
        (self._folder / "clear_refs").write_text(_RESET_PEAK)
        self._before_mib = self._mib("VmRSS:")

    def growth_mib(self) -> float:
        """By how much the peak exceeds what it was at the start, in MiB."""
        return self._mib("VmHWM:") - self._before_mib

    def _mib(self, name: str) -> float:
        status = (self._folder / "status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith(name))
        return int(line.split()[1]) / 1024
