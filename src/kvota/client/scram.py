"""The client's side of SCRAM (RFC 5802, RFC 7677), as Kafka speaks it: no channel binding.

Kafka normalizes neither names nor passwords, so they go as they are, in UTF-8.
"""

import base64
import binascii
import hashlib
import hmac
import secrets

from kvota.model.errors import ProtocolError

_HASH_OF = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
# Kafka takes no fewer; a broker that asks for very many wants our time.
_ITERATIONS_MIN = 4_096
_ITERATIONS_MAX = 1_000_000


class Scram:
    """One login: ``first``, then ``final`` with the broker's answer, then ``check`` with its next one.

    >>> login = Scram("SCRAM-SHA-256", "user", "pencil", nonce="rOprNGfwEbeRWgbNEkqO")
    >>> login.first()
    b'n,,n=user,r=rOprNGfwEbeRWgbNEkqO'
    """

    def __init__(
        self,
        mechanism: str,
        username: str,
        password: str,
        *,
        is_delegation_token: bool = False,
        nonce: str | None = None,
    ) -> None:
        self._hash = _HASH_OF[mechanism]
        self._password = password
        self._nonce = nonce or secrets.token_urlsafe(24)
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={self._nonce}"
        if is_delegation_token:
            self._first_bare += ",tokenauth=true"  # Kafka's extension: the name is a token's id
        self._server_signature = b""

    def first(self) -> bytes:
        """Return the first message."""
        return f"n,,{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """Answer the broker's challenge with the proof.

        Raises:
            ProtocolError: it is no challenge, or not one to this login.
        """
        fields = _fields(server_first)
        nonce, salt, iterations = fields.get("r", ""), _base64(fields.get("s")), fields.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            msg = "SCRAM: the broker's nonce does not begin with ours"
            raise ProtocolError(msg)
        if not iterations.isdecimal() or not (
            _ITERATIONS_MIN <= int(iterations[:10]) <= _ITERATIONS_MAX
        ):
            msg = (
                f'SCRAM: the broker asks for "{iterations[:20]}" iterations; '
                f"{_ITERATIONS_MIN} to {_ITERATIONS_MAX} are done"
            )
            raise ProtocolError(msg)
        without_proof = f"c=biws,r={nonce}"
        signed = f"{self._first_bare},{server_first.decode()},{without_proof}".encode()
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.encode(), salt, int(iterations))
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> None:
        """Check that the broker knows the password, too.

        Raises:
            ProtocolError: it does not show that.
        """
        shown = _base64(_fields(server_final).get("v"))
        if not hmac.compare_digest(shown, self._server_signature):
            msg = "SCRAM: the broker does not know the password of this user"
            raise ProtocolError(msg)

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)


def _fields(message: bytes) -> dict[str, str]:
    try:
        parts = [part.partition("=") for part in message.decode().split(",")]
    except UnicodeDecodeError:
        msg = "SCRAM: the broker's message is not UTF-8"
        raise ProtocolError(msg) from None
    return {name: value for name, _, value in parts}


def _base64(text: str | None) -> bytes:
    try:
        return base64.b64decode(text or "", validate=True)
    except (binascii.Error, ValueError):
        msg = "SCRAM: the broker's message is not base64 where it has to be"
        raise ProtocolError(msg) from None
