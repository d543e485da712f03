"""Writes tables for people's screens, 80 columns wide or as wide as the terminal."""

import shutil
from collections.abc import Collection, Iterable, Sequence
from math import inf

from kvota.app.cut_names import cut_apart, fair_shares
from kvota.app.text_width import columns_of, cut_between, filled_to, moved_to

_BARS = "▁▂▃▄▅▆▇█"
_GAP = "  "
_SCREEN = (80, 24)  # where there is no terminal
_INDENT = "    "
# So much of a name is shown, however little room there is.
_NAME_MIN = 8

Row = Sequence[str]


def screen_width() -> int:
    """Return how many columns a line may have: those of the terminal (or of ``$COLUMNS``), else 80."""
    return max(40, shutil.get_terminal_size(_SCREEN).columns)


def text_table(  # noqa: PLR0913  (all by name but the cells)
    header: Row,
    rows: Sequence[Row],
    *,
    left: int = 1,
    last_left: bool = False,
    keys: int | None = None,
    names: Collection[int] | None = None,
    below: Sequence[str] = (),
    width: int | None = None,
) -> str:
    """Align the first ``left`` columns (and perhaps the last) to the left, others to the right.

    A table wider than the screen goes on below itself with its further columns; names are cut where that is not enough.

    Args:
        header: a text per column.
        rows: the cells.
        left: so many columns are texts.
        last_left: the last one is, too.
        keys: so many columns say what a row is, and stand in each part (by default ``left``).
        names: these columns may be cut: others have chosen what stands there (by default the first ``left`` ones).
        below: a text for each row, under it.
        width: of the screen, if another one is meant.

    >>> print(text_table(["user", "rate"], [["orders", "1.90 MB/s"]]))
    user         rate
    orders  1.90 MB/s
    >>> print(text_table(["user", "rate", "limit"], [["orders", "1.90 MB/s", "none"]], width=18))
    user         rate
    orders  1.90 MB/s
    <BLANKLINE>
    user    limit
    orders   none
    """
    most, in_each = width or screen_width(), left if keys is None else keys
    rows = _with_names_cut(header, rows, in_each, range(left) if names is None else names, most)
    widths = _widths(header, rows)
    texts = {*range(left), *([len(header) - 1] if last_left else [])}
    parts = _parts(widths, in_each, most)
    blocks = []
    for part in parts:
        lines = [_line(header, part, widths, texts)]
        for number, row in enumerate(rows):
            lines.append(_line(row, part, widths, texts))
            if below and part is parts[-1]:
                lines += wrapped(below[number], indent=_INDENT, width=width)
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def grouped_table(header: Row, groups: Iterable[tuple[str, Sequence[Row]]]) -> str:
    """Write a heading above the rows of each group; all columns are numbers.

    >>> print(grouped_table(["limit", "over"], [("alice", [["2 MB/s", "1%"], ["none", "0%"]])]))
    <BLANKLINE>
       limit  over
    alice
      2 MB/s    1%
        none    0%
    """
    listed = list(groups)
    indented = [[f"{_GAP}{row[0]}", *row[1:]] for _, rows in listed for row in rows]
    widths = _widths(header, indented)
    every = range(len(header))
    lines = ["", _line(header, every, widths, set())]
    of_row = iter(indented)
    for heading, rows in listed:
        lines += wrapped(heading)
        lines += [_line(next(of_row), every, widths, set()) for _ in rows]
    return "\n".join(lines)


def wrapped(text: str, *, indent: str = "", width: int | None = None) -> list[str]:
    """Break a text into lines that fit; of a word that is wider than a line the middle is left out.

    >>> wrapped("user analytics-of-the-north", indent="  ", width=18)
    ['  user', '    analyti…-north']
    """
    most = width or screen_width()
    lines, line = [], indent
    for word in text.split(" "):
        room = most - columns_of(line) - 1
        if not line.strip():
            line += cut_between(word, room + 1)
        elif columns_of(word) <= room:
            line += f" {word}"
        else:
            lines.append(line.rstrip())
            line = indent + _GAP
            line += cut_between(word, most - len(line))
    return [*lines, line] if line.strip() else lines


def hidden(shown: int, of: int, what: str) -> str:
    """Say that there is more than is shown; empty if there is not.

    >>> hidden(2, 14, "lines"), hidden(2, 2, "lines")
    ('2 of 14 lines shown; --top 14 shows all', '')
    """
    return "" if shown >= of else f"{shown:,} of {of:,} {what} shown; --top {of} shows all"


def sparkline(values: Sequence[float]) -> str:
    """Draw one bar per value, scaled to the largest; zero, and what is no number, is the lowest bar.

    >>> sparkline([0, 1, 2, 4])
    '▁▃▅█'
    """
    heights = [value if 0 < value < inf else 0.0 for value in values]
    most = max(heights, default=0.0)
    if most <= 0:
        return _BARS[0] * len(values)
    top = len(_BARS) - 1
    return "".join(_BARS[round(height / most * top)] for height in heights)


def _with_names_cut(
    header: Row, rows: Sequence[Row], keys: int, names: Collection[int], most: int
) -> Sequence[Row]:
    """Cut names where a part of the table is wider than the screen: one has the keys, and one column more."""
    widths = _widths(header, rows)
    least = {column: max(_NAME_MIN, columns_of(header[column])) for column in names}
    of_keys = [column for column in names if column < keys]
    beside = [
        min(widths[column], most // 4) if column in least else widths[column]
        for column in range(keys, len(header))
    ]
    taken = sum(widths[column] for column in range(keys) if column not in least)
    taken += len(_GAP) * (keys - 1)
    # Of numbers nothing is left out; beside very wide ones names have half of the screen nevertheless.
    room = max(most // 2, most - len(_GAP) - max(beside, default=0)) - taken
    may_have = dict(
        zip(of_keys, fair_shares([widths[column] for column in of_keys], room), strict=True)
    )
    taken += sum(max(least[column], share) for column, share in may_have.items())
    may_have |= {column: most - taken - len(_GAP) for column in least if column >= keys}
    cut = {
        column: cut_apart([row[column] for row in rows], columns)
        for column in least
        if (columns := max(least[column], may_have[column])) < widths[column]
    }
    return [
        [cut[column][cell] if column in cut else cell for column, cell in enumerate(row)]
        for row in rows
    ]


def _widths(header: Row, rows: Sequence[Row]) -> list[int]:
    return [
        max(columns_of(line[column]) for line in (header, *rows)) for column in range(len(header))
    ]


def _parts(widths: Sequence[int], keys: int, most: int) -> list[Sequence[int]]:
    """Share the columns out: each part has the keys, and as many others as fit."""
    parts: list[Sequence[int]] = []
    part = list(range(keys))
    used = start = sum(widths[:keys]) + len(_GAP) * (keys - 1)
    for column in range(keys, len(widths)):
        needed = len(_GAP) + widths[column]
        if used + needed > most and len(part) > keys:
            parts.append(part)
            part, used = list(range(keys)), start
        part.append(column)
        used += needed
    return [*parts, part]


def _line(cells: Row, columns: Sequence[int], widths: Sequence[int], texts: set[int]) -> str:
    return _GAP.join(
        (filled_to if column in texts else moved_to)(cells[column], widths[column])
        for column in columns
    ).rstrip()
