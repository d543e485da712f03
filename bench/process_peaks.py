"""CPU time and peak memory of a Spark application of this machine, part by part."""

import os
import signal
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_RESET_PEAK = "5"  # for /proc/PID/clear_refs


# CPU seconds of processes that nobody waits for, by pid and time of their start: of those that have ended, and of living
# ones what they had at the last call. PySpark's daemon ends its idle workers, and no time of theirs becomes its own.
_ended: dict[tuple[int, str], float] = {}
_living: dict[tuple[int, str], float] = {}


def cpu_s() -> float:
    """CPU seconds of this process and all below it, those that have ended included.

    A worker's time between the last call and its end is missing: it has none, where it was idle.
    """
    stats = {}
    for pid in _numbers():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        stats[pid] = (int(fields[1]), fields[19], sum(map(int, fields[11:15])) / _TICK)
    ours = _ours({pid: stat[0] for pid, stat in stats.items()})
    unwaited = {pid for pid in ours if _waits_for_none(stats[pid][0])}
    for key in _living.keys() - {(pid, stats[pid][1]) for pid in stats}:
        _ended[key] = _living.pop(key)
    _living.update({(pid, stats[pid][1]): stats[pid][2] for pid in unwaited})
    return sum(stats[pid][2] for pid in ours) + sum(_ended.values())


def _waits_for_none(parent: int) -> bool:
    """Tell whether the children of a process leave their times to nobody, as it ignores their end."""
    try:
        status = Path(f"/proc/{parent}/status").read_text()
    except OSError:
        return False
    ignored = int(status.split("SigIgn:")[1].split()[0], 16)
    return bool(ignored >> (signal.SIGCHLD - 1) & 1)


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
