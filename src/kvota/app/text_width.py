"""How many columns a text takes on a terminal, and cutting it to that many."""

from unicodedata import category, combining, east_asian_width

_CUT = "…"
_WIDE = frozenset("WF")
# Marks that stand on the letter before them, and what is not seen at all.
_NO_COLUMN = frozenset({"Mn", "Me", "Cf"})


def columns_of(text: str) -> int:
    r"""The columns of a text on one line: two for a wide character, none for a mark on another one.

    >>> columns_of("app"), columns_of("日本"), columns_of("e\N{COMBINING ACUTE ACCENT}")
    (3, 4, 1)
    """
    return len(text) if text.isascii() else sum(map(_columns, text))


def cut_to(text: str, columns: int) -> str:
    """The text, or as much of its beginning as fits with a sign that there is more.

    >>> cut_to("analytics", 9), cut_to("analytics", 5), cut_to("日本語", 4)
    ('analytics', 'anal…', '日…')
    """
    if columns_of(text) <= columns:
        return text
    room, end = columns - 1, 0
    for end, char in enumerate(text):  # noqa: B007  (where it stops)
        room -= _columns(char)
        if room < 0:
            break
    return text[:end] + _CUT if columns > 0 else ""


def cut_between(text: str, columns: int) -> str:
    """The text, or as much of its beginning and its end as fits with a sign that there is more between them.

    >>> cut_between("shipping-eu-1", 8), cut_between("日本語の", 6)
    ('ship…u-1', '日…の')
    """
    if columns_of(text) <= columns:
        return text
    begin = cut_to(text, columns // 2 + 1)
    room, start = columns - columns_of(begin), len(text)
    while start and _columns(text[start - 1]) <= room:
        start -= 1
        room -= _columns(text[start])
    while start < len(text) and not _columns(text[start]):  # a mark on what is cut away
        start += 1
    return begin + text[start:]


def filled_to(text: str, columns: int) -> str:
    """The text with blanks behind it.

    >>> filled_to("日本", 6) + "|"
    '日本  |'
    """
    return text + " " * (columns - columns_of(text))


def moved_to(text: str, columns: int) -> str:
    """The text with blanks before it.

    >>> moved_to("日本", 6)
    '  日本'
    """
    return " " * (columns - columns_of(text)) + text


def _columns(char: str) -> int:
    if east_asian_width(char) in _WIDE:
        return 2
    return 0 if combining(char) or category(char) in _NO_COLUMN else 1
