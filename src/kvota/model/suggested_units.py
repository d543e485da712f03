"""What was meant by an amount or a time that is written otherwise than kvota reads it.

Each function returns what to write instead, in quotes, or None where that cannot be told.
"""

import re

_TIME_IN_WORDS = re.compile(
    r"([0-9]+(?:\.[0-9]+)?) *(?:(ms|milli|millisecond)|(s|sec|second)|(m|min|minute)|(h|hr|hour)|(d|day)|(w|week))?s?",
    re.IGNORECASE,
)
_TIME_UNITS = ("ms", "s", "m", "h", "d")
_AMOUNT = re.compile(
    r"(?P<number>[0-9][0-9_,]*(?:\.[0-9]+)?)\s*(?P<unit>[A-Za-z]*?)\s*"
    r"(?:(?:/|\s+per\s+|\s+a\s+|(?P<bits>(?<=[bB])ps))\s*(?P<time>[A-Za-z]*))?"
)
_THOUSANDS = re.compile(r"[0-9]{1,3}(?:[,_][0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?")
_BYTE_WORD = re.compile(
    r"(k|m|g|t)?(?:(i)?(?:b|bytes?)?|(?:ilo|ega|iga|era)bytes?|(ibi|ebi)bytes?)", re.IGNORECASE
)
_BIT_WORD = re.compile(r"(k|m|g|t|kilo|mega|giga|tera)?bits?", re.IGNORECASE)
# With a small b a unit of bits to some, of bytes to most.
_EITHER_WORD = re.compile(r"[kKMGT]b")
_SECONDS_OF = {
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3_600),
    **dict.fromkeys(("d", "day", "days"), 86_400),
}
_FACTORS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def suggested_duration(text: str) -> str | None:
    """A time in words, or without its unit.

    >>> suggested_duration("30 days"), suggested_duration("2 weeks"), suggested_duration("5")
    ('"30d"', '"14d"', '"5s"')
    >>> suggested_duration("soon")
    """
    match = _TIME_IN_WORDS.fullmatch(text.strip())
    if match is None:
        return None
    number, *units = match.groups()
    if units.pop():
        return f'"{_figures(float(number) * 7)}d"'
    place = next((place for place, found in enumerate(units) if found), None)
    return f'"{number}{"s" if place is None else _TIME_UNITS[place]}"'


def suggested_bytes(text: str) -> str | None:
    """A size with another unit, or with a time behind it.

    >>> suggested_bytes("10 gigabytes"), suggested_bytes("128mb"), suggested_bytes("100 MB/s")
    ('"10GB"', '"128MB"', '"100MB"')
    """
    found = _read(text)
    return None if found is None else f'"{_bytes_text(*found[:2])}"'


def suggested_byte_rate(text: str) -> str | None:
    """A byte rate with other units, or without its time.

    >>> suggested_byte_rate("8mb/s"), suggested_byte_rate("8MB"), suggested_byte_rate("8 Mbit/s")
    ('"8MB/s"', '"8MB/s"', '"1MB/s"')
    >>> suggested_byte_rate("8Mb/s"), suggested_byte_rate("60MB per minute")
    ('"8MB/s", or "1MB/s" if bits are meant', '"1MB/s"')
    """
    found = _read(text)
    if found is None:
        return None
    number, unit, seconds, is_bits_perhaps = found
    written = f'"{_bytes_text(number / seconds, unit)}/s"'
    if is_bits_perhaps:
        return f'{written}, or "{_bytes_text(number / seconds / 8, unit)}/s" if bits are meant'
    return written


def suggested_rate(text: str) -> str | None:
    """A number of things in some time.

    >>> suggested_rate("5 per second"), suggested_rate("30/min"), suggested_rate("1MB/s")
    ('"5/s"', '"0.5/s"', None)
    """
    found = _read(text)
    if found is None or found[1] != "B":
        return None
    match = _AMOUNT.fullmatch(text.strip())
    if match is None or match["unit"]:
        return None
    return f'"{_figures(found[0] / found[2])}/s"'


def _read(text: str) -> tuple[float, str, int, bool] | None:
    """Number, unit of bytes, seconds, and whether bits may have been meant."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None or not _THOUSANDS.fullmatch(match["number"]):
        return None
    number = float(re.sub("[,_]", "", match["number"]))
    word, time = match["unit"], (match["time"] or "").lower()
    if time not in _SECONDS_OF:
        return None
    perhaps = bool(_EITHER_WORD.fullmatch(word) or (match["bits"] and word.endswith("b")))
    bits = _BIT_WORD.fullmatch(word)
    if bits is not None:
        prefix = (bits[1] or "")[:1].upper()
        return number / 8, f"{prefix}B", _SECONDS_OF[time], False
    unit = _BYTE_WORD.fullmatch(word)
    if unit is None:
        return None
    prefix = (unit[1] or "").upper()
    is_binary = prefix and (unit[2] or unit[3])
    return number, f"{prefix}{'i' if is_binary else ''}B", _SECONDS_OF[time], perhaps


def _bytes_text(number: float, unit: str) -> str:
    """With a number of at least 1, and no part of a byte."""
    if "i" not in unit:
        size = number * _FACTORS[unit[:-1]]
        prefix = next((name for name in "TGMK" if size >= _FACTORS[name]), "")
        number, unit = size / _FACTORS[prefix], f"{prefix}B"
    return f"{max(1, round(number)) if unit == 'B' else _figures(number)}{unit}"


def _figures(number: float) -> str:
    return f"{number:.0f}" if number >= 10**6 else f"{number:.6g}"
