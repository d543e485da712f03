"""throttle_time_ms in the answers of every API: where it stands, reading it, raising it."""

from collections.abc import Mapping
from enum import Enum
from struct import Struct
from types import MappingProxyType

from kvota.model.errors import ProtocolError
from kvota.wire import api_versions, produce
from kvota.wire.apis import API_VERSIONS, APIS, PRODUCE, name_of
from kvota.wire.error_code import ErrorCode
from kvota.wire.headers import is_flexible, read_answer_head
from kvota.wire.scanner import Scanner
from kvota.wire.varint import Bytes

_INT32 = Struct(">i")


class _Place(Enum):
    """Where the field stands, where it is not the first."""

    LAST_BEFORE_TAGS = "last"
    BEHIND_API_KEYS = "behind api keys"
    BEHIND_ERROR = "behind error"
    BEHIND_ERROR_AND_TIME = "behind error and time"
    BEHIND_NEW_TOKEN = "behind new token"  # noqa: S105  (no password)
    BEHIND_TOKENS = "behind tokens"


_CREATE_TOKEN, _RENEW_TOKEN, _EXPIRE_TOKEN, _DESCRIBE_TOKEN, _OFFSET_DELETE = 38, 39, 40, 41, 47
_PLACES: Mapping[int, _Place] = MappingProxyType(
    {
        PRODUCE: _Place.LAST_BEFORE_TAGS,
        API_VERSIONS: _Place.BEHIND_API_KEYS,
        _CREATE_TOKEN: _Place.BEHIND_NEW_TOKEN,
        _RENEW_TOKEN: _Place.BEHIND_ERROR_AND_TIME,
        _EXPIRE_TOKEN: _Place.BEHIND_ERROR_AND_TIME,
        _DESCRIBE_TOKEN: _Place.BEHIND_TOKENS,
        _OFFSET_DELETE: _Place.BEHIND_ERROR,
    }
)
_BEHIND_FIXED_BYTES = {None: 0, _Place.BEHIND_ERROR: 2, _Place.BEHIND_ERROR_AND_TIME: 2 + 8}


def read(answer: Bytes, key: int, version: int) -> int | None:
    """The throttle time of a whole answer frame; None: this API or version has no such field.

    Raises:
        ProtocolError: the frame is not such an answer.
    """
    at = offset(answer, key, version)
    if at is None:
        return None
    value: int = _INT32.unpack_from(answer, at)[0]
    return value


def patch(answer: bytearray, key: int, version: int, throttle_ms: int) -> bool:
    """Raises the throttle time of a whole answer frame to ``throttle_ms``; never lowers it.

    Returns:
        Whether the answer has the field, so that the client can be told at all.

    Raises:
        ProtocolError: the frame is not such an answer.
    """
    at = offset(answer, key, version)
    if at is None:
        return False
    if throttle_ms > _INT32.unpack_from(answer, at)[0]:
        _INT32.pack_into(answer, at, throttle_ms)
    return True


def offset(answer: Bytes, key: int, version: int) -> int | None:
    """Offset of int32 throttle_time_ms in a whole answer frame; None: it has no such field.

    Raises:
        ProtocolError: the frame is not such an answer.
    """
    api = APIS.get(key)
    if api is None or version < api.throttle_from:
        return None
    body_at = read_answer_head(answer, key, version).body_at
    at = _place(answer, key, version, body_at)
    if at is not None and at + 4 > len(answer):
        msg = f"{name_of(key)} v{version} answer: {len(answer)} bytes end before the throttle time"
        raise ProtocolError(msg)
    return at


def _place(answer: Bytes, key: int, version: int, body_at: int) -> int | None:
    place = _PLACES.get(key)
    if place in _BEHIND_FIXED_BYTES:
        return body_at + _BEHIND_FIXED_BYTES[place]
    if place is _Place.LAST_BEFORE_TAGS:
        return produce.throttle_offset(answer, version)
    if place is _Place.BEHIND_API_KEYS:
        return _behind_api_keys(answer, version)
    flexible = is_flexible(key, version)
    what = f"{name_of(key)} v{version} answer"
    scanner = Scanner(answer, body_at, len(answer), flexible=flexible, what=what)
    if place is _Place.BEHIND_NEW_TOKEN:
        return _behind_new_token(scanner, version)
    return _behind_tokens(scanner, version)


def _behind_api_keys(answer: Bytes, version: int) -> int | None:
    found = api_versions.scan(answer, version)
    # That error is answered in the layout of v0, which has no throttle time.
    return None if found.error_code == ErrorCode.UNSUPPORTED_VERSION else found.array_end


def _behind_new_token(scanner: Scanner, version: int) -> int:
    scanner.skip(2)  # error code
    _skip_principal(scanner)
    if version >= 3:
        _skip_principal(scanner)  # who asked
    scanner.skip(8 + 8 + 8)  # issued, expires, at most until
    scanner.skip_text()  # id
    scanner.blob()  # hmac
    return scanner.at


def _behind_tokens(scanner: Scanner, version: int) -> int:
    scanner.skip(2)  # error code
    for _ in range(scanner.count(8 + 8 + 8)):
        _skip_principal(scanner)
        if version >= 3:
            _skip_principal(scanner)
        scanner.skip(8 + 8 + 8)
        scanner.skip_text()
        scanner.blob()
        for _ in range(scanner.count(2)):  # who may renew it
            _skip_principal(scanner)
            scanner.skip_tags()
        scanner.skip_tags()
    return scanner.at


def _skip_principal(scanner: Scanner) -> None:
    scanner.skip_text()  # type
    scanner.skip_text()  # name
