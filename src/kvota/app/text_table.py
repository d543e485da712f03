"""Writes tables for people's screens."""

from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def text_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: int = 1,
    last_left: bool = False,
) -> str:
    """Align the first ``left`` columns (and perhaps the last) to the left, others to the right.

    >>> print(text_table(["user", "rate"], [["orders", "1.90 MB/s"]]))
    user         rate
    orders  1.90 MB/s
    """
    lines = [header, *rows]
    on_the_left = {*range(left), *([len(header) - 1] if last_left else [])}
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in on_the_left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def sparkline(values: Sequence[float]) -> str:
    """Draw one bar per value, scaled to the largest; zero is the lowest bar.

    >>> sparkline([0, 1, 2, 4])
    '▁▃▅█'
    """
    most = max(values, default=0.0)
    if most <= 0:
        return _BARS[0] * len(values)
    top = len(_BARS) - 1
    return "".join(_BARS[round(max(0.0, value) / most * top)] for value in values)
