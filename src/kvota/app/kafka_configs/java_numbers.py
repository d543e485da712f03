"""Doubles as Java reads and writes them."""

import math
import re
from decimal import Decimal

_BLANKS = "".join(map(chr, range(0x21)))
_DOUBLE = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<nan>NaN)|(?P<infinity>Infinity)"
    r"|(?P<decimal>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(?P<hex>0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)"
)
# Between these Java writes no exponent.
_PLAIN_FROM, _PLAIN_BELOW = 1e-3, 1e7


def read_double(text: str) -> float | None:
    """The number that ``Double.parseDouble`` makes of it; None: it is none.

    >>> [read_double(text) for text in ("5d", " 1e-4 ", "0x1p4", "-Infinity", "1_000", "inf", "")]
    [5.0, 0.0001, 16.0, -inf, None, None, None]
    """
    found = _DOUBLE.fullmatch(text.strip(_BLANKS))
    if found is None:
        return None
    if found["nan"]:
        return math.nan
    if found["infinity"]:
        value = math.inf
    elif found["hex"]:
        try:
            value = float.fromhex(found["hex"])
        except OverflowError:
            value = math.inf
    else:
        value = float(found["decimal"])
    return -value if found["sign"] == "-" else value


def write_double(value: float) -> str:
    """As ``Double.toString`` writes it.

    >>> [
    ...     write_double(value)
    ...     for value in (5.0, 1e7, 12345678.5, 0.0001, 0.001, 2.0**63, float("nan"))
    ... ]
    ['5.0', '1.0E7', '1.23456785E7', '1.0E-4', '0.001', '9.223372036854776E18', 'NaN']
    """
    if math.isnan(value):
        return "NaN"
    sign = "-" if math.copysign(1, value) < 0 else ""
    size = abs(value)
    if math.isinf(size):
        return f"{sign}Infinity"
    if size == 0:
        return f"{sign}0.0"
    if _PLAIN_FROM <= size < _PLAIN_BELOW:
        return f"{sign}{size!r}"
    _, digits, exponent = Decimal(repr(size)).normalize().as_tuple()
    first, *rest = map(str, digits)
    return f"{sign}{first}.{''.join(rest) or '0'}E{int(exponent) + len(rest)}"
