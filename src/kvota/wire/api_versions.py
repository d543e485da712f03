"""ApiVersions settles which APIs and versions client and broker use with each other.

An answer always has header v0 (KIP-511). Error 35 is answered in the body layout of v0, whatever
version was asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct

from kvota.model.errors import ProtocolError
from kvota.wire.apis import (
    ANSWERED_HERE,
    API_VERSIONS,
    APIS,
    SHARE_FETCH,
    SHARE_FETCH_OF_NOTHING_FROM,
    SHARE_GROUPS,
)
from kvota.wire.encode import encode_count, encode_int16
from kvota.wire.error_code import ErrorCode
from kvota.wire.headers import (
    answer_scanner,
    encode_answer,
    encode_request,
    request_scanner,
    with_size,
)
from kvota.wire.varint import Bytes

# Kafka has some 90.
_APIS_MAX = 1_000
_SOFTWARE_FROM, _SOFTWARE_CHARS_MAX = 3, 100
_NONE = (0, -1)
_ENTRY = Struct(">hhh")  # key, lowest, highest version

# By key, the lowest and the highest.
Versions = Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsAnswer:
    """The APIs and versions that a broker offers, with their places in its answer."""

    error_code: int
    versions: Versions  # key → lowest, highest version, as the broker offers
    flexible: bool  # compact array, tagged fields
    array_at: int  # offset of the array's count
    entries: tuple[tuple[int, int, int], ...]  # key, offset of its tags, end
    array_end: int


def question(correlation_id: int) -> bytes:
    """Makes an ApiVersions v0 request frame, which every broker since 0.10 takes, also before a login."""
    return encode_request(API_VERSIONS, 0, correlation_id, b"")


def client_software(request: Bytes, version: int) -> tuple[str, str]:
    """Name and version of the software that asks; empty where a whole request does not tell them."""
    if version < _SOFTWARE_FROM:
        return "", ""
    try:
        scanner = request_scanner(request, API_VERSIONS)
        return scanner.name()[:_SOFTWARE_CHARS_MAX], scanner.name()[:_SOFTWARE_CHARS_MAX]
    except ProtocolError:
        return "", ""  # the broker refuses it


def scan(answer: Bytes, request_version: int) -> ApiVersionsAnswer:
    """Reads a whole answer frame up to the end of its array of APIs.

    Raises:
        ProtocolError: the frame is no ApiVersions answer to a request of this version.
    """
    scanner = answer_scanner(answer, API_VERSIONS, request_version)
    error_code = scanner.int16()
    if error_code == ErrorCode.UNSUPPORTED_VERSION:
        scanner.flexible = False
    array_at = scanner.at
    entries = []
    versions = {}
    count = scanner.count(_ENTRY.size)
    if count > _APIS_MAX:
        problem = f"{count} APIs; at most {_APIS_MAX} are taken"
        raise scanner.fault(problem)
    for _ in range(count):
        key, lowest, highest = _ENTRY.unpack_from(answer, scanner.skip(_ENTRY.size))
        versions[key] = (lowest, highest)
        tags_at = scanner.at
        scanner.skip_tags()
        entries.append((key, tags_at, scanner.at))
    return ApiVersionsAnswer(
        error_code=error_code,
        versions=versions,
        flexible=scanner.flexible,
        array_at=array_at,
        entries=tuple(entries),
        array_end=scanner.at,
    )


def clamp(answer: Bytes, request_version: int) -> tuple[bytes, Versions]:
    """Leaves only the APIs and versions that the gateway knows; also returns what was offered.

    What the gateway answers itself is offered in any case, in the broker's versions where it has them.
    Tagged fields (features among them) and the throttle time stay byte for byte. The lowest
    Produce version stays the broker's, though 0 to 2 are offered in name only: old librdkafka
    chooses its compression by it (KAFKA-18659).

    Raises:
        ProtocolError: the frame is no ApiVersions answer to a request of this version.
    """
    scanned = scan(answer, request_version)
    kept: list[Bytes] = []
    with_share_groups = has_share_groups(scanned.versions)
    for key, tags_at, end in scanned.entries:
        if key in SHARE_GROUPS and not with_share_groups:
            continue
        common = common_versions(key, scanned.versions[key])
        if common is not None:
            kept += _ENTRY.pack(key, *common), answer[tags_at:end]
    if scanned.error_code == ErrorCode.NONE:
        tags = b"\0" if scanned.flexible else b""
        for key in ANSWERED_HERE:
            if key not in scanned.versions:
                kept += _ENTRY.pack(key, *APIS[key].versions), tags
    count = encode_count(len(kept) // 2, flexible=scanned.flexible)
    clamped = with_size([answer[: scanned.array_at], count, *kept, answer[scanned.array_end :]])
    return clamped, scanned.versions


def has_share_groups(offered: Mapping[int, tuple[int, int]]) -> bool:
    """Returns whether clients of a broker that offers these versions may use share groups: all APIs of them, or none.

    Kafka 4.2 and higher; where ShareFetch has no version that may acquire nothing, a quota could not be held without
    keeping acknowledgements back.
    """
    if any(common_versions(key, offered.get(key, _NONE)) is None for key in SHARE_GROUPS):
        return False
    return offered[SHARE_FETCH][1] >= SHARE_FETCH_OF_NOTHING_FROM


def common_versions(key: int, offered: tuple[int, int]) -> tuple[int, int] | None:
    """Returns the lowest and highest version that both sides have; None if there is none."""
    api = APIS.get(key)
    if api is None:
        return None
    lowest = max(api.version_min, offered[0])
    highest = min(api.version_max, offered[1])
    return (lowest, highest) if lowest <= highest else None


def unsupported(correlation_id: int) -> bytes:
    """Answers an ApiVersions request that is newer than ours; the client then asks a lower one."""
    body = b"".join(
        (
            encode_int16(ErrorCode.UNSUPPORTED_VERSION),
            encode_count(1, flexible=False),
            _ENTRY.pack(API_VERSIONS, *APIS[API_VERSIONS].versions),
        )
    )
    return encode_answer(API_VERSIONS, 0, correlation_id, body)
