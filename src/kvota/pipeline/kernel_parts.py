"""What kernels are for: those of a part are compiled together."""

from collections.abc import Collection, Mapping

OF_LOGS = "request log"
# About so many seconds of CPU each part takes, where nothing of it is kept.
PARTS: Mapping[str, float] = {
    "packing": 9.0,
    "usage": 6.0,
    "closed loops": 12.0,
    "grid": 12.0,
    "law": 8.0,
    "plan": 8.0,
    "producer ids": 8.0,
    OF_LOGS: 9.0,
}


def shares(parts: Collection[str], processes: int) -> list[list[str]]:
    """Divide parts among processes, so that all are done at about the same time.

    >>> shares(["packing", "grid", "usage"], 2)
    [['grid'], ['packing', 'usage']]
    """
    found: list[list[str]] = [[] for _ in range(min(processes, len(parts)))]
    for part in sorted(parts, key=lambda each: -PARTS[each]):
        min(found, key=lambda share: sum(PARTS[each] for each in share)).append(part)
    return found
