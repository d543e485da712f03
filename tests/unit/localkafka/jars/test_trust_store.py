"""What the store holds; whether Java reads it is asked in tests/integration/test_localkafka.py."""

import hashlib
import struct
from pathlib import Path

from kvota.localkafka.jars.trust_store import machine_certificates, write_trust_store


def test_the_store_holds_every_certificate_once_and_is_sealed(tmp_path: Path) -> None:
    certificates = [b"first", b"second one"]

    write_trust_store(certificates, tmp_path / "store.jks")

    content = (tmp_path / "store.jks").read_bytes()
    assert content[:12] == struct.pack(">III", 0xFEEDFEED, 2, 2)
    assert [content.count(certificate) for certificate in certificates] == [1, 1]
    sealed = "changeit".encode("utf-16-be") + b"Mighty Aphrodite" + content[:-20]
    assert content[-20:] == hashlib.sha1(sealed).digest()


def test_the_machine_trusts_somebody() -> None:
    assert all(certificate[0] == 0x30 for certificate in machine_certificates())
