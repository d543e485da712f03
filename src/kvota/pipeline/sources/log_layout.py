"""How a line of a log begins: a log4j pattern becomes an expression that finds the time and the message. Pure."""

import re
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from kvota.model.errors import UsageError

# As Kafka's own log4j files have it.
KAFKAS_PATTERN = "[%d] %p %m (%c)%n"

_ISO = "yyyy-MM-dd HH:mm:ss,SSS"
# The names that log4j gives to formats. A comma stands for a full stop as well, and a space for a T.
_FORMATS = {
    "": _ISO,
    "DEFAULT": _ISO,
    "ISO8601": _ISO,
    "ISO8601_PERIOD": _ISO,
    "DATE": "dd MMM yyyy HH:mm:ss,SSS",
    "ISO8601_OFFSET_DATE_TIME_HH": _ISO + "X",
    "ISO8601_OFFSET_DATE_TIME_HHMM": _ISO + "X",
    "ISO8601_OFFSET_DATE_TIME_HHCMM": _ISO + "X",
    "UNIX_MILLIS": "UNIX_MILLIS",
}
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LETTERS = {
    "yyyy": r"(?P<year>\d{4})",
    "uuuu": r"(?P<year>\d{4})",
    "MM": r"(?P<month>\d\d)",
    "MMM": f"(?P<month>{'|'.join(MONTHS)})",
    "dd": r"(?P<day>\d\d)",
    "HH": r"(?P<hour>\d\d)",
    "mm": r"(?P<minute>\d\d)",
    "ss": r"(?P<second>\d\d)",
    "S": r"(?P<fraction>\d{1,9})",
    "X": r"(?P<offset>Z|[+-]\d\d(?::?\d\d)?)",
}
_NEEDED = ("year", "month", "day", "hour", "minute", "second")
_TOKEN = re.compile(r"%(?:-?\d*(?:\.-?\d+)?)?([A-Za-z]+)((?:\{[^}]*\})*)|%%")
_BRACES = re.compile(r"\{([^}]*)\}")
_FORMAT_TOKEN = re.compile(r"'([^']*)'|([A-Za-z])\2*|.")
_WORDS = {"p": r"[A-Z]+ *", "level": r"[A-Z]+ *", "le": r"[A-Z]+ *"}
_MESSAGES = ("m", "msg", "message")
_ENDS = ("n",)


@dataclass(frozen=True, slots=True)
class Layout:
    """How lines of a log begin.

    Attributes:
        head: matches from the start of a line up to the message; its groups are parts of the time.
        has_offset: the times say how far they are from UTC.
        zone: that the pattern itself names; else None.
    """

    head: re.Pattern[bytes]
    has_offset: bool
    zone: ZoneInfo | None = None

    @property
    def needs_zone(self) -> bool:
        """Return whether somebody has to say in which zone the times are."""
        return not self.has_offset and self.zone is None


def layout_of(pattern: str = KAFKAS_PATTERN) -> Layout:
    """Return what a log4j pattern stands for.

    Raises:
        UsageError: it has no time or no message, or the time is one that nobody could read.
    """
    expression: list[str] = []
    zone: ZoneInfo | None = None
    has_time = has_message = False
    position = 0
    for token in _TOKEN.finditer(pattern):
        expression.append(re.escape(pattern[position : token.start()]))
        position = token.end()
        name = token[1]
        if name in {"d", "date"} and not has_time:
            braces = _BRACES.findall(token[2])
            expression.append(_time(braces[0] if braces else "", pattern))
            zone = _zone(braces[1], pattern) if len(braces) > 1 else None
            has_time = True
        elif name in _MESSAGES:
            has_message = True
            break
        elif name is None:
            expression.append("%")
        elif name not in _ENDS:
            expression.append(_WORDS.get(name, ".*?"))
    if not (has_time and has_message):
        raise _refusal(pattern, "has no time (%d) before a message (%m)")
    head = re.compile("".join(expression).encode())
    is_absolute = not {"offset", "epoch_ms"}.isdisjoint(head.groupindex)
    return Layout(head, is_absolute, zone)


def zone_of(name: str) -> ZoneInfo:
    """Return a zone by its name.

    Raises:
        UsageError: there is none of that name.
    """
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError) as error:  # a missing key is a LookupError
        msg = f'"{name}" is no time zone. Write e.g. UTC or Europe/Berlin'
        raise UsageError(msg) from error


def _time(name: str, pattern: str) -> str:
    text = _FORMATS.get(name, name)
    if text == "UNIX_MILLIS":
        return r"(?P<epoch_ms>\d{13})"
    expression = "".join(_time_part(token, pattern) for token in _FORMAT_TOKEN.finditer(text))
    missing = [part for part in _NEEDED if f"(?P<{part}>" not in expression]
    if missing:
        raise _refusal(pattern, f"has times without {', '.join(missing)}")
    return expression


def _time_part(token: re.Match[str], pattern: str) -> str:
    text = token[0]
    if token[2] is None:
        plain = text if token[1] is None else token[1]
        return {" ": "[ T]", "T": "[ T]", ",": "[,.]", ".": "[,.]"}.get(plain, re.escape(plain))
    if text == "T":
        return "[ T]"
    letters = "S" if set(text) == {"S"} else "X" if set(text) <= set("XxZ") else text
    if letters not in _LETTERS:
        raise _refusal(pattern, f'has "{text}" in its times, which is not read here')
    return _LETTERS[letters]


def _zone(name: str, pattern: str) -> ZoneInfo:
    try:
        return zone_of(name)
    except UsageError as error:
        raise _refusal(pattern, f'has the zone "{name}", which is not known') from error


def _refusal(pattern: str, fault: str) -> UsageError:
    return UsageError(
        f'--log-pattern: "{pattern}" {fault}. Copy the layout pattern of the appender from the broker\'s '
        f'log4j file; Kafka\'s own is "{KAFKAS_PATTERN}"'
    )
