"""The tables of gateway.toml that say how the gateway encrypts: what they mean, and what is said where they cannot be used."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)

from kvota.app.check import doubts, when_certificates_end
from kvota.app.config import GatewayConfig, read_config
from kvota.callbacks import DefaultQuotaCallback
from kvota.localkafka.cluster.certificates import Authority
from kvota.model.client_quotas import ClientQuotas
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.tls.server_tls import ClientAuth, make_context

UPSTREAM = '[upstream]\nbootstrap_servers = ["kafka-1:9092"]\n'
SECRET = "the password of the key"
ASKING = 'certfile = "server-keystore.pem"\nclient_auth = "required"\nclient_cafile = "ca.pem"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """``server.pem`` and ``server.key``; ``locked.key`` by a password; ``other.key``; ``store.p12``."""
    authority = Authority(tmp_path)
    plain, locked = authority.issue("server"), authority.issue("locked", password=SECRET)
    authority.issue("other")
    authority.issue("expired", is_expired=True)
    key = load_pem_private_key(locked.key.read_bytes(), SECRET.encode())
    certificate = x509.load_pem_x509_certificate(locked.certificate.read_bytes())
    store = pkcs12.serialize_key_and_certificates(
        b"server", key, certificate, None, BestAvailableEncryption(SECRET.encode())
    )
    (tmp_path / "store.p12").write_bytes(store)
    (tmp_path / "password").write_text(f"{SECRET}\n")
    (tmp_path / "wrong").write_text("another one\n")
    (tmp_path / "empty").touch()
    revoked = authority.revoke(authority.issue("revoked-client")).read_text()
    (tmp_path / "both.pem").write_text(revoked + authority.certificate.read_text())
    (tmp_path / "damaged.pem").write_text(revoked[:100] + "!" + revoked[101:])
    assert plain.key.exists()
    return tmp_path


def read(folder: Path, text: str) -> tuple[GatewayConfig, list[str]]:
    path = folder / "gateway.toml"
    path.write_text(UPSTREAM + text)
    (folder / "quotas.toml").touch()
    config, faults = read_config(path)
    return config, [str(fault) for fault in faults]


def test_plaintext_inside_and_tls_outside(folder: Path) -> None:
    config, faults = read(
        folder,
        """
[listeners.outside]
advertised_host = "kafka.example"
bootstrap_port = 9292
node_port_base = 9300
[listeners.outside.tls]
certfile = "server.pem"
keyfile = "server.key"
client_auth = "required"
client_cafile = "ca.pem"
principal_mapping_rules = "RULE:^CN=(.*)$/$1/"
versions = ["TLSv1.3"]
""",
    )

    assert faults == []
    inside, outside = config.gateway.listeners
    assert inside.tls is None
    assert inside.advertised.address_of(3) == ("127.0.0.1", 9203)
    assert outside.advertised.address_of(3) == ("kafka.example", 9303)
    assert outside.tls is not None
    assert outside.tls.client_auth is ClientAuth.REQUIRED
    assert outside.tls.mapper.name_of("CN=orders") == "orders"
    assert {9192, 9200, 9292, 9300} <= config.gateway.ports


def test_one_port_for_all_nodes(folder: Path) -> None:
    config, faults = read(
        folder,
        """
[listeners.outside]
bootstrap_port = 9292
node_host = "broker-{node}.kafka.example"
tls = { certfile = "server.pem", keyfile = "server.key" }
""",
    )

    assert faults == []
    outside = config.gateway.listeners[1]
    assert outside.advertised.address_of(3) == ("broker-3.kafka.example", 9292)
    assert outside.ports == {9292: None}


@pytest.mark.parametrize(
    "how",
    [
        'certfile = "locked.pem"\nkeyfile = "locked.key"\npassword_file = "password"',
        'certfile = "locked.pem"\nkeyfile = "locked.key"\npassword_env = "KVOTA_TEST_PASSWORD"',
        'certfile = "store.p12"\npassword_file = "password"',
        'certfile = "server-keystore.pem"',
    ],
)
def test_a_key_is_opened(folder: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setenv("KVOTA_TEST_PASSWORD", SECRET)

    config, faults = read(folder, f"[gateway.tls]\n{how}\n")

    assert faults == []
    assert config.gateway.tls is not None
    assert make_context(config.gateway.tls).ends["certfile"] > datetime.now(UTC) + timedelta(
        days=300
    )


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ('certfile = "none.pem"', "certfile", "none.pem: cannot be read: No such file"),
        ('certfile = "server.pem"', "certfile", "has no key in PEM"),
        ('certfile = "server.pem"\nkeyfile = "other.key"', "keyfile", "its key is not that of"),
        ('certfile = "server.pem"\nkeyfile = "ca.pem"', "keyfile", "has no key in PEM"),
        ('certfile = "empty"\nkeyfile = "server.key"', "certfile", "has no certificate in PEM"),
        (
            'certfile = "locked.pem"\nkeyfile = "locked.key"\npassword_file = "wrong"',
            "password_file",
            "the password does not open its key",
        ),
        (
            'certfile = "locked.pem"\nkeyfile = "locked.key"',
            "password_file",
            "its key is encrypted: set the password",
        ),
        ('certfile = "store.p12"\npassword_file = "wrong"', "password_file", "does not open it"),
        ('certfile = "store.p12"', "password_file", "it is encrypted: set the password"),
        (
            'certfile = "server.pem"\nkeyfile = "server.key"\npassword_env = "KVOTA_NO_SUCH"',
            "password_env",
            "the environment has no variable KVOTA_NO_SUCH",
        ),
        (
            'certfile = "server.pem"\nkeyfile = "server.key"\npassword_file = "empty"',
            "password_file",
            "its first line is empty",
        ),
        (
            f'certfile = "server-keystore.pem"\npassword = "{SECRET}"',
            "password",
            "stands in no settings",
        ),
        (
            'certfile = "server.pem"\nkeyfile = "server.key"\nclient_auth = "required"',
            "client_cafile",
            "missing, and client_auth",
        ),
        (
            'certfile = "server.pem"\nkeyfile = "server.key"\nclient_auth = "must"',
            "client_auth",
            'is not one of "none"',
        ),
        (
            'certfile = "server.pem"\nkeyfile = "server.key"\nversions = ["SSLv3"]',
            "versions",
            "is not a list of versions of TLS",
        ),
        (
            'certfile = "server.pem"\nkeyfile = "server.key"\nprincipal_mapping_rules = "default"',
            "principal_mapping_rules",
            '"default" is no rule',
        ),
        (
            'certfile = "server.pem"\nkeyfile = "server.key"\nciphers = "NONSENSE"',
            "ciphers",
            "has no cipher",
        ),
        (
            f'{ASKING}client_crlfile = "none.pem"',
            "client_crlfile",
            "none.pem: cannot be read: No such file",
        ),
        (
            f'{ASKING}client_crlfile = "empty"',
            "client_crlfile",
            "has no list of revoked certificates in PEM",
        ),
        (
            f'{ASKING}client_crlfile = "both.pem"',
            "client_crlfile",
            "has a CERTIFICATE, too; lists of what is revoked stand in a file of their own",
        ),
        (f'{ASKING}client_crlfile = "damaged.pem"', "client_crlfile", "that is damaged"),
        (
            'certfile = "server-keystore.pem"\nclient_crlfile = "revoked.pem"',
            "client_crlfile",
            "no client is asked for a certificate",
        ),
        ("", "certfile", "missing"),
    ],
)
def test_what_cannot_be_used_is_said_with_its_place(
    folder: Path, text: str, place: str, said: str
) -> None:
    _, faults = read(folder, f"[gateway.tls]\n{text}\n")

    (fault,) = faults
    assert f": gateway.tls.{place}: " in fault
    assert said in fault
    assert SECRET not in fault.replace(f'password = "{SECRET}"', "")


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("[listeners.a]\nnode_port_base = 9300", "listeners.a.bootstrap_port", "missing"),
        ("[listeners.a]\nbootstrap_port = 9300", "listeners.a.node_port_base", "missing"),
        (
            "[listeners.a]\nbootstrap_port = 9192\nnode_port_base = 9300",
            "listeners.a.bootstrap_port",
            "port 9192 is also one of [gateway]",
        ),
        (
            '[listeners.a]\nbootstrap_port = 9292\nnode_host = "b-{node}.example"',
            "listeners.a.node_host",
            "without TLS a client does not say",
        ),
        (
            '[listeners.a]\nbootstrap_port = 9292\nnode_host = "b.example"\nnode_port_base = 9300',
            "listeners.a.node_host",
            "is not a host name with {node} in it",
        ),
        ("[listeners]\na = 1", "listeners.a", "not a table"),
        ('[upstream.tls]\ncafile = "none.pem"', "upstream.tls.cafile", "cannot be read"),
        ('[upstream.tls]\nkeyfile = "server.key"', "upstream.tls.keyfile", "of a certificate"),
        ('[upstream.tls]\ncrlfile = "empty"', "upstream.tls.crlfile", "has no list of revoked"),
    ],
)
def test_what_else_is_wrong_is_said_with_its_place(
    folder: Path, text: str, place: str, said: str
) -> None:
    _, faults = read(folder, text + "\n")

    assert any(f": {place}: " in fault and said in fault for fault in faults), faults


def test_it_is_said_when_a_certificate_ends(folder: Path) -> None:
    config, faults = read(folder, '[gateway.tls]\ncertfile = "expired-keystore.pem"\n')

    assert faults == []
    yesterday = (datetime.now(UTC) - timedelta(days=1)).strftime("%Y-%m-%d")
    assert when_certificates_end(config) == [
        f"gateway.tls: {folder / 'expired-keystore.pem'} ends on {yesterday}"
    ]
    said = doubts(config, ClientQuotas(), DefaultQuotaCallback(ConfiguredQuotas()))
    assert any("has ended; no client takes it" in sentence for sentence in said)


@pytest.mark.parametrize("is_outdated", [False, True])
def test_it_is_said_when_a_list_of_revoked_certificates_is_out_of_date(
    folder: Path, is_outdated: bool
) -> None:
    authority = Authority(folder)
    authority.issue("server")
    authority.revoke(is_outdated=is_outdated)
    config, faults = read(folder, f'[gateway.tls]\n{ASKING}client_crlfile = "revoked.pem"\n')

    assert faults == []
    day = datetime.now(UTC) + timedelta(days=-1 if is_outdated else 1)
    until = f"gateway.tls: {folder / 'revoked.pem'} is good until {day:%Y-%m-%d}"
    assert any(line.startswith(until) for line in when_certificates_end(config))
    said = doubts(config, ClientQuotas(), DefaultQuotaCallback(ConfiguredQuotas()))
    assert any("is out of date since" in sentence for sentence in said) == is_outdated


def test_it_is_said_when_what_brokers_are_shown_and_trusted_by_ends(folder: Path) -> None:
    config, faults = read(
        folder,
        """
[upstream.tls]
cafile = "expired.pem"
certfile = "expired-keystore.pem"
crlfile = "revoked.pem"
""",
    )

    assert faults == []
    now = datetime.now(UTC)
    yesterday = (now - timedelta(days=1)).strftime("%Y-%m-%d")
    trusted, shown, revoked = (
        f"upstream.tls: {folder / name}"
        for name in ("expired.pem", "expired-keystore.pem", "revoked.pem")
    )
    lines = when_certificates_end(config)
    assert {f"{trusted} ends on {yesterday}", f"{shown} ends on {yesterday}"} <= set(lines)
    until = f"{revoked} is good until {now + timedelta(days=1):%Y-%m-%d}"
    assert any(line.startswith(until) for line in lines)
    said = doubts(config, ClientQuotas(), DefaultQuotaCallback(ConfiguredQuotas()))
    assert f"{shown} has ended; no broker takes it." in " ".join(said)
    assert (
        f"{trusted} has a certificate that has ended: behind its end no broker is taken"
        in " ".join(said)
    )
    assert "out of date" not in " ".join(said)


def test_a_list_of_revoked_brokers_that_is_out_of_date_is_said(folder: Path) -> None:
    Authority(folder).revoke(is_outdated=True)
    config, faults = read(folder, '[upstream.tls]\ncafile = "ca.pem"\ncrlfile = "revoked.pem"\n')

    assert faults == []
    said = " ".join(doubts(config, ClientQuotas(), DefaultQuotaCallback(ConfiguredQuotas())))
    assert f"upstream.tls: {folder / 'revoked.pem'} is out of date since" in said
    assert "no broker is trusted" in said


def test_another_password_in_its_file_is_no_other_setting(folder: Path) -> None:
    """So a reload does not say that it needs a restart."""
    text = """
[upstream.tls]
certfile = "renewed.pem"
keyfile = "renewed.key"
password_file = "password"
"""
    authority = Authority(folder)
    authority.issue("renewed", password=SECRET)
    before, _ = read(folder, text)
    authority.issue("renewed", password="another one")
    (folder / "password").write_text("another one\n")
    after, faults = read(folder, text)

    assert faults == []
    assert before.gateway.upstream_tls == after.gateway.upstream_tls
    assert before.gateway.upstream_tls is not None
    assert "shows the certificate" in before.gateway.upstream_tls.look()


def test_the_first_certificate_to_end_of_those_who_may_sign_for_clients_is_said(
    folder: Path,
) -> None:
    both = (folder / "ca.pem").read_text() + (folder / "expired.pem").read_text()
    (folder / "several.pem").write_text(both)
    tables = f"[gateway.tls]\n{ASKING}".replace("ca.pem", "several.pem")
    config, faults = read(folder, tables)

    assert faults == []
    yesterday = (datetime.now(UTC) - timedelta(days=1)).strftime("%Y-%m-%d")
    trusted = f"gateway.tls: {folder / 'several.pem'}"
    assert f"{trusted} ends on {yesterday}" in when_certificates_end(config)
    said = doubts(config, ClientQuotas(), DefaultQuotaCallback(ConfiguredQuotas()))
    assert any(f"{trusted} has a certificate that has ended" in one for one in said)
