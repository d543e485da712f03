"""What kernels are for: those of a part are compiled together."""

from collections.abc import Collection, Mapping

OF_LOGS = "request log"
# About so many seconds of CPU each part takes, where nothing is kept. "grid" finds the open loops done where another process
# has them, and so comes behind.
PARTS: Mapping[str, float] = {
    "open loops": 2.5,
    "grid": 11.0,
    "packing": 3.5,
    "usage": 4.5,
    "law": 2.0,
    "plan": 2.5,
    "producer ids": 1.5,
    OF_LOGS: 4.5,
}


def shares(parts: Collection[str], processes: int) -> list[list[str]]:
    """Divide parts among processes, so that all are done at about the same time; each does its own as in ``PARTS``.

    >>> shares(["usage", "packing", "grid", "open loops"], 2)
    [['grid'], ['open loops', 'packing', 'usage']]
    """
    found: list[list[str]] = [[] for _ in range(min(processes, len(parts)))]
    for part in sorted(parts, key=lambda each: -PARTS[each]):
        min(found, key=lambda share: sum(PARTS[each] for each in share)).append(part)
    return [[part for part in PARTS if part in share] for share in found]
