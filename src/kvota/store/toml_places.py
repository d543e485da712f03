"""A value of a TOML file stands on a line that ``tomllib`` does not tell; it is found here.

The scan runs only when a fault must be shown, and over a text that ``tomllib`` has accepted: it finds
its way and does not judge.
"""

import json
import re
import tomllib
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple, Protocol

KeyPath = tuple[str | int, ...]

# Every piece of valid TOML is one of these; a closing triple quote may have two quotes of text before it.
_TOKEN = re.compile(
    r"""
      (?P<blank>  [ \t\r]+ | \#[^\n]* )
    | (?P<mark>   [\[\]{},=\n] )
    | (?P<plain>  [^\s"'#\[\]{},=]+
                | \"{3} (?: \\. | [^\\] )*? \"{3,5}
                | '{3} .*? '{3,5}
                | " (?: \\. | [^"\\] )* "
                | ' [^']* ' )
    """,
    re.VERBOSE | re.DOTALL,
)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


class KnownPlaces(Protocol):
    """Where the values of a file stand that a person wrote."""

    def of(self, *path: str | int) -> str:
        """Return ``file:line`` (and perhaps the column) of a value, or of what encloses a missing one."""
        ...

    def named(self, *path: str | int) -> str:
        """Return the same with the path behind it, the place of a Fault."""
        ...


class Places:
    r"""The values of one TOML file stand at these places.

    A path is what leads to a value in the data of ``tomllib``: keys, and positions in arrays from 0.

    >>> places = Places("quotas.toml", '[[quota]]\nuser = "a"\n')
    >>> places.of("quota", 0, "user")
    'quotas.toml:2'
    >>> places.named("quota", 0, "client_id")
    'quotas.toml:1: quota[0].client_id'
    """

    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._text = text
        self._lines: dict[KeyPath, int] | None = None

    def of(self, *path: str | int) -> str:
        """Return ``file:line`` of a value, or of what encloses a missing one; the file if nothing does."""
        if self._lines is None:
            self._lines = _lines_of_paths(self._text)
        for length in range(len(path), 0, -1):
            line = self._lines.get(path[:length])
            if line is not None:
                return f"{self._file}:{line}"
        return self._file

    def named(self, *path: str | int) -> str:
        """Return ``file:line: quota[2].producer_byte_rate``, the place of a Fault."""
        return f"{self.of(*path)}: {path_text(path)}"


def path_text(path: KeyPath) -> str:
    """Return a path as people write it; keys that need quotes have them.

    >>> path_text(("quota", 2, "producer_byte_rate"))
    'quota[2].producer_byte_rate'
    >>> path_text(("kafka", "quota.window.num"))
    'kafka."quota.window.num"'
    """
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            key = step if _BARE_KEY.fullmatch(step) else json.dumps(step, ensure_ascii=False)
            text += f".{key}" if text else key
    return text


def _lines_of_paths(text: str) -> dict[KeyPath, int]:
    scan = _Scan(text)
    with suppress(RecursionError):  # nested deeper than people write: what was found is right
        scan.document()
    return scan.lines


class _Token(NamedTuple):
    kind: str  # "mark", "plain", or "end"
    text: str
    start: int


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        if match.lastgroup != "blank":
            yield _Token(str(match.lastgroup), match[0], match.start())
    while True:
        yield _Token("end", "", len(text))


class _Scan:
    """Walks once over a valid document, noting the line of every key, table and array element."""

    def __init__(self, text: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._text = text
        self._newlines = [match.start() for match in re.finditer("\n", text)]
        self._table_counts: dict[KeyPath, int] = {}  # of arrays of tables
        self._tokens = _tokens(text)
        self._token = next(self._tokens)

    def document(self) -> None:
        table: KeyPath = ()
        while self._token.kind != "end":
            if self._token.text == "\n":
                self._advance()
            elif self._token.text == "[":
                table = self._header()
            else:
                self._assignment(table)

    def _advance(self) -> None:
        self._token = next(self._tokens)

    def _line(self) -> int:
        return bisect_left(self._newlines, self._token.start) + 1

    def _header(self) -> KeyPath:
        line = self._line()
        is_array = self._text.startswith("[[", self._token.start)
        self._advance()
        if is_array:
            self._advance()
        *outer, last = self._key(end="]")
        self._advance()
        if is_array:
            self._advance()
        path: KeyPath = ()
        for key in outer:
            path = self._newest((*path, key))
            self.lines.setdefault(path, line)
        path = (*path, last)
        if is_array:
            number = self._table_counts.get(path, 0)
            self._table_counts[path] = number + 1
            self.lines.setdefault(path, line)
            path = (*path, number)
        self.lines[path] = line
        return path

    def _newest(self, path: KeyPath) -> KeyPath:
        """In a header the name of an array of tables means its newest table."""
        self.lines.setdefault(path, self._line())
        number = self._table_counts.get(path)
        return path if number is None else (*path, number - 1)

    def _key(self, *, end: str) -> list[str]:
        start = self._token.start
        while self._token.text != end and self._token.kind != "end":
            self._advance()
        return _key_parts(self._text[start : self._token.start])

    def _assignment(self, table: KeyPath) -> None:
        line = self._line()
        path = table
        for key in self._key(end="="):
            path = (*path, key)
            self.lines.setdefault(path, line)
        self._advance()
        self._value(path)

    def _value(self, path: KeyPath) -> None:
        if self._token.text == "[":
            self._array(path)
        elif self._token.text == "{":
            self._inline_table(path)
        else:
            while self._token.kind == "plain":  # a date and its time are two
                self._advance()

    def _array(self, path: KeyPath) -> None:
        self._advance()
        number = 0
        while self._token.text != "]" and self._token.kind != "end":
            if self._token.text in {"\n", ","}:
                self._advance()
            else:
                self.lines[*path, number] = self._line()
                self._value((*path, number))
                number += 1
        self._advance()

    def _inline_table(self, path: KeyPath) -> None:
        self._advance()
        while self._token.text != "}" and self._token.kind != "end":
            if self._token.text in {"\n", ","}:
                self._advance()
            else:
                self._assignment(path)
        self._advance()


def _key_parts(text: str) -> list[str]:
    if '"' not in text and "'" not in text:
        return [part.strip() for part in text.split(".")]
    parts = []
    inner: object = tomllib.loads(f"{text}=0")  # it knows the escapes
    while isinstance(inner, dict):
        key, inner = next(iter(inner.items()))
        parts.append(key)
    return parts
