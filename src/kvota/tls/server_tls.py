"""How a listener encrypts: the certificate that it shows, whom it asks for one, and what a client's name becomes."""

import ssl
import sys
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from kvota.tls.client_tls import Version
from kvota.tls.made import Made
from kvota.tls.pem import TlsSettingError, state_of
from kvota.tls.principal_mapping import PrincipalMapper
from kvota.tls.secret import Secret

# OpenSSL's words, which it joins with ":"; TLS 1.3 has its own list, all of which are good.
_SECURITY_OPTIONS = ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE


class ClientAuth(StrEnum):
    """Kafka's ``ssl.client.auth``."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


_VERIFY_MODES = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """TLS of one listener.

    Attributes:
        certfile: certificate and chain, PEM, or PKCS #12 with the key.
        keyfile: PEM; None: the key is in ``certfile``.
        password: what opens it.
        client_auth: whether clients are asked for a certificate; one that is shown is always checked.
        client_cafile: who may have signed it, PEM.
        client_crlfile: which of these certificates are revoked, PEM; None: no list is looked at.
        mapper: makes a principal of the name in it.
        version_min: the lowest version of TLS.
        version_max: the highest.
        ciphers: OpenSSL's list for TLS 1.2; empty: its default.
    """

    certfile: Path
    keyfile: Path | None = None
    password: Secret = field(default_factory=Secret)
    client_auth: ClientAuth = ClientAuth.NONE
    client_cafile: Path | None = None
    client_crlfile: Path | None = None
    mapper: PrincipalMapper = field(default_factory=PrincipalMapper)
    version_min: Version = Version.TLSv1_2
    version_max: Version = Version.MAXIMUM_SUPPORTED
    ciphers: str = ""

    @property
    def state(self) -> tuple[object, ...]:
        """What is another one when a file has changed."""
        trusted = self.client_cafile, self.client_crlfile
        files = self.certfile, self.keyfile, *trusted, self.password.file
        return tuple(map(state_of, files))


class ServerSide(ssl.SSLObject):
    """OpenSSL's part of one connection.

    Attributes:
        server_name: by which the client has called, if it has said (SNI); in small letters.
    """

    server_name: str = ""


def make_context(tls: ServerTls) -> Made:
    """Read the files; some milliseconds.

    Raises:
        TlsSettingError: a file cannot be used; says which and why, without what is in it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = tls.version_min, tls.version_max
    context.options |= _SECURITY_OPTIONS
    context.sslobject_class = ServerSide
    context.sni_callback = _hear
    if tls.ciphers:
        try:
            context.set_ciphers(tls.ciphers)
        except ssl.SSLError as error:
            problem = f'"{tls.ciphers}" has no cipher that this OpenSSL knows'
            raise TlsSettingError(problem, setting="ciphers") from error
    made = Made(context)
    made.show(tls.certfile, tls.keyfile, tls.password.read())
    context.verify_mode = _VERIFY_MODES[tls.client_auth]
    if tls.client_cafile is not None:
        made.trust(tls.client_cafile, setting="client_cafile")
    if tls.client_crlfile is not None:
        made.refuse_revoked(tls.client_crlfile, setting="client_crlfile")
    return made


def _hear(tls: Any, name: str | None, _context: ssl.SSLContext) -> None:
    tls.server_name = (name or "").lower()


def pass_over_unreadable_names(unraisable: "sys.UnraisableHookArgs") -> None:
    """A ``sys.unraisablehook``: of a name that is not ASCII Python says so on stderr before ``_hear`` is called, each time.

    Its client is closed, and the reason is in the log, where repeats are counted.
    """
    if isinstance(unraisable.exc_value, UnicodeDecodeError) and isinstance(
        unraisable.object, bytes
    ):
        return
    sys.__unraisablehook__(unraisable)
