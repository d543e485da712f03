"""CPU time and peak memory of a Spark application of this machine, part by part."""

import os
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_RESET_PEAK = "5"  # for /proc/PID/clear_refs


def cpu_s() -> float:
    """CPU seconds of this process and all below it, those that have ended included."""
    stats = {}
    for pid in _numbers():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        stats[pid] = (int(fields[1]), sum(map(int, fields[11:15])) / _TICK)
    return sum(stats[pid][1] for pid in _ours({pid: stat[0] for pid, stat in stats.items()}))


def forget_peaks() -> None:
    """Let peaks begin anew."""
    for pid in _tree():
        try:
            Path(f"/proc/{pid}/clear_refs").write_text(_RESET_PEAK)
        except OSError:
            continue


def peaks_mb() -> dict[str, int]:
    """Peak resident memory since then: this process, the JVM, the largest worker."""
    found = {"driver": 0, "jvm": 0, "worker": 0}
    for pid in _tree():
        try:
            status = Path(f"/proc/{pid}/status").read_text()
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if "VmHWM:" not in status:
            continue
        peak_mb = int(status.split("VmHWM:")[1].split()[0]) // 1024
        part = "worker"
        if pid == os.getpid():
            part = "driver"
        elif b"java" in command.split(b"\0")[0]:
            part = "jvm"
        found[part] = max(found[part], peak_mb)
    return found


def _tree() -> set[int]:
    parents = {}
    for pid in _numbers():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[pid] = int(fields[1])
    return _ours(parents)


def _numbers() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _ours(parents: dict[int, int]) -> set[int]:
    ours = {os.getpid()} & parents.keys()
    grown = True
    while grown:
        below = {pid for pid, parent in parents.items() if parent in ours} - ours
        ours |= below
        grown = bool(below)
    return ours
