"""Reads mechanisms, tokens and the names in them as logins go by; it keeps no secret.

Sources: Kafka's SaslHandshake and SaslAuthenticate messages, KIP-48 (delegation tokens), KIP-368
(lifetimes), RFC 4616 (PLAIN), RFC 5802 (SCRAM).
"""

import re
from dataclasses import dataclass

from kvota.model.errors import ProtocolError
from kvota.wire.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE
from kvota.wire.headers import answer_scanner, request_scanner
from kvota.wire.varint import Bytes

# gs2 flag and authorization id, perhaps a reserved field, name, nonce, extensions. Kafka's own pattern
# takes less of each field, and never cuts it at another place.
_CLIENT_FIRST = re.compile(
    r"(?:[ny]|p=[^,]+),(?:a=[^,]*)?,(?:m=[^,]+,)?n=(?P<name>[^,]+),r=[^,]+(?P<extensions>(?:,[^,=]+=[^,]*)*)"
)
# Among extensions; the name of one, no password.
_TOKEN_AUTH = re.compile(r",tokenauth=([^,]*)")
_BAD_ESCAPE = re.compile(r"=(?!2C|3D)")
# A broker has a handful.
_MECHANISMS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticateAnswer:
    """The fields of a SaslAuthenticate answer."""

    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int  # 0: for ever


def mechanism(request: Bytes) -> str:
    """Returns the mechanism that a whole SaslHandshake request frame asks for.

    Raises:
        ProtocolError: it is no such request.
    """
    return request_scanner(request, SASL_HANDSHAKE).name()


def handshake_answer(answer: Bytes) -> tuple[int, list[str]]:
    """Returns error code and mechanisms of a whole SaslHandshake answer frame.

    Raises:
        ProtocolError: it is no such answer.
    """
    scanner = answer_scanner(answer, SASL_HANDSHAKE, 1, items_max=_MECHANISMS_MAX)
    error_code = scanner.int16()
    mechanisms = [scanner.name() for _ in range(scanner.count(2))]
    scanner.finish()
    return error_code, mechanisms


def auth_bytes(request: Bytes) -> bytes:
    """Returns the token in a whole SaslAuthenticate request frame.

    It may contain a password: pass it to ``plain_names`` or ``scram_name`` and forget it.

    Raises:
        ProtocolError: it is no such request.
    """
    token = request_scanner(request, SASL_AUTHENTICATE).blob()
    if token is None:
        msg = "SaslAuthenticate request: null where a token is required"
        raise ProtocolError(msg)
    return token


def authenticate_answer(answer: Bytes, version: int) -> AuthenticateAnswer:
    """Reads a whole SaslAuthenticate answer frame.

    Raises:
        ProtocolError: it is no such answer.
    """
    scanner = answer_scanner(answer, SASL_AUTHENTICATE, version)
    found = AuthenticateAnswer(
        error_code=scanner.int16(),
        error_message=scanner.text(),
        auth_bytes=scanner.blob() or b"",
        session_lifetime_ms=scanner.int64() if version >= 1 else 0,
    )
    scanner.skip_tags()
    scanner.finish()
    return found


def plain_names(token: bytes) -> tuple[str, str]:
    r"""Returns authorization id (often empty) and user name of a PLAIN token, not the password.

    Raises:
        ProtocolError: it is no PLAIN token; the text repeats nothing of it.

    >>> plain_names(b"\0alice\0secret")
    ('', 'alice')
    """
    parts = token.split(b"\0", 3)
    if len(parts) != 3 or not parts[1]:
        msg = f"SASL PLAIN: a token of {len(token)} bytes is not three parts with a NUL between"
        raise ProtocolError(msg)
    try:
        return parts[0].decode(), parts[1].decode()
    except UnicodeDecodeError:
        msg = "SASL PLAIN: a name that is not UTF-8"
        raise ProtocolError(msg) from None  # the chain would show the token


def scram_name(token: bytes) -> tuple[str, bool]:
    """Returns the name in a SCRAM client-first message, and whether it is a delegation token's id.

    Behind an id the principal is the token's owner, who never crosses the wire.

    Raises:
        ProtocolError: it is no such message.

    >>> scram_name(b"n,,n=a=2Cb,r=nonce"), scram_name(b"n,,n=id,r=nonce,tokenauth=true")
    (('a,b', False), ('id', True))
    """
    try:
        first = _CLIENT_FIRST.fullmatch(token.decode())
    except UnicodeDecodeError:
        msg = "SCRAM client-first message: it is not UTF-8"
        raise ProtocolError(msg) from None
    if first is None:
        msg = f"SCRAM client-first message: {len(token)} bytes are none"
        raise ProtocolError(msg)
    # As Kafka reads them: names as they are written, and of two with one name the last.
    token_auth = _TOKEN_AUTH.findall(first["extensions"])
    return _unescape(first["name"]), bool(token_auth) and token_auth[-1].lower() == "true"


def _unescape(name: str) -> str:
    if _BAD_ESCAPE.search(name):
        msg = "SCRAM client-first message: = in a name is followed by neither 2C nor 3D"
        raise ProtocolError(msg)
    return name.replace("=2C", ",").replace("=3D", "=")


def is_server_final(token: bytes) -> bool:
    """Returns whether the broker's SCRAM message is its last, sent when a login has succeeded."""
    return token.startswith(b"v=")
