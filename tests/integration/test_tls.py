"""TLS to real brokers: who gets in and how, and what is said where somebody does not."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from ssl import TLSVersion
from typing import NamedTuple

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)
from tests.integration.conftest import HOST
from tests.integration.test_client_quotas import gateway

from kvota.admin import (
    AdminClient,
    ClientQuotaAlteration,
    KvotaError,
    NewTopic,
    Patience,
    QuotaEntity,
    Tls,
    TlsError,
)
from kvota.client import Cluster, Security, UnreachableError, UsageError
from kvota.client.properties import security_of
from kvota.localkafka import Authority, Listener, LocalKafka, tls_settings
from kvota.localkafka.processes.command_line import SHORT_LIVED

PASSWORD, SECRET = "alice-secret", "open-sesame"
KVOTA = [sys.executable, "-m", "kvota.app.cli.main"]


class Place(NamedTuple):
    """A broker with listeners of every kind; all certificates are by its authority but those of ``stranger``."""

    kafka: LocalKafka
    authority: Authority
    stranger: Authority

    @property
    def tls(self) -> Tls:
        return Tls(cafile=self.authority.certificate)

    def by_stores(self, name: str) -> Security:
        """Of PKCS #12, as Java's clients name them."""
        folder, secret = self.authority.certificate.parent, SECRET.encode()
        issued, locked = self.authority.issue(name), BestAvailableEncryption(secret)
        certificate, authority = (
            x509.load_pem_x509_certificate(path.read_bytes())
            for path in (issued.certificate, self.authority.certificate)
        )
        key = load_pem_private_key(issued.key.read_bytes(), None)
        assert isinstance(key, EllipticCurvePrivateKey)
        stores = {
            "keystore": pkcs12.serialize_key_and_certificates(
                name.encode(), key, certificate, None, locked
            ),
            "truststore": pkcs12.serialize_java_truststore(
                [pkcs12.PKCS12Certificate(authority, b"ca")], locked
            ),
        }
        properties = {"security.protocol": "SSL"}
        for store, content in stores.items():
            path = folder / f"{name}-{store}.p12"
            path.write_bytes(content)
            properties |= {
                f"ssl.{store}.type": "PKCS12",
                f"ssl.{store}.location": str(path),
                f"ssl.{store}.password": SECRET,
            }
        return security_of(properties)

    def of_client(self, name: str, *, by: Authority | None = None, is_expired: bool = False) -> Tls:
        issued = (by or self.authority).issue(name, is_expired=is_expired)
        return Tls(cafile=self.authority.certificate, certfile=issued.keystore)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("certificates")
    authority, stranger = Authority(folder / "ours"), Authority(folder / "theirs", name="stranger")
    good, expired, elsewhere = (
        authority.issue("good", hosts=[HOST]),
        authority.issue("expired", hosts=[HOST], is_expired=True),
        authority.issue("elsewhere", hosts=["kafka.example"]),
    )
    required = tls_settings(good, authority, client_auth="required")
    kafka = LocalKafka(
        host=HOST,
        users={"alice": PASSWORD},
        tls="requested",
        listeners=[
            Listener(name="OURS", protocol="SSL", settings=tls_settings(good, authority)),
            Listener(name="LOGIN", protocol="SASL_SSL", settings=tls_settings(good, authority)),
            Listener(name="REQUIRED", protocol="SSL", settings=required),
            Listener(
                name="REQUIRED_1_2",
                protocol="SSL",
                settings={
                    **required,
                    "ssl.enabled.protocols": "TLSv1.2",
                    "ssl.protocol": "TLSv1.2",
                },
            ),
            Listener(name="EXPIRED", protocol="SSL", settings=tls_settings(expired, authority)),
            Listener(name="ELSEWHERE", protocol="SSL", settings=tls_settings(elsewhere, authority)),
        ],
        java_options=SHORT_LIVED,
    )
    with kafka:
        yield Place(kafka, authority, stranger)


Run = Callable[..., object]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """A program on one of the event loops."""
    return request.param  # type: ignore[no-any-return]


async def brokers(place: Place, listener: str, security: Security) -> int:
    servers = place.kafka.servers_of(listener)
    async with AdminClient(servers, security=security) as admin:
        described = await admin.describe_cluster()
        # The broker that it names is that of the same listener, and it is asked there again.
        assert [f"{node.host}:{node.port}" for node in described.nodes] == [servers]
        return len((await admin.describe_log_dirs([described.nodes[0].node_id])).values)


@pytest.mark.parametrize(
    ("listener", "security"),
    [
        ("OURS", lambda place: Security(tls=place.tls)),
        ("LOGIN", lambda place: Security.plain("alice", PASSWORD, tls=place.tls)),
        ("LOGIN", lambda place: Security.scram("alice", PASSWORD, tls=place.tls)),
        (
            "LOGIN",
            lambda place: Security.scram(
                "alice", PASSWORD, tls=place.tls, mechanism="SCRAM-SHA-256"
            ),
        ),
        ("REQUIRED", lambda place: Security(tls=place.of_client("alice"))),
        ("REQUIRED", lambda place: place.by_stores("carl")),
        ("REQUIRED_1_2", lambda place: Security(tls=place.of_client("bob"))),
        (
            "ELSEWHERE",
            lambda place: Security(
                tls=Tls(cafile=place.authority.certificate, check_hostname=False)
            ),
        ),
    ],
    ids=[
        "TLS",
        "PLAIN",
        "SCRAM-512",
        "SCRAM-256",
        "certificate",
        "PKCS12",
        "TLS 1.2",
        "no host check",
    ],
)
def test_who_is_let_in(
    run: Run, place: Place, listener: str, security: Callable[[Place], Security]
) -> None:
    assert run(brokers(place, listener, security(place))) == 1


def test_the_clusters_own_authority_signs_for_clients(place: Place) -> None:
    kafka = place.kafka
    with_one = Tls(
        cafile=kafka.authority.certificate, certfile=kafka.authority.issue("carol").keystore
    )
    without = Tls(cafile=kafka.authority.certificate)

    assert kafka.tls_bootstrap_servers == kafka.servers_of("SSL")
    for tls in (with_one, without):  # it is requested there, not required
        assert asyncio.run(brokers(place, "SSL", Security(tls=tls))) == 1
    security = Security.scram("alice", PASSWORD, tls=without)
    assert asyncio.run(brokers(place, "SASL_SSL", security)) == 1


@pytest.mark.parametrize(
    ("listener", "security", "error", "said"),
    [
        (
            "OURS",
            lambda place: Security(tls=Tls(cafile=place.stranger.certificate)),
            TlsError,
            r"is by nobody in /.*theirs/ca\.pem \(.*\)\. Set the certificate of the authority",
        ),
        (
            "OURS",
            lambda _: Security(tls=Tls()),
            TlsError,
            "is by nobody in the certificates that this machine trusts",
        ),
        ("EXPIRED", lambda place: Security(tls=place.tls), TlsError, "has expired. Renew it"),
        (
            "ELSEWHERE",
            lambda place: Security(tls=place.tls),
            TlsError,
            rf'is not for "{HOST}". Name a host that it is for',
        ),
        ("OURS", lambda _: Security(), TlsError, "speaks TLS: set security.protocol to SSL"),
        ("LOGIN", lambda _: Security.plain("alice", PASSWORD), TlsError, "speaks TLS: set"),
        (
            "PLAINTEXT",
            lambda place: Security(tls=place.tls),
            UnreachableError,
            "in the middle of the TLS handshake: maybe it speaks none there",
        ),
        (
            "SASL",
            lambda place: Security.scram("alice", PASSWORD, tls=place.tls),
            UnreachableError,
            "maybe it speaks none there",
        ),
        (
            "REQUIRED",
            lambda place: Security(tls=place.tls),
            TlsError,
            "asks for a certificate of this client, and none is set",
        ),
        (
            "REQUIRED_1_2",
            lambda place: Security(tls=place.tls),
            TlsError,
            "asks for a certificate of this client, and none is set",
        ),
        (
            "REQUIRED",
            lambda place: Security(tls=place.of_client("mallory", by=place.stranger)),
            TlsError,
            r"refuses our certificate /.*mallory-keystore\.pem \(certificate unknown\)",
        ),
        (
            "REQUIRED_1_2",
            lambda place: Security(tls=place.of_client("mallory", by=place.stranger)),
            TlsError,
            "refuses our certificate",
        ),
        (
            "REQUIRED",
            lambda place: Security(tls=place.of_client("late", is_expired=True)),
            TlsError,
            r"refuses our certificate /.*late-keystore\.pem",
        ),
        (
            "OURS",
            lambda place: Security(
                tls=Tls(
                    cafile=place.authority.certificate,
                    certfile=place.authority.issue("dora", password=SECRET).keystore,
                )
            ),
            UsageError,
            r"dora-keystore\.pem: its key is encrypted: set the password",
        ),
        (
            "OURS",
            lambda place: Security(tls=Tls(cafile=place.authority.certificate.parent / "no.pem")),
            UsageError,
            r"no\.pem: cannot be read",
        ),
        (
            "LOGIN",
            lambda place: Security(tls=place.tls),
            UnreachableError,
            "maybe it wants a login",
        ),
        (
            "LOGIN",
            lambda place: Security.plain("alice", "wrong-word", tls=place.tls),
            KvotaError,
            "sasl_authentication_failed",
        ),
        (
            "REQUIRED_1_2",
            lambda place: Security(
                tls=Tls(cafile=place.authority.certificate, version_min=TLSVersion.TLSv1_3)
            ),
            TlsError,
            "takes none of the versions of TLS that are spoken here",
        ),
    ],
    ids=[
        *("wrong authority", "machine's authorities", "expired", "wrong host"),
        *("plaintext on TLS", "plaintext login on TLS", "TLS on plaintext", "TLS on SASL"),
        *("no certificate", "no certificate, 1.2", "stranger", "stranger, 1.2", "ours expired"),
        *("key without password", "no file", "no login", "wrong password", "versions"),
    ],
)
def test_who_is_not_let_in_is_told_why_at_once(
    run: Run,
    place: Place,
    listener: str,
    security: Callable[[Place], Security],
    error: type[KvotaError],
    said: str,
) -> None:
    async def ask() -> None:
        # A call would try again for two minutes what might go well then.
        patience = Patience(default_api_timeout_ms=120_000)
        servers = place.kafka.servers_of(listener)
        async with AdminClient(servers, security=security(place), patience=patience) as admin:
            await admin.describe_cluster()

    with pytest.raises(error, match=said) as refused:
        run(ask())

    text = str(refused.value)
    assert place.kafka.servers_of(listener) in text or isinstance(refused.value, UsageError)
    assert not any(secret in text for secret in (PASSWORD, SECRET, "wrong-word", "PRIVATE"))


async def test_topics_are_made_and_described_by_many_at_once(place: Place) -> None:
    names = [f"by-tls-{number}" for number in range(20)]
    security = Security.scram("alice", PASSWORD, tls=place.tls)
    async with AdminClient(place.kafka.servers_of("LOGIN"), security=security) as admin:
        made = await asyncio.gather(
            *(admin.create_topics([NewTopic(name, 2, 1)]) for name in names)
        )
        for results in made:
            results.all()
        while not set(names) <= set(await admin.list_topics()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        described = await admin.describe_topics(names)
        assert [len(topic.partitions) for topic in described.values.values()] == [2] * 20
        (await admin.delete_topics(names)).all()


async def test_a_certificate_that_is_renewed_in_its_place_is_shown_next(
    place: Place, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.pem"
    mine.write_bytes(place.stranger.issue("mine").keystore.read_bytes())
    security = Security(tls=Tls(cafile=place.authority.certificate, certfile=mine))
    cluster = Cluster([place.kafka.servers_of("REQUIRED")], security=security)
    with pytest.raises(TlsError, match="refuses our certificate"):
        await cluster.metadata([])

    mine.write_bytes(place.authority.issue("mine").keystore.read_bytes())

    assert (await cluster.metadata([])).brokers
    await cluster.close()


# ------------------------------------------------------------------ commands


def command_config(place: Place, folder: Path, *, password: str = SECRET, **others: str) -> Path:
    """Properties as Kafka's own tools from 2.7 on take them."""
    client = place.authority.issue("tool", password=password or None)
    properties = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(place.authority.certificate),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(client.keystore),
        "ssl.key.password": password,
        **{name.replace("_", "."): value for name, value in others.items()},
    }
    path = folder / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items() if value))
    return path


def kvota(place: Place, config: Path, *args: str) -> subprocess.CompletedProcess[str]:
    where = [
        "--bootstrap-server",
        place.kafka.servers_of("REQUIRED"),
        "--command-config",
        str(config),
    ]
    command = [*KVOTA, *args[:2], *where, *args[2:]]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_one_file_of_properties_serves_kafkas_tools_and_ours(place: Place, tmp_path: Path) -> None:
    config = command_config(place, tmp_path, password="")  # Java 17 opens no key that is encrypted
    place.kafka.create_topic("seen-by-tools")

    ours = kvota(place, config, "topics", "list")
    settings = kvota(place, config, "configs", "--describe", "--entity-type", "topics", "--entity-name", "seen-by-tools")  # fmt: skip
    quotas = kvota(place, config, "quotas", "export")
    theirs = place.kafka.run_tool(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", place.kafka.servers_of("REQUIRED")),
        *("--command-config", str(config), "--list"),
    )

    assert (ours.returncode, settings.returncode, quotas.returncode) == (0, 0, 0), (
        ours.stderr + settings.stderr + quotas.stderr
    )
    assert "seen-by-tools" in theirs.stdout.split(), theirs.stderr
    assert "seen-by-tools" in ours.stdout.split()


@pytest.mark.parametrize(
    ("others", "code", "said"),
    [
        ({"ssl_key_password": ""}, 2, "ssl.key.password: "),
        ({"ssl_truststore_location": "/none.pem"}, 2, "ssl.truststore.location: /none.pem: cannot"),
        ({"ssl_truststore_type": "JKS"}, 2, 'ssl.truststore.type: "JKS" cannot be read'),
        ({"security_protocol": "PLAINTEXT"}, 2, "has no effect with security.protocol=PLAINTEXT"),
        ({"ssl_truststore_location": "STRANGER"}, 3, "is by nobody in "),
    ],
)
def test_a_command_that_gets_nowhere_says_why(
    place: Place, tmp_path: Path, others: dict[str, str], code: int, said: str
) -> None:
    others = {
        name: value.replace("STRANGER", str(place.stranger.certificate))
        for name, value in others.items()
    }

    done = kvota(place, command_config(place, tmp_path, **others), "topics", "list")

    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert SECRET not in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


# ------------------------------------------------------------------ a gateway's own connections


def own_login(place: Place, servers: str) -> str:
    prefix = "client.quota.callback.kafka.admin"
    properties = {
        "bootstrap.servers": servers,
        "security.protocol": "SSL",
        "ssl.truststore.location": str(place.authority.certificate),
        "ssl.keystore.location": str(place.authority.issue("gateway").keystore),
    }
    lines = [f'"{prefix}.{name}" = "{value}"' for name, value in properties.items()]
    return "\n".join(["", "[kafka]", *lines, ""])


async def test_a_gateway_keeps_its_quotas_by_tls_and_passes_clients_on_without(
    place: Place, tmp_path: Path
) -> None:
    process = gateway(
        tmp_path,
        place.kafka.bootstrap_servers,
        source="topic",
        more=own_login(place, place.kafka.servers_of("REQUIRED")),
    )
    path = tmp_path / "gateway.toml"
    path.write_text(path.read_text().replace("[quotas]", '[quotas]\ntopic = "quotas-by-tls"'))
    alice = QuotaEntity(user="alice")
    with process:
        async with AdminClient(process.bootstrap_servers) as admin:
            alterations = [ClientQuotaAlteration(alice, {"producer_byte_rate": 1e6})]
            async with asyncio.timeout(60):  # until it has made the topic
                while (await admin.alter_client_quotas(alterations)).errors:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            assert (await admin.describe_client_quotas())[alice] == {"producer_byte_rate": 1e6}
            # What the gateway asks itself leads nobody to the listener with TLS.
            nodes = (await admin.describe_cluster()).nodes
            assert {str(node.port) for node in nodes}.isdisjoint(
                server.partition(":")[2] for server in place.kafka.servers_of("REQUIRED").split(",")
            )
        async with AdminClient(place.kafka.bootstrap_servers) as admin:
            assert "quotas-by-tls" in await admin.list_topics(list_internal=True)


async def test_quotas_are_imported_by_tls_into_a_gateway_that_runs(
    place: Place, tmp_path: Path
) -> None:
    user, values = QuotaEntity(user="imported"), {"producer_byte_rate": 5e6}
    async with AdminClient(place.kafka.bootstrap_servers) as admin:
        (await admin.alter_client_quotas([ClientQuotaAlteration(user, values)])).all()
        async with asyncio.timeout(60):  # the broker follows its controller
            while user not in await admin.describe_client_quotas():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    jaas = "org.apache.kafka.common.security.scram.ScramLoginModule required "
    config = command_config(
        place,
        tmp_path,
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_jaas_config=f'{jaas} username="alice" password="{PASSWORD}";',
    )
    with gateway(tmp_path, place.kafka.sasl_bootstrap_servers) as process:
        done = await asyncio.to_thread(
            subprocess.run,
            [
                *(
                    *KVOTA,
                    "gateway",
                    "import-quotas",
                    "-c",
                    str(tmp_path / "gateway.toml"),
                    "--yes",
                ),
                *("--bootstrap-server", place.kafka.servers_of("LOGIN")),
                *("--command-config", str(config)),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        security = Security.scram("alice", PASSWORD)
        async with AdminClient(process.bootstrap_servers, security=security) as admin:
            assert (await admin.describe_client_quotas())[user] == values
    assert PASSWORD not in done.stderr + done.stdout + process.log


async def test_a_gateway_in_front_of_a_listener_with_tls_says_that_it_has_to_be_told_so(
    place: Place, tmp_path: Path
) -> None:
    with gateway(tmp_path, place.kafka.servers_of("OURS")) as process:
        with pytest.raises(UnreachableError):
            async with AdminClient(process.bootstrap_servers):
                pass
        async with asyncio.timeout(60):
            while "or has TLS, which the gateway speaks to brokers where" not in process.log:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


def test_a_gateway_whose_own_certificate_cannot_be_read_does_not_start(
    place: Place, tmp_path: Path
) -> None:
    more = own_login(place, place.kafka.servers_of("OURS"))
    (place.authority.certificate.parent / "gateway-keystore.pem").unlink()
    process = gateway(tmp_path, place.kafka.bootstrap_servers, more=more)
    for options in ((), ("--check",)):
        done = subprocess.run(
            [*KVOTA, "gateway", "-c", str(tmp_path / "gateway.toml"), *options],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 2, done.stderr
        assert 'kafka.admin.ssl.keystore.location": ' in done.stderr
        assert "gateway-keystore.pem: cannot be read" in done.stderr
    assert process.log == ""
