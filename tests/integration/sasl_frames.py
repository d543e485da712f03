"""What a client sends to log in, as bytes."""

import base64
import hashlib
import hmac

from kvota.testing.frames import SASL_AUTHENTICATE, SASL_HANDSHAKE, request


def handshake(mechanism: str, version: int = 1) -> bytes:
    return request(SASL_HANDSHAKE, version, mechanism=mechanism)


def authenticate(token: bytes, version: int = 2) -> bytes:
    return request(SASL_AUTHENTICATE, version, auth_bytes=token)


def raw(token: bytes) -> bytes:
    """As it follows the oldest handshake: a length, no header."""
    return len(token).to_bytes(4, "big") + token


def scram_final(
    digest: str, first_bare: str, server_first: bytes, secret: str, *, header: str = "n,,"
) -> bytes:
    """The last message of a SCRAM login (RFC 5802).

    Args:
        digest: ``sha256`` or ``sha512``.
        first_bare: the client's first message without its header.
        server_first: the answer to that.
        secret: the password.
        header: of the client's first message.
    """
    nonce, salt, rounds = (part[2:] for part in server_first.decode().split(",", 2))
    channel = base64.b64encode(header.encode()).decode()
    salted = hashlib.pbkdf2_hmac(digest, secret.encode(), base64.b64decode(salt), int(rounds))
    key = hmac.digest(salted, b"Client Key", digest)
    over = f"{first_bare},{server_first.decode()},c={channel},r={nonce}".encode()
    signature = hmac.digest(hashlib.new(digest, key).digest(), over, digest)
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    return f"c={channel},r={nonce},p={base64.b64encode(proof).decode()}".encode()
