"""The files that docs/commands.md says kvota writes."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "commands.md"

# In a name: words that stand for something, a part that may be anything, and one without a folder.
_PLACEHOLDER = re.compile(r"[A-Z]{3,}|\bN\b|…|\*")


def table_below(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, each its cells."""
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `") or line[:6] == "| the "]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def not_of_a_gateway(files: list[Path], folder: Path) -> list[str]:
    """Those of these files that no row of the table says a gateway writes."""
    names = [
        name
        for written, by, *_ in table_below("Files that kvota writes")
        if "`gateway`" in by or by == "all of these"
        for name in re.findall("`([^`]+)`", written)
    ]
    patterns = [re.compile(_pattern(name)) for name in names]
    relative = [str(file.relative_to(folder)) for file in files]
    return [name for name in relative if not any(each.fullmatch(name) for each in patterns)]


def _pattern(name: str) -> str:
    return "[^/]+".join(map(re.escape, _PLACEHOLDER.split(name)))
