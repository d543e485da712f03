"""Texts of others, as they can be said anywhere: on one line, and no longer than is read."""

from collections.abc import Sequence


def shortened(text: str, chars_max: int) -> str:
    """The text, or as much of its beginning as fits with a sign that there is more.

    >>> shortened("analytics", 9), shortened("analytics", 5)
    ('analytics', 'anal…')
    """
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"


# A name of a client may have 32,767 bytes; so much of it tells it apart from others on a screen.
_NAME_CHARS_MAX = 100


def name_on_screen(name: str) -> str:
    r"""A name that somebody else has chosen: on one line, cut where it is long, nothing that a terminal obeys.

    >>> name_on_screen("app\x1b[2J")
    'app�[2J'
    """
    return on_one_line(shortened(name, _NAME_CHARS_MAX))


def on_one_line(text: str) -> str:
    r"""The text with a sign in place of whatever would end the line, or cannot be seen.

    >>> on_one_line('"}\n')
    '"}�'
    """
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


# So many of several names are said; the others are counted.
NAMED = 5


def some(names: Sequence[str]) -> str:
    """Some names, and how many more there are.

    >>> some(["a", "b"]), some("abcdefg"), some([])
    ('a, b', 'a, b, c, d, e and 2 more', 'none')
    """
    shown = ", ".join(names[:NAMED]) or "none"
    return f"{shown} and {len(names) - NAMED} more" if len(names) > NAMED else shown
