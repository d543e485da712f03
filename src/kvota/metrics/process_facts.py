"""What the system says of this process, under the names that every exporter uses."""

import os
import resource
from dataclasses import dataclass
from pathlib import Path

_STATM, _FDS = Path("/proc/self/statm"), Path("/proc/self/fd")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """CPU, memory and files of this process.

    Attributes:
        cpu_s: user and system time, of all threads.
        memory_bytes: resident.
        open_fds: open files.
        fds_max: how many there may be.
        started_s: when it began to run, Unix time.
    """

    cpu_s: float
    memory_bytes: int
    open_fds: int
    fds_max: int
    started_s: float


def process_facts(started_s: float) -> ProcessFacts:
    """Look at this process now."""
    times = os.times()
    return ProcessFacts(
        cpu_s=times.user + times.system,
        memory_bytes=int(_STATM.read_text().split()[1]) * resource.getpagesize(),
        open_fds=sum(1 for _ in _FDS.iterdir()),
        fds_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        started_s=started_s,
    )
