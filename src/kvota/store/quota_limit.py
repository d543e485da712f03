"""A limit that a person wrote becomes a number and a text again, by AlterClientQuotas' rules."""

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from math import isfinite
from typing import NamedTuple

from kvota.model.client_quotas import CONNECTION_RATE_KEY, KEYS, PRODUCER_IDS_KEY, Number
from kvota.model.quota_type import BYTE_RATE_TYPES, FACTS, TYPE_OF_KEY, QuotaType, Unit
from kvota.model.suggested_units import suggested_byte_rate, suggested_rate
from kvota.model.units import parse_byte_rate, parse_percent, parse_rate

# This is Kafka's LONG as a double: 2^63 itself passes, as on a broker.
_BYTE_RATE_MAX = float(2**63 - 1)

# This is Kafka's INT.
_CONNECTIONS_MAX = 2**31 - 1

# Kafka forgives this much above a whole number, and nothing below one.
_FRACTION_MAX = 1e-6

_EXAMPLE_OF_BYTE_RATE = 'Write e.g. "8MB/s", "512KiB/s", or a number of bytes per second.'
_NO_LIMIT = "Leave the quota out where there shall be no limit."
_EXAMPLE_OF_RATE = 'Write e.g. "5/s", or a number per second.'
_EXAMPLE_OF_IDS = (
    "Write e.g. 100: new producer ids in each window (producer.id.quota.window.size.seconds)."
)
_EXAMPLE_OF_PERCENT = 'Write e.g. "20%", or a number: percent of one thread.'

_DECIMAL_UNITS = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("KB", 10**3), ("B", 1))
_BINARY_UNITS = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


class _Way(NamedTuple):
    """How limits of a unit are written.

    Attributes:
        name: what such a text is.
        parse: reads it.
        suggested: what was probably meant by another one.
        example: a sentence.
        suffix: behind the number, for units without prefixes.
    """

    name: str
    parse: Callable[[str], float]
    suggested: Callable[[str], str | None]
    example: str
    suffix: str = ""


_RATE = _Way("rate", parse_rate, suggested_rate, _EXAMPLE_OF_RATE, "/s")
_WAYS = {
    Unit.BYTES_PER_S: _Way(
        "byte rate", parse_byte_rate, suggested_byte_rate, _EXAMPLE_OF_BYTE_RATE
    ),
    Unit.PERCENT: _Way("percentage", parse_percent, lambda _: None, _EXAMPLE_OF_PERCENT, "%"),
}


class LimitError(ValueError):
    """No quota can have this limit; the error tells what is wrong, and what to write instead."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}. {remedy}")
        self.problem = problem
        self.remedy = remedy


def parse_value(key: str, written: object) -> float:
    """Return the value of one of Kafka's keys.

    Raises:
        LimitError: as ``parse_limit``; connection_creation_rate is a whole number a second, producer_ids_rate
            any number per window.
    """
    if key == PRODUCER_IDS_KEY:
        return _parse_ids(written)
    if key != CONNECTION_RATE_KEY:
        return parse_limit(TYPE_OF_KEY[key], written)
    shown = _as_written(written)
    try:
        rate = parse_rate(written) if isinstance(written, str) else _plain_number(written)
    except ValueError:
        rate = 0.0
    if not 1 <= rate <= _CONNECTIONS_MAX or rate % 1:
        problem = f"{shown} is not a whole number of connections a second"
        raise LimitError(problem, _EXAMPLE_OF_RATE)
    return rate


def _parse_ids(written: object) -> float:
    try:
        rate = float(written) if isinstance(written, str) else _plain_number(written)
    except (ValueError, OverflowError):
        rate = 0.0
    if not 0 < rate < float("inf"):
        problem = f"{_as_written(written)} is not a number of new producer ids above 0"
        raise LimitError(problem, _EXAMPLE_OF_IDS)
    return rate


def unreachable_value(key: str, value: float) -> float:
    """Return NaN or infinity, which hold nobody back and come before quotas of lower levels.

    Raises:
        LimitError: a broker does not take it for this key.
    """
    if value != value or (value > 0 and KEYS[key].number is Number.DOUBLE):  # noqa: PLR0124
        return value
    problem = f"{value} is no limit of {key}"
    raise LimitError(problem, _NO_LIMIT)


def value_text(key: str, value: float) -> str:
    """Return the shortest text that ``parse_value`` reads as exactly this value."""
    if key == PRODUCER_IDS_KEY:
        return _figures(value)
    if key == CONNECTION_RATE_KEY:
        return f"{_figures(value)}/s"
    return limit_text(TYPE_OF_KEY[key], value)


def check_value(key: str, value: float) -> None:
    """Refuse a value that a file that people write cannot have.

    Raises:
        LimitError: such a value.
    """
    if key in {CONNECTION_RATE_KEY, PRODUCER_IDS_KEY}:
        parse_value(key, value)
    else:
        check_limit(TYPE_OF_KEY[key], value)


def parse_limit(quota_type: QuotaType, written: object) -> float:
    """Return the limit in units per second.

    Raises:
        LimitError: not a number or text of the quota's unit, or a value that Kafka refuses.

    >>> parse_limit(QuotaType.PRODUCE, "8MB/s")
    8000000.0
    """
    shown = _as_written(written)
    try:
        limit = _number(quota_type, written)
    except OverflowError:
        problem = f"{shown} is too large"
        raise LimitError(problem, _NO_LIMIT) from None
    except ValueError:
        way = _way(quota_type)
        if isinstance(written, str) and _is_negative(way, written):
            check_limit(quota_type, -1.0, shown=shown)
        problem = f"{shown} is not a {way.name}"
        meant = way.suggested(written) if isinstance(written, str) else None
        remedy = f"Write {meant}." if meant else _example(quota_type)
        raise LimitError(problem, remedy) from None
    check_limit(quota_type, limit, shown=shown)
    return limit


def check_limit(quota_type: QuotaType, limit: float, *, shown: str | None = None) -> None:
    """Refuse what AlterClientQuotas refuses, and NaN and infinity, which limit nothing.

    Raises:
        LimitError: such a value.
    """
    shown = shown or repr(limit)
    is_byte_rate = quota_type in BYTE_RATE_TYPES
    remedy = _example(quota_type)
    if not isfinite(limit):
        problem = f"{shown} is not a finite number"
        remedy = _NO_LIMIT
    elif limit <= 0:
        problem = f"{shown} is not above 0"
        remedy = "A quota cannot forbid everything: write a small limit, or leave the quota out."
    elif is_byte_rate and limit > _BYTE_RATE_MAX:
        problem = f"{shown} is more than 2^63 bytes per second"
        remedy = _NO_LIMIT
    elif is_byte_rate and limit % 1 > _FRACTION_MAX:
        problem = f"{shown} is not a whole number of bytes per second"
        remedy = f'Write e.g. "{limit_text(quota_type, float(round(limit) or 1))}".'
    else:
        return
    raise LimitError(problem, remedy)


@lru_cache(maxsize=4096)  # a file has the same few limits again and again
def limit_text(quota_type: QuotaType, limit: float) -> str:
    """Return the shortest text with a unit that ``parse_limit`` reads as exactly this limit.

    >>> limit_text(QuotaType.PRODUCE, 1_500_000.0), limit_text(QuotaType.FETCH, 1_048_576.0)
    ('1.5MB/s', '1MiB/s')
    >>> limit_text(QuotaType.CONTROLLER_MUTATION, 0.5)
    '0.5/s'
    >>> limit_text(QuotaType.REQUEST, 12.5)
    '12.5%'
    """
    if quota_type not in BYTE_RATE_TYPES:
        return f"{_figures(limit)}{_way(quota_type).suffix}"
    texts = [f"{_figures(limit / size)}{unit}/s" for unit, size in _DECIMAL_UNITS + _BINARY_UNITS]
    return min((text for text in texts if parse_byte_rate(text) == limit), key=len)


def _number(quota_type: QuotaType, written: object) -> float:
    if isinstance(written, str):
        return _way(quota_type).parse(written)
    return _plain_number(written)


def _plain_number(written: object) -> float:
    if isinstance(written, int | float) and not isinstance(written, bool):
        return float(written)
    msg = "neither a number nor a text"
    raise ValueError(msg)


def _is_negative(way: "_Way", written: str) -> bool:
    amount = written.strip()
    if not amount.startswith("-"):
        return False
    with suppress(ValueError):
        way.parse(amount[1:])
        return True
    return False


def _as_written(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _example(quota_type: QuotaType) -> str:
    return _way(quota_type).example


def _way(quota_type: QuotaType) -> "_Way":
    return _WAYS.get(FACTS[quota_type].unit, _RATE)


def _figures(number: float) -> str:
    return str(int(number)) if number.is_integer() and number < 2**63 else repr(number)
