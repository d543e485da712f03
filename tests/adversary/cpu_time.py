"""What processes take of the machine's cores, by what the kernel counts."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class CpuTime:
    """Of some processes, by name, from now on."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._began_s = time.monotonic()
        self._before_s = {name: _cpu_s(pid) for name, pid in pids.items()}

    def cores(self) -> dict[str, float]:
        """How many cores each was on, on average; 0 for one that has ended."""
        elapsed_s = time.monotonic() - self._began_s
        return {
            name: max(0.0, (_cpu_s(pid) - self._before_s[name]) / elapsed_s)
            for name, pid in self._pids.items()
        }


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    user, system = fields[11:13]  # see proc(5); two fields stand before the bracket
    return (int(user) + int(system)) / _TICKS_PER_S
