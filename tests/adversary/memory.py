"""Resident memory of another process, by what the kernel counts."""

from pathlib import Path

_RESET_PEAK = "5"  # see proc_pid_clear_refs(5)


class Memory:
    """Growth from now on, at its peak."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        forget_peak(pid)
        self._before_mib = mib_of(pid, "VmRSS:")

    def growth_mib(self) -> float:
        """By how much the peak exceeds what it was at the start, in MiB."""
        return mib_of(self._pid, "VmHWM:") - self._before_mib


def forget_peak(pid: int) -> None:
    """The peak is what there is now."""
    Path(f"/proc/{pid}/clear_refs").write_text(_RESET_PEAK)


def mib_of(pid: int, name: str, *, file: str = "status") -> float:
    """What the kernel says of a process, e.g. ``VmRSS:`` in ``status``, in MiB."""
    lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(name))
    return int(line.split()[1]) / 1024
