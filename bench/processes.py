"""What a process and its children cost, as the kernel counts it."""

from pathlib import Path


def cpu_ns(pid: int) -> int:
    """Time on a CPU of all threads of a process and of its children, ns."""
    total = 0
    for member in tree(pid):
        for task in Path(f"/proc/{member}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
    return total


def pss_bytes(pid: int) -> int:
    """Memory of a process and its children; what processes share is shared out."""
    total = 0
    for member in tree(pid):
        rollup = Path(f"/proc/{member}/smaps_rollup").read_text()
        total += int(rollup.split("\nPss:")[1].split()[0]) * 1024
    return total


def tree(pid: int) -> list[int]:
    """A process and its children, theirs too."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += tree(int(child))
    return found
