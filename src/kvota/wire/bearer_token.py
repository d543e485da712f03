"""Reads whose an OAUTHBEARER token is, as a broker reads it; whether the token is genuine only the broker can say.

The text of an error repeats nothing of a token: who has it can log in with it.

Sources: RFC 7628 (the message), RFC 7519 (JSON Web Token), RFC 7515 (its form); Kafka's KIP-255 and KIP-768.
"""

import base64
import json
import re
from typing import NamedTuple

from kvota.model.errors import ProtocolError

# Kafka's own patterns: an authorization id that nothing is done with, then names and values.
_CLIENT_FIRST = re.compile(
    rb"n,(?:a=(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+)?,\x01((?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_AUTH = re.compile(rb"(?i:bearer) +([-_~+/.a-zA-Z0-9]+=*)")
# Tokens with a hundred groups have some kilobytes. Anybody can send half a megabyte, and reading it takes time.
CLAIMS_CHARACTERS_MAX = 65_536
# What Java's ``trim`` takes away.
_BLANKS = "".join(map(chr, range(0x21)))

# A broker reads the first JSON value and passes over what stands behind it. A text that is read here and refused
# there does no harm, but one that is read there alone would hide a name: so this reader is the more lenient one.
_CLAIMS = json.JSONDecoder(strict=False, parse_int=len)  # numbers of any length; none is looked at
_BEFORE = "\ufeff \t\r\n"


class BearerName(NamedTuple):
    """Whose a token is.

    Attributes:
        name: None: it cannot be told from outside.
        why: it cannot be told.
    """

    name: str | None
    why: str = ""


def bearer_name(first: bytes, claim: str) -> BearerName:
    r"""Return whose token stands in the first message of an OAUTHBEARER login.

    Args:
        first: the client's message.
        claim: of the token, in which the name stands (Kafka's ``sasl.oauthbearer.sub.claim.name``).

    Raises:
        ProtocolError: it is no such message, or its token is too large to be read.

    >>> claims = base64.urlsafe_b64encode(b'{"sub":"alice"}').rstrip(b"=")
    >>> bearer_name(b"n,,\x01auth=Bearer e30." + claims + b".\x01\x01", "sub").name
    'alice'
    """
    message = _CLIENT_FIRST.fullmatch(first)
    if message is None:
        msg = f"OAUTHBEARER client-first message: {len(first)} bytes are none"
        raise ProtocolError(msg)
    pairs = dict(pair.split(b"=", 1) for pair in message[1].split(b"\x01") if pair)
    token = _AUTH.fullmatch(pairs.get(b"auth", b""))
    if token is None:
        msg = "OAUTHBEARER client-first message: no bearer token stands in it"
        raise ProtocolError(msg)
    parts = token[1].split(b".")
    if len(parts) == 5:
        return BearerName(None, "the token is encrypted")
    claims = _claims(parts[1]) if len(parts) == 3 else None
    if claims is None:
        return BearerName(None, "the token is no JSON Web Token")
    name = claims.get(claim)
    if not isinstance(name, str) or not name.strip(_BLANKS):
        why = f'the token has no name in its claim "{claim}" (sasl.oauthbearer.sub.claim.name)'
        return BearerName(None, why)
    # A broker takes the blanks around the name away where it checks a signature, and leaves them where there is none.
    name = name.strip(_BLANKS) if parts[2] else name
    # JSON can write half of a surrogate pair, which nobody can store; Java, too, makes that a question mark.
    return BearerName(name.encode(errors="replace").decode())


def _claims(part: bytes) -> dict[str, object] | None:
    """Return the claims; None: they are none.

    Raises:
        ProtocolError: perhaps they are, and reading them would cost too much.
    """
    if len(part) > CLAIMS_CHARACTERS_MAX:
        msg = f"the claims of a token have more than {CLAIMS_CHARACTERS_MAX} characters, and are not read"
        raise ProtocolError(msg)
    try:
        text = base64.b64decode(part.rstrip(b"=") + b"==", altchars=b"-_").decode(errors="replace")
        claims, _end = _CLAIMS.raw_decode(text.lstrip(_BEFORE))
    except RecursionError:
        msg = "the claims of a token are nested too deeply to be read"
        raise ProtocolError(msg) from None  # the chain would show the token
    except ValueError:  # of base64, JSON
        return None
    return claims if isinstance(claims, dict) else None
