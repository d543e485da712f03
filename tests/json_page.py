"""The keys of commands' JSON, and those that docs/record.md has for them."""

import re
from pathlib import Path

_PAGE = (Path(__file__).parents[1] / "docs" / "record.md").read_text(encoding="utf-8")
_KEY = re.compile("[a-z0-9_]+")


def keys_of(said: object) -> set[str]:
    """All keys of an answer, of what lies within it, too."""
    if isinstance(said, dict):
        return set(said).union(*map(keys_of, said.values()))
    return set().union(*map(keys_of, said)) if isinstance(said, list) else set()


def not_on_the_page(said: object, *commands: str) -> set[str]:
    """Keys of an answer that are not in the lines of these commands; names of quota types are values."""
    words = {"schema"}
    for command in commands:
        (line,) = (line for line in _PAGE.splitlines() if line.startswith(f"| `{command}`"))
        words |= set(re.findall(f"`({_KEY.pattern})`", line))
    return {key for key in keys_of(said) if _KEY.fullmatch(key)} - words
