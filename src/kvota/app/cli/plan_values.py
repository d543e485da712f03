"""Values of the options of ``kvota recommend``."""

import argparse
from collections.abc import Callable

from kvota.app.cli.durations import duration_ms
from kvota.model.quota_type import CONFIGURABLE_TYPES, FACTS, QuotaType, Unit
from kvota.model.units import parse_byte_rate, parse_percent, parse_rate

_PARSERS: dict[QuotaType, Callable[[str], float]] = {
    quota_type: {Unit.BYTES_PER_S: parse_byte_rate, Unit.PERCENT: parse_percent}.get(
        FACTS[quota_type].unit, parse_rate
    )
    for quota_type in CONFIGURABLE_TYPES
}


def capacity(text: str) -> tuple[QuotaType, float]:
    """Read a quota type and what there is of it per second.

    Raises:
        ArgumentTypeError: it is no such text.
    """
    quota_type, rate_per_s = floor(text)
    if rate_per_s <= 0:
        msg = f'"{text}": a capacity has to be above 0'
        raise argparse.ArgumentTypeError(msg)
    return quota_type, rate_per_s


def floor(text: str) -> tuple[QuotaType, float]:
    """Read a quota type and the least that is planned of it per second; 0: as little as is needed.

    Raises:
        ArgumentTypeError: it is no such text.
    """
    name, _, rate = text.partition("=")
    quota_type = next((known for known in _PARSERS if known == name.upper()), None)
    if not rate:
        msg = f'"{text}" names no quota type; write e.g. PRODUCE=20MB/s'
        raise argparse.ArgumentTypeError(msg)
    if quota_type is None:
        msg = f'"{text}": "{name}" is not one of {", ".join(_PARSERS)}; write e.g. PRODUCE=20MB/s'
        raise argparse.ArgumentTypeError(msg)
    try:
        rate_per_s = _PARSERS[quota_type](rate)
    except ValueError as error:
        msg = f'"{text}": {error}'
        raise argparse.ArgumentTypeError(msg) from error
    if "/" not in rate and "%" not in rate:
        msg = f'"{text}": "{rate}" has no unit of a rate; write e.g. PRODUCE=20MB/s or CONTROLLER_MUTATION=10/s'
        raise argparse.ArgumentTypeError(msg)
    return quota_type, rate_per_s


def hours(text: str) -> float:
    """Read a number of hours, or a time with its unit.

    Raises:
        ArgumentTypeError: it is neither.
    """
    try:
        found = float(text)
    except ValueError:
        found = duration_ms(text) / 3_600_000
    if not 0 <= found < float("inf"):
        msg = f'"{text}" is no number of hours from 0 on, e.g. 24'
        raise argparse.ArgumentTypeError(msg)
    return found


def count(text: str) -> int:
    """Read a whole number from 0 on.

    Raises:
        ArgumentTypeError: it is none.
    """
    if not (text.isascii() and text.isdecimal()):
        msg = f'"{text}" is not a whole number from 0 on'
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def weight(text: str) -> tuple[str, float]:
    """Read a name and its weight, above 0.

    Raises:
        ArgumentTypeError: it is no such text.
    """
    name, _, number = text.rpartition("=")
    try:
        found = float(number)
    except ValueError:
        found = 0.0
    if not name or not 0 < found < float("inf"):
        msg = f'"{text}" is not a weight above 0, e.g. orders=2'
        raise argparse.ArgumentTypeError(msg)
    return name, found


def percent(text: str) -> float:
    """Read a percentage; return it as a share.

    Raises:
        ArgumentTypeError: it is none.
    """
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if 0 < share < 0.01 and not text.endswith("%"):
        msg = f'"{text}" is a percentage below 1; write {float(text):.0%} or, if that is meant, {text}%'
        raise argparse.ArgumentTypeError(msg)
    if not 0 <= share < 100:
        msg = f'"{text}" is not a percentage, e.g. 20%'
        raise argparse.ArgumentTypeError(msg)
    return share


def part(text: str) -> float:
    """Read a percentage above 0 and below 100; return it as a share.

    Raises:
        ArgumentTypeError: it is none.
    """
    share = percent(text)
    if not 0 < share < 1:
        msg = f'"{text}" is not a part, above 0% and below 100%, e.g. 70%'
        raise argparse.ArgumentTypeError(msg)
    return share


def number(text: str) -> int:
    """Read a whole number from 1 on.

    Raises:
        ArgumentTypeError: it is none.
    """
    found = count(text)
    if not found:
        msg = f'"{text}" is not a whole number from 1 on'
        raise argparse.ArgumentTypeError(msg)
    return found
