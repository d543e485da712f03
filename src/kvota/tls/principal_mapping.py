"""Who a client is by its certificate: Kafka's ``ssl.principal.mapping.rules`` (KIP-371).

``RULE:pattern/replacement/`` with ``L`` or ``U`` behind it, and ``DEFAULT``, separated by commas; the first whose pattern
matches the whole name counts. Patterns and replacements mean what they mean to Java.
"""

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

DEFAULT_RULES = "DEFAULT"
_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_ONE_RULE = re.compile(_RULE)
_RULES = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_REFERENCE = re.compile(r"\\(.)|\$([0-9]+)|\$(.?)|([^\\$]+|\\)", re.DOTALL)
# What Java knows and Python reads as something else, or not at all.
_ONLY_JAVAS = re.compile(r"\\[QEpPRXhHGNkz]|\(\?<[a-zA-Z]|&&|\(\?[a-z]*[dU]")
# To Java a line ends with more characters: "." is none of them, and "$" stands before the last of them.
_END_BUT_LF = "\\r\\x85\\u2028\\u2029"
_JAVAS = {
    ".": f"[^\\n{_END_BUT_LF}]",
    "$": f"(?=(?:\\r\\n|(?<!\\r)\\n|[{_END_BUT_LF}])?\\Z)",
}
# An escaped character, a class, or one that means something else to Java.
_PATTERN_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[.$]", re.DOTALL)
_CHANGES_LINES = re.compile(r"\(\?[a-z]*[sm]")
_SHOWN_MAX = 200


class MappingError(ValueError):
    """The rules cannot be read; or none of them matches a name."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """``pattern`` None: DEFAULT; ``written``: as it stands in the rules."""

    pattern: "re.Pattern[str] | None" = None
    replacement: str = ""
    case: str = ""
    written: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        # As Java's replaceAll: each place at which the pattern is found, not only the whole.
        mapped = self.pattern.sub(lambda found: _expanded(self.replacement, found), name)
        if self.case == "L":
            return mapped.lower()
        return mapped.upper() if self.case == "U" else mapped


class PrincipalMapper:
    """Maps the name in a certificate to a principal's.

    Args:
        rules: as in ``ssl.principal.mapping.rules``.

    Raises:
        MappingError: they cannot be read; says which and why.
    """

    def __init__(self, rules: str = DEFAULT_RULES) -> None:
        self.text = rules
        self._rules = tuple(_parsed(rules))

    def __eq__(self, other: object) -> bool:
        """Same rules, same mapper."""
        return isinstance(other, PrincipalMapper) and self.text == other.text

    def __hash__(self) -> int:
        """By its rules."""
        return hash(self.text)

    def name_of(self, subject: str) -> str:
        """Return the principal's name, without ``User:`` before it.

        Raises:
            MappingError: no rule applies; a broker closes the connection then.
        """
        for rule in self._rules:
            name = rule.apply(subject)
            if name is not None:
                return name
        msg = f'no rule applies to "{subject[:_SHOWN_MAX]}"'
        raise MappingError(msg)


def _parsed(rules: str) -> Iterator[_Rule]:
    text, at = rules.strip(), 0
    while at <= len(text):
        # Java's find(): where nothing matches here, from the next character on.
        found = _RULES.search(text, at)
        if found is None:
            return
        rule = _rule(found[1])
        if rule is not None:
            yield rule
        at = found.end() + (found.end() == found.start())


def _rule(text: str) -> _Rule | None:
    found = _ONE_RULE.match(text)
    end = 0 if found is None else found.end()
    if found is None or end != len(text):
        msg = f'"{text}" is no rule: "{text[end:]}" cannot be read'
        raise MappingError(msg)
    if found[1] is not None:
        return _Rule()
    if found[2] is None:
        return None  # an empty one is passed over
    pattern = _compiled(found[2])
    _check_replacement(found[3], pattern)
    return _Rule(pattern, found[3], found[4], found[2])


def _compiled(pattern: str) -> "re.Pattern[str]":
    strange = _ONLY_JAVAS.search(pattern)
    if strange is not None:
        msg = f'the pattern "{pattern}" has "{strange[0]}", which only Java knows; write it with classes of characters, e.g. [A-Za-z]'
        raise MappingError(msg)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile(_as_java_reads(pattern), re.ASCII)
    except (re.error, FutureWarning, DeprecationWarning) as error:
        msg = f'the pattern "{pattern}" cannot be read: {error}'
        raise MappingError(msg) from error


def _as_java_reads(pattern: str) -> str:
    if _CHANGES_LINES.search(pattern):
        return pattern
    return _PATTERN_PART.sub(lambda part: _JAVAS.get(part[0], part[0]), pattern)


def _check_replacement(replacement: str, pattern: "re.Pattern[str]") -> None:
    """Where a broker would fail with each certificate it is said at once."""
    for found in _REFERENCE.finditer(replacement):
        if found[4] == "\\":
            msg = f'the replacement "{replacement}" ends in a backslash'
            raise MappingError(msg)
        if found[3] is not None:
            msg = f'the replacement "{replacement}" has a $ without a number; write \\$ for the character'
            raise MappingError(msg)
        if found[2] is not None and not pattern.groups and int(found[2][0]):
            msg = f'the replacement "{replacement}" names ${found[2]}, and the pattern has no group'
            raise MappingError(msg)


def _expanded(replacement: str, found: "re.Match[str]") -> str:
    """$n is group n, of as many digits as there are such groups; $n beyond the last group stays as it is."""
    groups = found.re.groups
    parts = []
    for each in _REFERENCE.finditer(replacement):
        literal, digits = each[1], each[2]
        if literal is not None:
            parts.append(literal)
        elif digits is None or int(digits[0]) > groups:
            parts.append(each[0])
        else:
            size = 1
            while size < len(digits) and int(digits[: size + 1]) <= groups:
                size += 1
            parts.append((found[int(digits[:size])] or "") + digits[size:])
    return "".join(parts)
