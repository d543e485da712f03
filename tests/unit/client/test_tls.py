"""Certificates, keys and passwords as files and as texts: what can be used, and what is said of what cannot."""

import resource
import ssl
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)

from kvota.client import Security, Tls
from kvota.client.properties import cluster_of, security_of
from kvota.localkafka import Authority
from kvota.model.errors import UsageError
from kvota.tls.pem import TlsSettingError, state_of
from kvota.tls.secret import Secret

SERVERS = {"bootstrap.servers": "kafka-1:9093"}
SECRET = "open-sesame"
Properties = dict[str, str]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority's files: a client ``alice``, ``locked`` with an encrypted key, and what is no good."""
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder)
    authority.issue("alice")
    authority.issue("locked", password=SECRET)
    (folder / "store.jks").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    (folder / "store.p12").write_bytes(b"\x30\x82\x0a\x0b")
    (folder / "empty.pem").write_text("")
    block = (folder / "ca.pem").read_text()
    (folder / "damaged.pem").write_text(block[:40] + "AAAA" + block[44:])
    write_stores(folder)
    return folder


def write_stores(folder: Path) -> None:
    """``alice.p12``: her certificate and key; ``trusted.p12``: the authority's; ``SECRET`` opens them."""
    read = x509.load_pem_x509_certificate
    alice, authority = (read((folder / f"{name}.pem").read_bytes()) for name in ("alice", "ca"))
    key = load_pem_private_key((folder / "alice.key").read_bytes(), None)
    locked = BestAvailableEncryption(SECRET.encode())
    assert isinstance(key, EllipticCurvePrivateKey)
    keystore = pkcs12.serialize_key_and_certificates(b"alice", key, alice, [authority], locked)
    (folder / "alice.p12").write_bytes(keystore)
    truststore = pkcs12.serialize_java_truststore(
        [pkcs12.PKCS12Certificate(authority, b"ca")], locked
    )
    (folder / "trusted.p12").write_bytes(truststore)
    (folder / "cut.p12").write_bytes(keystore[:200])


def test_a_store_of_very_many_certificates_is_read(files: Path, tmp_path: Path) -> None:
    """Above 64 KB its length is written in another way."""
    ca = x509.load_pem_x509_certificate((files / "ca.pem").read_bytes())
    entries = [pkcs12.PKCS12Certificate(ca, f"ca-{number}".encode()) for number in range(150)]
    store = pkcs12.serialize_java_truststore(entries, BestAvailableEncryption(SECRET.encode()))
    (tmp_path / "large.p12").write_bytes(store)
    assert store.startswith(b"\x30\x83")

    context = Tls(cafile=tmp_path / "large.p12", cafile_password=SECRET).context()

    assert len(names_of(context)) == 1


def names_of(context: ssl.SSLContext) -> list[object]:
    return [certificate["subject"] for certificate in context.get_ca_certs()]


def test_a_broker_is_always_checked_and_nothing_older_than_tls_1_2_is_spoken(files: Path) -> None:
    context = Tls(cafile=files / "ca.pem").context()

    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert len(names_of(context)) == 1


def test_the_machines_certificates_are_trusted_where_none_are_set() -> None:
    ours = Tls().context().get_ca_certs(binary_form=True)

    assert set(ours) == set(ssl.create_default_context().get_ca_certs(binary_form=True))


def test_without_the_check_of_the_host_the_certificate_is_still_checked(files: Path) -> None:
    context = Tls(cafile=files / "ca.pem", check_hostname=False).context()

    assert context.verify_mode is ssl.CERT_REQUIRED
    assert not context.check_hostname


@pytest.mark.parametrize(
    "made",
    [
        lambda files: Tls(certfile=files / "alice-keystore.pem"),
        lambda files: Tls(certfile=files / "alice.pem", keyfile=files / "alice.key"),
        lambda files: Tls(certfile=files / "locked-keystore.pem", password=SECRET),
        lambda files: Tls(
            certfile=(files / "locked.pem").read_text(),
            keyfile=(files / "locked.key").read_text(),
            password=SECRET,
        ),
        lambda files: Tls(
            cafile=(files / "ca.pem").read_text(),
            certfile=(files / "alice-keystore.pem").read_text(),
        ),
    ],
    ids=["one file", "two files", "encrypted", "texts", "one text"],
)
def test_a_certificate_of_our_own(files: Path, made: Callable[[Path], Tls]) -> None:
    open_files = len(list(Path("/dev/fd").iterdir()))

    assert made(files).context()

    assert len(list(Path("/dev/fd").iterdir())) == open_files


def test_comments_between_certificates_may_be_in_any_language(files: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    block = (files / "ca.pem").read_text()
    bundle.write_text(f"# TÜRKTRUST\n{block}\n# second\n{(files / 'alice.pem').read_text()}")

    assert Tls(cafile=bundle).context().cert_store_stats()["x509"] == 2


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"cafile": "none.pem"}, "none.pem: cannot be read: No such file"),
        ({"cafile": "."}, "cannot be read: Is a directory"),
        ({"cafile": "empty.pem"}, "empty.pem: has no certificate in PEM"),
        ({"cafile": "alice.key"}, "alice.key: has no certificate in PEM"),
        ({"cafile": "damaged.pem"}, "damaged.pem: has a certificate that is damaged"),
        ({"cafile": "store.jks"}, "store.jks: is a store of Java's"),
        ({"cafile": "store.p12"}, "keytool -list -rfc"),
        ({"certfile": "alice.pem"}, "alice.pem: has no key in PEM"),
        ({"certfile": "alice.key"}, "alice.key: has no certificate in PEM"),
        ({"certfile": "alice.pem", "keyfile": "none.key"}, "none.key: cannot be read"),
        ({"certfile": "alice.pem", "keyfile": "ca.pem"}, "ca.pem: has no key in PEM"),
        (
            {"certfile": "alice.pem", "keyfile": "locked.key", "password": SECRET},
            "its key is not that of the certificate",
        ),
        ({"certfile": "locked-keystore.pem"}, "locked-keystore.pem: its key is encrypted"),
        ({"certfile": "locked-keystore.pem", "password": "wrong-word"}, "does not open its key"),
        ({"certfile": "locked-keystore.pem", "password": "x" * 2000}, "does not open its key"),
    ],
)
def test_what_cannot_be_used_is_named(files: Path, settings: Properties, said: str) -> None:
    paths = {
        name: value if name == "password" else files / value for name, value in settings.items()
    }
    with pytest.raises(UsageError) as refused:
        Tls(**paths).context()  # type: ignore[arg-type]

    assert said in str(refused.value)
    assert "PRIVATE KEY" not in str(refused.value).replace("BEGIN PRIVATE KEY", "")
    for secret in (SECRET, "wrong-word"):
        assert secret not in str(refused.value)


@pytest.mark.parametrize("setting", ["keyfile", "password"])
def test_a_key_or_a_password_is_of_a_certificate(setting: str) -> None:
    with pytest.raises(UsageError, match="of a certificate, and none is set"):
        Tls(**{setting: "x"})  # type: ignore[arg-type]


def test_no_text_has_the_key_or_its_password(files: Path) -> None:
    key = (files / "locked.key").read_text()
    security = Security(
        tls=Tls(certfile=files / "locked.pem", keyfile=key, password=SECRET),
        mechanism="PLAIN",
        username="alice",
        password="of-the-user",
    )

    for text in (repr(security), str(security), f"{security.tls}"):
        assert SECRET not in text
        assert "PRIVATE" not in text
        assert "of-the-user" not in text


@pytest.mark.parametrize("setting", ["cafile", "certfile", "keyfile"])
@pytest.mark.parametrize(
    "headed",
    [
        lambda key: (
            f"Bag Attributes\n    friendlyName: alice\nKey Attributes: <No Attributes>\n{key}"
        ),
        lambda key: f"Bag Attributes {key}".replace("\n", " "),
        lambda key: key.replace("-----", "--"),
        lambda key: 2 * "".join(key.splitlines()[1:-1]),
    ],
    ids=["openssl", "one line", "damaged", "bare"],
)
def test_a_key_in_the_wrong_place_or_form_is_in_no_text(
    files: Path, setting: str, headed: Callable[[str], str]
) -> None:
    key = (files / "alice.key").read_text()
    secret = key.splitlines()[1][20:50]
    tls = Tls(**{"certfile": files / "ca.pem", setting: headed(key)})  # type: ignore[arg-type]

    with pytest.raises(UsageError) as refused:
        tls.context()

    shown = "".join(traceback.format_exception(refused.value))
    for part in (repr(tls), repr(Security(tls=tls)), tls.trusted_text, tls.certificate_text, shown):
        assert secret not in part


def test_what_openssl_writes_before_the_blocks_is_taken(files: Path) -> None:
    both = "".join((files / name).read_text() for name in ("alice.key", "alice.pem"))

    Tls(certfile=f"Bag Attributes\n    friendlyName: alice\n{both}").context()


def test_a_renewed_certificate_is_read_and_a_half_written_one_is_not(tmp_path: Path) -> None:
    first, second = (
        Authority(tmp_path / "1", name="first"),
        Authority(tmp_path / "2", name="second"),
    )
    cafile = tmp_path / "ca.pem"
    cafile.write_bytes(first.certificate.read_bytes())
    tls = Tls(cafile=cafile)
    before = tls.context()
    assert tls.context() is before

    cafile.write_bytes(second.certificate.read_bytes()[:50])
    assert tls.context() is before
    cafile.write_bytes(second.certificate.read_bytes() + b"\n")

    assert "second" in str(names_of(tls.context()))
    assert "first" not in str(names_of(tls.context()))


def test_what_cannot_be_taken_over_is_said_once_for_each_state(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority, password = Authority(tmp_path), tmp_path / "password"
    issued = authority.issue("alice", password="first-word")
    password.write_text("first-word")
    tls = Tls(
        cafile=authority.certificate, certfile=issued.keystore, password=Secret(file=password)
    )
    before = tls.context()
    assert caplog.messages == []

    for said in ("does not open its key", "its first line is empty"):
        password.write_text("another-word" if "open" in said else "")
        assert [tls.context(), tls.context(), tls.context_in_force()] == [before] * 3
        (line,) = caplog.messages
        assert line.startswith("TLS to brokers: password")
        assert "what was in force stays" in line
        assert said in line
        caplog.clear()
    authority.issue("alice", password="second-word")
    password.write_text("second-word")

    caplog.set_level("INFO")
    assert tls.context() is not before
    (line,) = caplog.messages
    assert f"shows the certificate {issued.keystore}, which ends on" in line
    assert "-word" not in line


@contextmanager
def no_descriptors() -> Iterator[None]:
    """This process may open no file meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_failed_for_a_passing_reason_is_taken_over_when_it_has_passed(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = Tls(cafile=authority.certificate)
    tls.context()
    Authority(tmp_path, name="second")

    with no_descriptors():
        with pytest.raises(TlsSettingError, match="Too many open files"):
            tls.look()
        assert tls.look() == ""  # said once

    assert tls.look() == f"trusts {authority.certificate}"


def test_who_may_not_wait_for_files_gets_what_was_read_last(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = Tls(cafile=authority.certificate)
    before = tls.context_in_force()
    Authority(tmp_path, name="second")

    assert tls.context_in_force() is before
    assert tls.look() == f"trusts {authority.certificate}"
    assert "second" in str(names_of(tls.context_in_force()))


def test_a_file_that_may_be_read_by_others_now_is_looked_at_again(tmp_path: Path) -> None:
    path = tmp_path / "server.key"
    path.touch(mode=0o600)
    before = state_of(path)
    time.sleep(0.05)  # more than a tick of the clock that files go by

    path.chmod(0o640)

    assert state_of(path) != before


# ------------------------------------------------------------------ properties


def in_files(files: Path, properties: Properties) -> Properties:
    return {key: value.replace("@", f"{files}/") for key, value in properties.items()}


@pytest.mark.parametrize(
    ("properties", "tls"),
    [
        ({}, {}),
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": "@ca.pem"},
            {"cafile": "@ca.pem"},
        ),
        ({"ssl.ca.location": "@ca.pem"}, {"cafile": "@ca.pem"}),
        (
            {"ssl.keystore.location": "@alice-keystore.pem", "ssl.keystore.type": "PEM"},
            {"certfile": "@alice-keystore.pem"},
        ),
        (
            {
                "ssl.certificate.location": "@locked.pem",
                "ssl.key.location": "@locked.key",
                "ssl.key.password": SECRET,
            },
            {"certfile": "@locked.pem", "keyfile": "@locked.key", "password": SECRET},
        ),
        (
            {
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": "@alice.p12",
                "ssl.keystore.password": SECRET,
                "ssl.key.password": SECRET,
                "ssl.truststore.type": "pkcs12",
                "ssl.truststore.location": "@trusted.p12",
                "ssl.truststore.password": SECRET,
            },
            {
                "certfile": "@alice.p12",
                "password": SECRET,
                "cafile": "@trusted.p12",
                "cafile_password": SECRET,
            },
        ),
        (
            {"ssl.keystore.location": "@alice.p12", "ssl.keystore.password": SECRET},
            {"certfile": "@alice.p12", "password": SECRET},
        ),
        ({"ssl.endpoint.identification.algorithm": ""}, {"check_hostname": False}),
        ({"ssl.endpoint.identification.algorithm": "HTTPS"}, {}),
        (
            {"ssl.enabled.protocols": "TLSv1.3"},
            {"version_min": ssl.TLSVersion.TLSv1_3, "version_max": ssl.TLSVersion.TLSv1_3},
        ),
        ({"ssl.protocol": "TLSv1.2"}, {"version_max": ssl.TLSVersion.TLSv1_2}),
        ({"ssl.protocol": "TLS"}, {}),
    ],
)
def test_javas_and_librdkafkas_names(
    files: Path, properties: Properties, tls: dict[str, object]
) -> None:
    asked = in_files(files, {"security.protocol": "SSL", **properties})
    wanted = {
        name: Path(value.replace("@", f"{files}/")) if "@" in str(value) else value  # type: ignore[attr-defined]
        for name, value in tls.items()
    }

    assert security_of(asked) == Security(tls=Tls(**wanted))  # type: ignore[arg-type]


@pytest.mark.parametrize("between", [" ", "\\n", "\n", "\r\n", ""])
def test_texts_on_one_line_as_java_takes_them(files: Path, between: str) -> None:
    def line(name: str) -> str:
        return between.join((files / name).read_text().split("\n"))

    security = security_of(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": 'x required username="u" password="p";',
            "ssl.truststore.certificates": line("ca.pem"),
            "ssl.keystore.certificate.chain": line("locked.pem"),
            "ssl.keystore.key": line("locked.key"),
            "ssl.key.password": SECRET,
        }
    )

    assert security.username == "u"
    assert security.tls is not None
    assert len(security.tls.context().get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"ssl.truststore.location": "@none.pem"}, "ssl.truststore.location: @none.pem: cannot"),
        ({"ssl.ca.location": "@store.jks"}, "ssl.ca.location: @store.jks: is a store of Java's"),
        (
            {"ssl.truststore.type": "JKS"},
            'ssl.truststore.type: "JKS" cannot be read. Name PEM files',
        ),
        ({"ssl.keystore.type": "jks"}, "or make PKCS #12 of it: keytool -importkeystore"),
        (
            {"ssl.truststore.location": "@store.jks", "ssl.truststore.password": SECRET},
            "ssl.truststore.location: @store.jks: is JKS, which only Java can read",
        ),
        (
            {"ssl.keystore.location": "@store.jks", "ssl.keystore.password": SECRET},
            "ssl.keystore.location: @store.jks: is JKS, which only Java can read",
        ),
        (
            {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": "@ca.pem",
                "ssl.truststore.password": SECRET,
            },
            "ssl.truststore.password: PEM files have none",
        ),
        ({"ssl.truststore.password": SECRET}, "ssl.truststore.location: missing"),
        (
            {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "@alice.p12"},
            "ssl.keystore.password: missing; it opens",
        ),
        (
            {"ssl.truststore.location": "@trusted.p12", "ssl.truststore.password": "wrong-word"},
            "ssl.truststore.password: @trusted.p12: the password does not open it",
        ),
        (
            {"ssl.keystore.location": "@alice.p12", "ssl.keystore.password": "wrong-word"},
            "ssl.keystore.password: @alice.p12: the password does not open it",
        ),
        (
            {"ssl.keystore.location": "@trusted.p12", "ssl.keystore.password": SECRET},
            "ssl.keystore.location: @trusted.p12: has no key",
        ),
        (
            {"ssl.keystore.location": "@cut.p12", "ssl.keystore.password": SECRET},
            "ssl.keystore.location: @cut.p12: cannot be read as PKCS #12",
        ),
        (
            {"ssl.keystore.location": "@alice-keystore.pem", "ssl.keystore.password": SECRET},
            "ssl.keystore.location: @alice-keystore.pem: is not PKCS #12",
        ),
        (
            {"ssl.truststore.location": "@ca.pem", "ssl.truststore.password": SECRET},
            "ssl.truststore.location: @ca.pem: is not PKCS #12",
        ),
        (
            {
                "ssl.keystore.location": "@alice.p12",
                "ssl.keystore.password": SECRET,
                "ssl.key.location": "@alice.key",
            },
            "ssl.key.location: with ssl.keystore.type=PKCS12 all of it stands in ssl.keystore.location",
        ),
        (
            {
                "ssl.keystore.location": "@alice.p12",
                "ssl.keystore.password": SECRET,
                "ssl.key.password": "wrong-word",
            },
            "ssl.key.password: it is another one than ssl.keystore.password",
        ),
        (
            {"ssl.truststore.location": "@ca.pem", "ssl.ca.location": "@ca.pem"},
            "ssl.ca.location: ssl.truststore.location says the same",
        ),
        ({"ssl.keystore.location": "@alice.pem"}, "ssl.keystore.location: @alice.pem: has no key"),
        ({"ssl.key.location": "@alice.key"}, "ssl.key.location: it is of a certificate"),
        ({"ssl.key.password": SECRET}, "ssl.key.password: it is of a certificate"),
        (
            {"ssl.keystore.location": "@locked-keystore.pem"},
            "ssl.key.password: @locked-keystore.pem: its key is encrypted",
        ),
        (
            {"ssl.keystore.location": "@locked-keystore.pem", "ssl.key.password": "wrong-word"},
            "ssl.key.password: @locked-keystore.pem: the password does not open",
        ),
        (
            {"ssl.truststore.certificates": "@ca.pem"},
            "ssl.truststore.certificates: this is no text",
        ),
        ({"ssl.enabled.protocols": "TLSv1.2,TLSv1"}, 'ssl.enabled.protocols: "TLSv1" is not'),
        ({"ssl.protocol": "SSLv3"}, 'ssl.protocol: "SSLv3" is not spoken'),
        ({"ssl.endpoint.identification.algorithm": "no"}, '"no" is not known; https checks'),
        ({"ssl.cipher.suites": "x"}, "ssl.cipher.suites is not a property that is known"),
        (
            {"security.protocol": "SASL_PLAINTEXT", "ssl.ca.location": "@ca.pem"},
            "ssl.ca.location has no effect with security.protocol=SASL_PLAINTEXT",
        ),
        ({"security.protocol": "PLAINTEXT", "ssl.key.password": SECRET}, "write SSL"),
        ({"security.protocol": "TLS"}, 'security.protocol: "TLS" cannot be spoken'),
    ],
)
def test_a_property_that_cannot_be_used_is_named(
    files: Path, properties: Properties, said: str
) -> None:
    with pytest.raises(UsageError) as refused:
        cluster_of(in_files(files, {"security.protocol": "SSL", **SERVERS, **properties}))

    assert said.replace("@", f"{files}/") in str(refused.value)
    for secret in (SECRET, "wrong-word"):
        assert secret not in str(refused.value)
