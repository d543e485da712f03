"""Amounts and times as people write them, in and out.

In: ``8MB/s``, ``5MiB/s``, ``10/s``, ``1h30m``, or a bare number. Out: the same, never without a unit.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from math import isfinite

from kvota.model.suggested_units import (
    suggested_byte_rate,
    suggested_bytes,
    suggested_duration,
    suggested_rate,
)

# Exact case: "Mb" would be megabits to the person who writes it.
_BYTE_UNITS = {
    "": 1,
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_BYTE_RATE, _SIZE = '"8MB/s"', '"64MiB"'
_TIME_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)\s*(/\s*s)?\s*")
_TIME = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d))+")
_TIME_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")


def parse_byte_rate(text: str) -> float:
    """Bytes per second from ``8MB/s``, ``5MiB/s``, ``1000``.

    Raises:
        ValueError: not such a text; says what was expected.

    >>> parse_byte_rate("8MB/s")
    8000000.0
    """
    match = _NUMBER.fullmatch(text)
    if match is not None and match[2] and match[2] in _BYTE_UNITS and not match[3]:
        meant = suggested_byte_rate(text) or _BYTE_RATE
        msg = f'"{text}" is a size, not a byte rate; write e.g. {meant}'
        raise ValueError(msg)
    example = f'{_BYTE_RATE} or "512KiB/s"'
    return _parse_amount(text, _BYTE_UNITS, "a byte rate", suggested_byte_rate, example)


def parse_bytes(text: str) -> int:
    """Bytes from ``64MiB``, ``1GB`` or ``1000``.

    >>> parse_bytes("64MiB")
    67108864
    """
    if "/" in text:
        msg = f'"{text}" is a rate, not a size; write e.g. {suggested_bytes(text) or _SIZE}'
        raise ValueError(msg)
    return int(_parse_amount(text, _BYTE_UNITS, "a size", suggested_bytes, _SIZE))


def parse_rate(text: str) -> float:
    """Things per second from ``10/s`` or ``10``.

    >>> parse_rate("0.5/s")
    0.5
    """
    return _parse_amount(text, {"": 1}, "a rate", suggested_rate, '"10/s"')


def parse_percent(text: str) -> float:
    """Percent of one thread from ``20%`` or ``20``; 250 % are two threads and a half.

    >>> parse_percent("12.5%")
    12.5
    """
    example = '"20%"'
    amount = text.rstrip().removesuffix("%")
    return _parse_amount(amount, {"": 1}, "a percentage", lambda _: None, example, shown=text)


def parse_duration_ms(text: str) -> int:
    """Milliseconds from ``30s``, ``1h30m``, ``250ms``.

    >>> parse_duration_ms("1h30m")
    5400000
    """
    compact = text.replace(" ", "")
    if not _TIME.fullmatch(compact):
        instead = suggested_duration(text) or '"30s" or "1h30m"'
        msg = f'"{text}" is not a time; write e.g. {instead}'
        raise ValueError(msg)
    return round(
        sum(float(number) * _TIME_UNITS_MS[unit] for number, unit in _TIME_PART.findall(compact))
    )


def _parse_amount(
    text: str,
    units: dict[str, int],
    expected: str,
    suggested: Callable[[str], str | None],
    example: str,
    *,
    shown: str | None = None,
) -> float:
    """What was meant is looked for only where it is not what is ``expected``."""
    match = _NUMBER.fullmatch(text)
    shown = text if shown is None else shown
    if match is None or match[2] not in units:
        msg = f'"{shown}" is not {expected}; write e.g. {suggested(text) or example}'
        raise ValueError(msg)
    value = float(match[1]) * units[match[2]]
    if not isfinite(value):
        msg = f'"{shown}" is too large for {expected}'
        raise ValueError(msg)
    return value


def format_bytes(value: float) -> str:
    """Bytes with a decimal unit and three figures.

    >>> format_bytes(1_900_000)
    '1.90 MB'
    """
    size = abs(value)
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if size >= factor * 0.9995:
            return f"{_three_figures(value / factor)} {unit}"
    return f"{value:.0f} B"


def format_byte_rate(value: float) -> str:
    """Bytes per second with a unit.

    >>> format_byte_rate(8e6)
    '8.00 MB/s'
    """
    return f"{format_bytes(value)}/s"


def format_rate(value: float) -> str:
    """Things per second.

    >>> format_rate(5)
    '5.00 /s'
    """
    return f"{_three_figures(value)} /s"


def format_percent(value: float) -> str:
    """Percent of one thread.

    >>> format_percent(12.5)
    '12.5 %'
    """
    return f"{_three_figures(value)} %"


def format_duration_ms(value: float) -> str:
    """Milliseconds as people read them.

    >>> format_duration_ms(11_900)
    '11.9 s'
    """
    if value < 1000:
        return f"{_three_figures(value) if value % 1 else format(value, '.0f')} ms"
    if value < 60_000:
        return f"{_three_figures(value / 1000)} s"
    if not isfinite(value):  # of an amount that is no number
        return "no end" if value > 0 else "unknown"
    minutes, seconds = divmod(round(value / 1000), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s"


def format_moment(time_us: int, *, between: str = " ", until: str = "seconds") -> str:
    """Return a time (Unix microseconds) for people, UTC; one that no calendar has as it is.

    >>> format_moment(1_900_000_000_000_000), format_moment(2**63 - 1)
    ('2030-03-17 17:46:40', '9223372036854775807 us')
    """
    try:
        moment = datetime.fromtimestamp(time_us // 1_000_000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_us} us"
    return moment.replace(tzinfo=None).isoformat(between, until)


def _three_figures(value: float) -> str:
    size = abs(value)
    if size >= 99.95:
        return f"{value:.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}"
