"""Durations as Java's ``Duration.parse`` takes them: days to nanoseconds, no weeks, months or years."""

import re

_DURATION = re.compile(
    r"([-+]?)P(?:([-+]?[0-9]+)D)?(T(?:([-+]?[0-9]+)H)?(?:([-+]?[0-9]+)M)?(?:([-+]?[0-9]+)(?:[.,]([0-9]{0,9}))?S)?)?",
    re.IGNORECASE,
)
# Java's own bound is 2**63 seconds; beyond a few centuries nothing can be meant.
_MS_MAX = 2**53


def parse_iso_duration_ms(text: str) -> int:
    """Return milliseconds (cut, not rounded); negative ones are Java's, too.

    Raises:
        ValueError: no such duration.

    >>> [parse_iso_duration_ms(text) for text in ("PT5M", "p1dt2h", "PT1,5S", "PT0S", "-PT1M")]
    [300000, 93600000, 1500, 0, -60000]
    """
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.group(2, 4, 5, 6)) or match.group(3) in {"T", "t"}:
        msg = f'"{text}" is not an ISO-8601 duration of days to nanoseconds; write e.g. "PT5M"'
        raise ValueError(msg)
    sign, days, _, hours, minutes, seconds, fraction = match.groups()
    nanos = int((fraction or "").ljust(9, "0"))
    if (seconds or "").startswith("-"):
        nanos = -nanos
    whole = (
        int(days or 0) * 86_400
        + int(hours or 0) * 3_600
        + int(minutes or 0) * 60
        + int(seconds or 0)
    )
    total_ms = (
        int((whole * 10**9 + nanos) / 10**6) if not whole else whole * 1000 + int(nanos / 10**6)
    )
    if abs(total_ms) > _MS_MAX:
        msg = f'"{text}" is longer than any duration that can be meant; write e.g. "PT5M"'
        raise ValueError(msg)
    return -total_ms if sign == "-" else total_ms
