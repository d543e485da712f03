"""What the store holds; whether Java reads it is asked in tests/integration/test_localkafka.py."""

import hashlib
import ssl
import struct
from pathlib import Path

import pytest

from kvota.localkafka.jars.trust_store import machine_certificates, write_trust_store


def test_the_store_holds_every_certificate_once_and_is_sealed(tmp_path: Path) -> None:
    certificates = [b"first", b"second one"]

    write_trust_store(certificates, tmp_path / "store.jks")

    content = (tmp_path / "store.jks").read_bytes()
    assert content[:12] == struct.pack(">III", 0xFEEDFEED, 2, 2)
    assert [content.count(certificate) for certificate in certificates] == [1, 1]
    sealed = "changeit".encode("utf-16-be") + b"Mighty Aphrodite" + content[:-20]
    assert content[-20:] == hashlib.sha1(sealed).digest()


def test_what_the_machine_trusts_is_what_python_trusts(monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Path(__file__).with_name("authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    monkeypatch.setenv("SSL_CERT_DIR", str(authority.parent / "none"))

    assert machine_certificates() == [ssl.PEM_cert_to_DER_cert(authority.read_text())]
