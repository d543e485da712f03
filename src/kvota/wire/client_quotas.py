"""Reads AlterClientQuotas and DescribeClientQuotas requests, and makes their answers.

Both are answered by the gateway itself, so they are read field by field; only their tags, which no
version has yet, are stepped over.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kvota.wire.apis import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS, name_of
from kvota.wire.encode import (
    encode_count,
    encode_float64,
    encode_int16,
    encode_int32,
    encode_text,
    encode_words,
)
from kvota.wire.headers import (
    REQUEST_HEAD,
    encode_answer,
    is_flexible,
    request_body_offset,
    request_header_version,
    request_scanner,
)
from kvota.wire.scanner import Scanner
from kvota.wire.steps import STEP_PARTS, Steps
from kvota.wire.varint import Bytes

# A controller carries out 10,000 changed values of one request at most; each takes an entry with an entity
# and its name, and perhaps a second one.
ENTRIES_MAX = 20_000
_ITEMS_MAX = 60_000
# Kafka knows three types of entities; of any type but these a filter is refused.
_COMPONENTS_MAX = 1_000

_ENTRY_BYTES_MIN = 1 + 1  # counts of parts and operations
_PART_BYTES_MIN = 1 + 1  # type, name
_OPERATION_BYTES_MIN = 1 + 8 + 1  # key, value, whether it is removed
_COMPONENT_BYTES_MIN = 1 + 1 + 1  # type, how to match, name

EXACT, DEFAULT, ANY = 0, 1, 2


class Part(NamedTuple):
    """One part of an entity: its type and its name; None: the default."""

    type: str
    name: str | None


class Operation(NamedTuple):
    """One key's value from now on; None: it is removed."""

    key: str
    value: float | None


class Entry(NamedTuple):
    """What is to become of one entity."""

    parts: tuple[Part, ...]
    operations: tuple[Operation, ...]


class AlterRequest(NamedTuple):
    """A whole AlterClientQuotas request.

    Attributes:
        entries: in request order.
        validate_only: nothing is to be changed.
    """

    entries: tuple[Entry, ...]
    validate_only: bool


class Component(NamedTuple):
    """One condition of a filter."""

    type: str
    match_type: int
    match: str | None


class Filter(NamedTuple):
    """A whole DescribeClientQuotas request."""

    components: tuple[Component, ...]
    strict: bool


class AlterResult(NamedTuple):
    """The answer for one entity."""

    parts: tuple[Part, ...]
    error_code: int
    message: str | None


def announced_entries(head: Bytes) -> int:
    """Returns how many entries an AlterClientQuotas request announces, of which the head is here.

    Raises:
        ProtocolError: the count does not fit the bytes, or is more than ``ENTRIES_MAX``.
    """
    key = ALTER_CLIENT_QUOTAS
    _size, _key, version, _, client_id_bytes = REQUEST_HEAD.unpack_from(head, 0)
    header_version = request_header_version(key, version)
    body_at = request_body_offset(head, 0, len(head), client_id_bytes, header_version)
    what = f"{name_of(key)} v{version} request"
    flexible = is_flexible(key, version)
    scanner = Scanner(head, body_at or len(head), len(head), flexible=flexible, what=what)
    return _entry_count(scanner, entry_bytes_min=0)


def scan_alteration(frame: bytes) -> Steps[AlterRequest]:
    """Reads a whole AlterClientQuotas request frame, a little at a time.

    Raises:
        ProtocolError: it is no such request, or has more entries, names and values than it may.
    """
    scanner = request_scanner(frame, ALTER_CLIENT_QUOTAS, items_max=_ITEMS_MAX)
    entries = []
    parts_left = STEP_PARTS
    for _ in range(_entry_count(scanner, entry_bytes_min=_ENTRY_BYTES_MIN)):
        parts = tuple(_part(scanner) for _ in range(scanner.count(_PART_BYTES_MIN)))
        operations = []
        for _ in range(scanner.count(_OPERATION_BYTES_MIN)):
            key, value, is_removed = scanner.name(), scanner.float64(), scanner.boolean()
            scanner.skip_tags()
            operations.append(Operation(key, None if is_removed else value))
            parts_left -= 1
            if not parts_left:
                parts_left = STEP_PARTS
                yield
        scanner.skip_tags()
        entries.append(Entry(parts, tuple(operations)))
    validate_only = scanner.boolean()
    scanner.skip_tags()
    scanner.finish()
    return AlterRequest(tuple(entries), validate_only)


def scan_filter(frame: bytes) -> Filter:
    """Reads a whole DescribeClientQuotas request frame.

    Raises:
        ProtocolError: it is no such request, or has more conditions than it may.
    """
    scanner = request_scanner(frame, DESCRIBE_CLIENT_QUOTAS, items_max=_COMPONENTS_MAX)
    components = []
    for _ in range(scanner.count(_COMPONENT_BYTES_MIN)):
        components.append(Component(scanner.name(), scanner.int8(), scanner.text()))
        scanner.skip_tags()
    strict = scanner.boolean()
    scanner.skip_tags()
    scanner.finish()
    return Filter(tuple(components), strict)


def alteration_answer(
    correlation_id: int, version: int, results: Iterable[AlterResult], *, throttle_ms: int
) -> Steps[bytes]:
    """Makes a whole answer frame to AlterClientQuotas, a little at a time."""
    flexible = is_flexible(ALTER_CLIENT_QUOTAS, version)
    tags = b"\0" if flexible else b""
    encoded: list[bytes] = []
    for number, (parts, error_code, message) in enumerate(results, 1):
        encoded += encode_int16(error_code), encode_words(message, flexible=flexible)
        encoded += _parts(parts, flexible=flexible), tags
        if number % STEP_PARTS == 0:
            yield
    count = encode_count(len(encoded) // 4, flexible=flexible)
    body = b"".join((encode_int32(throttle_ms), count, *encoded, tags))
    return encode_answer(ALTER_CLIENT_QUOTAS, version, correlation_id, body)


def encode_described(
    parts: Sequence[Part], values: Iterable[tuple[str, float]], *, flexible: bool
) -> bytes:
    """Encodes one entity with its values, an entry of the answer to DescribeClientQuotas."""
    tags = b"\0" if flexible else b""
    encoded = [
        encode_text(key, flexible=flexible) + encode_float64(value) + tags for key, value in values
    ]
    count = encode_count(len(encoded), flexible=flexible)
    return b"".join((_parts(parts, flexible=flexible), count, *encoded, tags))


def description_answer(
    correlation_id: int, version: int, entries: Sequence[bytes], *, throttle_ms: int
) -> bytes:
    """Makes a whole answer frame to DescribeClientQuotas; ``entries``: by ``encode_described``.

    A broker of Kafka 4.3 sends an empty error message with it, not null.
    """
    flexible = is_flexible(DESCRIBE_CLIENT_QUOTAS, version)
    body = b"".join(
        (
            encode_int32(throttle_ms),
            encode_int16(0),
            encode_text("", flexible=flexible),
            encode_count(len(entries), flexible=flexible),
            *entries,
            b"\0" if flexible else b"",
        )
    )
    return encode_answer(DESCRIBE_CLIENT_QUOTAS, version, correlation_id, body)


def description_refusal(
    correlation_id: int, version: int, error_code: int, message: str | None, *, throttle_ms: int
) -> bytes:
    """Makes a whole answer frame to DescribeClientQuotas that says why nothing is described."""
    flexible = is_flexible(DESCRIBE_CLIENT_QUOTAS, version)
    body = b"".join(
        (
            encode_int32(throttle_ms),
            encode_int16(error_code),
            encode_words(message, flexible=flexible),
            encode_count(-1, flexible=flexible),
            b"\0" if flexible else b"",
        )
    )
    return encode_answer(DESCRIBE_CLIENT_QUOTAS, version, correlation_id, body)


def _entry_count(scanner: Scanner, *, entry_bytes_min: int) -> int:
    count = scanner.count(entry_bytes_min)
    if not 0 <= count <= ENTRIES_MAX:
        problem = f"{count} entities in one request; it takes 0 to {ENTRIES_MAX}, send several"
        raise scanner.fault(problem)
    return count


def _part(scanner: Scanner) -> Part:
    part = Part(scanner.name(), scanner.text())
    scanner.skip_tags()
    return part


def _parts(parts: Sequence[Part], *, flexible: bool) -> bytes:
    tags = b"\0" if flexible else b""
    encoded = [encode_count(len(parts), flexible=flexible)]
    for of_type, name in parts:
        encoded += (
            encode_text(of_type, flexible=flexible),
            encode_text(name, flexible=flexible),
            tags,
        )
    return b"".join(encoded)
