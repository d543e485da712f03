"""What stands in a certificate (X.509, DER): whose it is, as Java writes a name, and how long it is valid.

Source of the name: ``X500Principal.getName()``, which is what Kafka's principal mapping gets: RFC 2253, and where that
leaves a choice, as Java chooses.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

_SEQUENCE, _OID, _VERSION = 0x30, 0x06, 0xA0
_TIMES = _UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18
# The types that Java writes as text; it takes the bytes of each for UTF-8.
_TEXTS = frozenset(
    {
        0x0C,  # UTF8String
        0x13,  # PrintableString
        0x14,  # T61String
        0x16,  # IA5String
        0x1B,  # GeneralString
        0x1E,  # BMPString
    }
)
_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_ESCAPED = frozenset(',=+<>#;"\\')
_BLANKS = " \r"
_OID_ROOTS = 3
_LONG_FORM = 0x80


class CertificateFormatError(ValueError):
    """It is no certificate that can be read."""


class Certificate(NamedTuple):
    """What is read of it.

    Attributes:
        subject: its owner's name, e.g. ``CN=orders,OU=Sales,C=DE``; empty where it has none.
        begins: when it begins to be valid.
        ends: when it ends.
    """

    subject: str
    begins: datetime
    ends: datetime


def read_certificate(der: bytes) -> Certificate:
    """Read a certificate whose signature somebody else checks.

    Raises:
        CertificateFormatError: it cannot be read.
    """
    try:
        (outer,) = _elements(der)
        to_be_signed = next(_elements(_content(outer, _SEQUENCE)))
        fields = [one for one in _elements(_content(to_be_signed, _SEQUENCE)) if one[0] != _VERSION]
        _serial, _algorithm, _issuer, validity, subject = fields[:5]
        begins, ends = map(_time, _elements(_content(validity, _SEQUENCE)))
        return Certificate(_name(_content(subject, _SEQUENCE)), begins, ends)
    except (ValueError, IndexError, StopIteration) as error:
        msg = f"this is no certificate: {error}"
        raise CertificateFormatError(msg) from error


def end_of_revocation_list(der: bytes) -> datetime | None:
    """Return when a list of revoked certificates (CRL) is out of date, as it says itself; None: it does not say so.

    Raises:
        CertificateFormatError: it cannot be read.
    """
    try:
        (outer,) = _elements(der)
        to_be_signed = next(_elements(_content(outer, _SEQUENCE)))
        fields = _elements(_content(to_be_signed, _SEQUENCE))
        _made, *next_one = [_time(one) for one in fields if one[0] in _TIMES]
        return next_one[0] if next_one else None
    except (ValueError, IndexError, StopIteration) as error:
        msg = f"this is no list of revoked certificates: {error}"
        raise CertificateFormatError(msg) from error


# ------------------------------------------------------------------ DER

_Element = tuple[int, bytes, bytes]  # its tag, its content, all of it


def _elements(content: bytes) -> Iterator[_Element]:
    at = 0
    while at < len(content):
        begins = at
        tag, size = content[at], content[at + 1]
        at += 2
        if size & _LONG_FORM:
            digits = size & ~_LONG_FORM
            size = int.from_bytes(content[at : at + digits], "big")
            at += digits
        end = at + size
        if end > len(content):
            msg = "an element is cut off"
            raise ValueError(msg)
        yield tag, content[at:end], content[begins:end]
        at = end


def _content(element: _Element, tag: int) -> bytes:
    if element[0] != tag:
        msg = f"an element of type {element[0]} stands where one of type {tag} is due"
        raise ValueError(msg)
    return element[1]


def _time(element: _Element) -> datetime:
    tag, content, _ = element
    if tag not in _TIMES:
        msg = f"an element of type {tag} stands where a time is due"
        raise ValueError(msg)
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        text = ("20" if text < "5" else "19") + text  # RFC 5280: 1950 to 2049
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _oid(content: bytes) -> str:
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, _OID_ROOTS - 1)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


# ------------------------------------------------------------------ names


def _name(sequence: bytes) -> str:
    """The last part of a name comes first."""
    parts = [
        "+".join(_attribute(_content(pair, _SEQUENCE)) for pair in _elements(part))
        for _, part, _ in _elements(sequence)
    ]
    return ",".join(reversed(parts))


def _attribute(pair: bytes) -> str:
    kind, value = _elements(pair)
    oid = _oid(_content(kind, _OID))
    tag, content, whole = value
    keyword = _KEYWORDS.get(oid)
    if keyword is None or tag not in _TEXTS:
        return f"{keyword or oid}=#{whole.hex()}"
    return f"{keyword}={_escaped(content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    lead = len(text) - len(text.lstrip(_BLANKS))
    trail = len(text.rstrip(_BLANKS))
    return "".join(
        ("\\" if at < lead or at >= trail or char in _ESCAPED else "") + _shown(char)
        for at, char in enumerate(text)
    )


def _shown(char: str) -> str:
    return "\\00" if char == "\0" else char
