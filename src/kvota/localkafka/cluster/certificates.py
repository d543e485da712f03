"""Certificates for a cluster on this machine: an authority of its own, and what it signs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Clocks differ a little; a test cluster lives for minutes, one that is left running for weeks.
_BEGINS_BEFORE, _LASTS = timedelta(hours=1), timedelta(days=365)
_DAY = timedelta(days=1)
_OWNER_ONLY = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """One certificate and its key, as the different programs want them (PEM).

    Attributes:
        certificate: of it.
        key: PKCS #8, encrypted where a password was given.
        keystore: both in one file, as Java's ``ssl.keystore.location`` wants them.
    """

    certificate: Path
    key: Path
    keystore: Path


class Authority:
    """Signs certificates; for tests and trials, its key lies in memory alone.

    Args:
        folder: where its files go.
        name: its common name.
    """

    def __init__(self, folder: Path, *, name: str = "kvota local authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _common_name(name)
        self.certificate = folder / "ca.pem"
        signed = (
            _begun(self._name, self._name, self._key.public_key(), self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate.write_bytes(_pem(signed))

    def issue(
        self,
        name: str,
        *,
        hosts: Sequence[str] = (),
        password: str | None = None,
        is_expired: bool = False,
        is_self_signed: bool = False,
    ) -> Issued:
        """Sign a certificate for a server or a client; its files are called after its name.

        Args:
            name: the common name: to Kafka its owner is ``User:CN=name``.
            hosts: names and addresses for which a server may show it.
            password: encrypts the key.
            is_expired: it was valid until yesterday.
            is_self_signed: this authority has nothing to do with it.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        ends = datetime.now(UTC) - timedelta(days=1) if is_expired else None
        subject = _common_name(name)
        issuer, signs = (subject, key) if is_self_signed else (self._name, self._key)
        begun = (
            _begun(subject, issuer, key.public_key(), signs, ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(_BOTH_SIDES), critical=False)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            begun = begun.add_extension(names, critical=False)
        chain = _pem(begun.sign(signs, hashes.SHA256()))
        secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption()
            if password is None
            else serialization.BestAvailableEncryption(password.encode()),
        )
        issued = Issued(
            certificate=self._folder / f"{name}.pem",
            key=self._folder / f"{name}.key",
            keystore=self._folder / f"{name}-keystore.pem",
        )
        issued.certificate.write_bytes(chain)
        for path, content in ((issued.key, secret), (issued.keystore, secret + chain)):
            path.touch(mode=_OWNER_ONLY)
            path.write_bytes(content)
        return issued

    def revoke(self, *issued: Issued, is_outdated: bool = False) -> Path:
        """Write the list of all that are revoked, in the place of the one before (PEM).

        Args:
            issued: by this authority, and not to be taken any more.
            is_outdated: there ought to be a newer list since yesterday.
        """
        now = datetime.now(UTC)
        begun = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._name)
            .last_update(now - 2 * _DAY)
            .next_update(now - _DAY if is_outdated else now + _DAY)
        )
        for one in issued:
            certificate = x509.load_pem_x509_certificate(one.certificate.read_bytes())
            revoked = x509.RevokedCertificateBuilder().serial_number(certificate.serial_number)
            begun = begun.add_revoked_certificate(revoked.revocation_date(now - _DAY).build())
        path = self._folder / "revoked.pem"
        path.write_bytes(
            begun.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )
        return path


_BOTH_SIDES = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    issuers_key: ec.EllipticCurvePrivateKey,
    ends: datetime | None = None,
) -> x509.CertificateBuilder:
    ends = ends or datetime.now(UTC) + _LASTS
    begins = min(datetime.now(UTC), ends) - _BEGINS_BEFORE
    authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuers_key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(authority_key, critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
