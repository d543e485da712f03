"""The machine's trusted certificates are written in the file format that Java reads (JKS).

A Java that came in a wheel brings certificates of its own and does not know the machine's. Where a
company's network opens and re-signs TLS, only the machine's are right: those Python uses.
"""

import hashlib
import ssl
import struct
from collections.abc import Sequence
from pathlib import Path

# This is JKS, as sun.security.provider.JavaKeyStore reads it.
_MAGIC, _VERSION, _TRUSTED_CERTIFICATE = 0xFEEDFEED, 2, 2
_WHITENER = b"Mighty Aphrodite"
PASSWORD = "changeit"  # noqa: S105 - the one all Java trust stores have; certificates are no secret


def machine_certificates() -> list[bytes]:
    """Return the certificates (DER) that Python trusts on this machine."""
    return ssl.create_default_context().get_ca_certs(binary_form=True)


def write_trust_store(certificates: Sequence[bytes], file: Path) -> None:
    """Writes certificates (DER) as a Java trust store."""
    parts = [struct.pack(">III", _MAGIC, _VERSION, len(certificates))]
    for number, certificate in enumerate(certificates):
        parts += [
            struct.pack(">I", _TRUSTED_CERTIFICATE),
            _text(f"certificate-{number}"),
            struct.pack(">q", 0),  # when it was added
            _text("X.509"),
            struct.pack(">I", len(certificate)),
            certificate,
        ]
    content = b"".join(parts)
    seal = hashlib.sha1(  # noqa: S324 - what the format asks for; nothing relies on it
        PASSWORD.encode("utf-16-be") + _WHITENER + content
    )
    file.write_bytes(content + seal.digest())


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()
