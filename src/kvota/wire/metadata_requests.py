"""Reads Metadata requests that name topics, and makes those of them that create none.

A broker with ``auto.create.topics.enable`` creates the topics that are asked for by name and unknown to it: always
before v4, from then on where the request says so.
"""

from dataclasses import dataclass

from kvota.wire.apis import METADATA, name_of
from kvota.wire.headers import (
    REQUEST_HEAD,
    is_flexible,
    read_request_head,
    request_body_offset,
    request_header_version,
    request_scanner,
)
from kvota.wire.scanner import TOPIC_ID_BYTES, Scanner
from kvota.wire.steps import Steps
from kvota.wire.varint import Bytes

# As many as topics in one mutation: each takes memory while it is found out whether it is there.
NAMES_MAX = 20_000
# From here on a request says whether it creates.
FLAG_FROM = 4
_IDS_FROM, _OPERATIONS_FROM, _CLUSTER_OPERATIONS_BEFORE = 10, 8, 11


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequest:
    """One request that names topics.

    Attributes:
        client_id: "" for null, as for quotas.
        names: in its order, each once; those asked for by id are not among them.
        creates: the broker may create them.
        flag_at: where the request says so, -1: its version cannot.
    """

    client_id: str
    names: tuple[str, ...]
    creates: bool
    flag_at: int


def announced_names(head: Bytes) -> int:
    """Returns how many topics the request asks for of which at least the head is here; 0: for all, or for none.

    Raises:
        ProtocolError: it does not fit the bytes, or is more than ``NAMES_MAX``.
    """
    _size, _key, version, _, client_id_bytes = REQUEST_HEAD.unpack_from(head, 0)
    header_version = request_header_version(METADATA, version)
    body_at = request_body_offset(head, 0, len(head), client_id_bytes, header_version)
    what = f"{name_of(METADATA)} v{version} request"
    flexible = is_flexible(METADATA, version)
    at = len(head) if body_at is None else body_at  # then the scanner tells
    return _count(Scanner(head, at, len(head), flexible=flexible, what=what), item_bytes_min=0)


def scan_in_steps(frame: bytes, version: int) -> Steps[MetadataRequest]:
    """Reads a whole request frame, a little at a time.

    Raises:
        ProtocolError: it is no such request, or asks for more than ``NAMES_MAX`` topics.
    """
    head = read_request_head(frame, METADATA)
    scanner = request_scanner(frame, METADATA)
    names: dict[str, None] = {}
    for _ in range(_count(scanner, item_bytes_min=1)):
        if version >= _IDS_FROM:
            scanner.skip(TOPIC_ID_BYTES)
        name = scanner.text()
        scanner.skip_tags()
        if name is not None:
            names[name] = None
        if scanner.is_step_done():
            yield
    flag_at = scanner.at if version >= FLAG_FROM else -1
    creates = scanner.boolean() if version >= FLAG_FROM else True
    if version >= _OPERATIONS_FROM:
        scanner.skip(2 if version < _CLUSTER_OPERATIONS_BEFORE else 1)
    scanner.skip_tags()
    scanner.finish()
    client_id = head.client_id.decode(errors="replace")
    return MetadataRequest(
        client_id=client_id, names=tuple(names), creates=creates, flag_at=flag_at
    )


def without_creation(frame: bytes, request: MetadataRequest) -> bytes:
    """Makes the same request frame of v4 or later, for which no topic is created."""
    return b"".join((frame[: request.flag_at], b"\0", frame[request.flag_at + 1 :]))


def _count(scanner: Scanner, *, item_bytes_min: int) -> int:
    count = max(0, scanner.count(item_bytes_min))
    if count > NAMES_MAX:
        problem = f"{count} topics in one request that may create them; it takes {NAMES_MAX}, send several"
        raise scanner.fault(problem)
    return count
