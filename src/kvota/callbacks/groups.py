"""Groups by names, prefixes and patterns, as properties say them.

Patterns are RE2's: whatever a pattern is, and whatever a client calls itself, matching takes time in proportion to the
name. With Python's ``re`` a client id of 32 KB can hold the whole process for seconds under a pattern as plain as
``.*a.*b``. Compiling holds the process, too, so a pattern is bounded, and so is what it becomes: sixteen times
``a{1,900}`` would take a second, at each start of each gateway.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from typing import Protocol

from kvota.model.errors import Fault
from kvota.model.plain_text import shortened


class Kind(Enum):
    """Of what the names are."""

    USER = "user"
    CLIENT_ID = "client id"
    TOPIC = "topic"


# How a property ends, and of what it speaks; none is the end of another.
USER_ENDINGS = dict.fromkeys((".users", ".user.prefixes", ".user.pattern"), Kind.USER)
CLIENT_ID_ENDINGS = dict.fromkeys(
    (".client.ids", ".client.id.prefixes", ".client.id.pattern"), Kind.CLIENT_ID
)
TOPIC_ENDINGS = dict.fromkeys((".topics", ".topic.prefixes", ".topic.pattern"), Kind.TOPIC)

# What a pattern and its program may take; either lets one compile for a fifth of a second at most.
PATTERN_CHARS_MAX = 4_096
_PROGRAM_BYTES_MAX = 128 * 1024
_SAID_CHARS_MAX = 200

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Pattern(Protocol):
    """A regular expression."""

    def fullmatch(self, text: str, /) -> object | None:
        """Something where it matches all of a text."""


@dataclass(slots=True)
class Names:
    """Which names belong: exact ones, those with a prefix, those that a pattern matches as a whole."""

    exact: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    pattern: Pattern | None = None

    @property
    def is_said(self) -> bool:
        """False where nothing was said of them."""
        return bool(self.exact or self.prefixes or self.pattern)

    def has(self, name: str) -> bool:
        """True where a name belongs."""
        return (
            name in self.exact
            or (bool(self.prefixes) and name.startswith(self.prefixes))
            or (self.pattern is not None and self.pattern.fullmatch(name) is not None)
        )


@dataclass(slots=True)
class Group:
    """Members are those whose user and whose client id both belong, where something is said of both."""

    name: str
    names: dict[Kind, Names] = field(default_factory=lambda: {kind: Names() for kind in Kind})

    def has(self, user: str, client_id: str) -> bool:
        """True for a member."""
        users, client_ids = self.names[Kind.USER], self.names[Kind.CLIENT_ID]
        if users.is_said and not users.has(user):
            return False
        if client_ids.is_said:
            return client_ids.has(client_id)
        return users.is_said


def read_groups(
    properties: Mapping[str, str], prefix: str, endings: Mapping[str, Kind]
) -> tuple[list[Group], list[Fault]]:
    """Read the groups of all properties that begin with ``prefix``, and what is wrong with these.

    The place of a fault is the name of its property.
    """
    groups: dict[str, Group] = {}
    faults: list[Fault] = []
    for key, value in properties.items():
        if not key.startswith(prefix):
            continue
        ending = next((one for one in endings if key.endswith(one)), None)
        name = key[len(prefix) : -len(ending)] if ending else ""
        if ending is None or not _NAME.fullmatch(name):
            faults.append(_no_group(key, prefix, endings))
            continue
        group = groups.setdefault(name, Group(name))
        problem = _take(group.names[endings[ending]], ending, value)
        if problem:
            faults.append(Fault(key, *problem))
    return list(groups.values()), faults


def _take(names: Names, ending: str, value: str) -> tuple[str, str] | None:
    """Take what a property says; returns what is wrong with it, and what to do."""
    if ending.endswith(".pattern"):
        try:
            names.pattern = _compiled(value)
        except ValueError as error:
            remedy = (
                "Correct it; look-ahead, look-behind and back-references are not taken. A repetition like {1,60} "
                "makes a pattern large: write + or *, or list names or prefixes."
            )
            return (
                f'"{shortened(value, _SAID_CHARS_MAX)}" is no regular expression: {error}',
                remedy,
            )
        except ImportError:
            return "patterns need the package google-re2", "Install kvota[gateway]."
        return None
    listed = tuple(part.strip() for part in value.split(",") if part.strip())
    if not listed:
        return f'"{value}" names nobody', "Write names with commas between."
    if ending.endswith(".prefixes"):
        names.prefixes = listed
    else:
        names.exact = frozenset(listed)
    return None


def _compiled(expression: str) -> Pattern:
    """A regular expression of RE2, which only those need who have patterns.

    Raises:
        ValueError: it is none, or too large a one; says why.
        ImportError: RE2 is not there.
    """
    import re2  # noqa: PLC0415

    if len(expression) > PATTERN_CHARS_MAX:
        msg = f"it has {len(expression):,} characters, and {PATTERN_CHARS_MAX:,} is the most"
        raise ValueError(msg)
    options = re2.Options()
    options.max_mem = _PROGRAM_BYTES_MAX
    options.log_errors = False  # they are said here
    try:
        compiled: Pattern = re2.compile(expression, options)
    except re2.error as error:
        raise ValueError(error.args[0].decode(errors="replace")) from None
    return compiled


def _no_group(key: str, prefix: str, endings: Iterable[str]) -> Fault:
    endings = tuple(endings)
    near = get_close_matches(f".{key.removeprefix(prefix).partition('.')[2]}", endings, n=1)
    hint = f"Did you mean {near[0]}? " if near else ""
    remedy = (
        f"{hint}It is {prefix}<name> and one of {', '.join(endings)}; a name has letters, "
        'digits, ".", "_" and "-".'
    )
    return Fault(key, "says nothing of a group", remedy)
