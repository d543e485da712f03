"""Clusters that the tests of this folder share; each is started when the first test asks for it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.settings_client import MODULE

from kvota.localkafka import Acl, LocalKafka
from kvota.localkafka.cluster.acls import Operation
from kvota.localkafka.cluster.listeners import Listener
from kvota.localkafka.processes.command_line import SHORT_LIVED

HERE = Path(__file__).parent
# The first test of a run may fetch Kafka and start three nodes on a busy machine.
TIMEOUT_S = 300
# So long a node may be unheard before it leads nothing for a moment, which raw clients are not made for: a busy machine
# stands still for seconds. Those nodes that some tests kill are found out, and let in again, sooner.
_PATIENT, _KILLED = ({"broker.session.timeout.ms": session_ms} for session_ms in ("30000", "6000"))
# Not where a gateway listens, so that an address which leaks through it is seen.
HOST = "127.0.0.2"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.integration)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A quota callback of somebody's own, which gateways can import."""
    path = tmp_path / "dynamic_quotas.py"
    path.write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(sys.path)}")
    return path


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    """One node."""
    yield from _started(
        request, LocalKafka(host=HOST, properties=_KILLED, java_options=SHORT_LIVED)
    )


@pytest.fixture(scope="session")
def kafka3(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    """Three nodes."""
    yield from _started(
        request, LocalKafka(nodes=3, host=HOST, properties=_KILLED, java_options=SHORT_LIVED)
    )


@pytest.fixture(scope="session")
def kafka_3_9(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    """One node of the last version that speaks the protocols before KIP-896."""
    yield from _started(
        request,
        LocalKafka(version="3.9.2", host=HOST, properties=_PATIENT, java_options=SHORT_LIVED),
    )


@pytest.fixture(scope="session")
def sasl_kafka(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    """One node with the users alice and bob, and two of a team; a user's secret is the name with ``-secret`` behind it.

    Its listeners SSL and SASL_SSL want no certificate. It takes bearer tokens that nobody has signed, too; at the listener CLAIM their claim "user" is the name. At the
    listener UNHURRIED who does not log in again within 10 s is closed, at LEISURELY within 30 s.
    """
    users = {name: f"{name}-secret" for name in ("alice", "bob", "orders.web", "orders.batch")}
    # With it a client may log in again on its connection (KIP-368).
    settings = {"connections.max.reauth.ms": "3600000", "delegation.token.secret.key": "none's"}
    unhurried, leisurely = (
        {
            f"{name}.connections.max.reauth.ms": lasts_ms
            for name in ("scram-sha-256", "plain", "oauthbearer")
        }
        for lasts_ms in ("10000", "30000")
    )
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    claim = f'{module} required unsecuredLoginStringClaim_sub="broker" unsecuredValidatorPrincipalClaimName="user";'
    listeners = [
        Listener(name="UNHURRIED", protocol="SASL_PLAINTEXT", settings=unhurried),
        Listener(name="LEISURELY", protocol="SASL_PLAINTEXT", settings=leisurely),
        Listener(
            name="CLAIM",
            protocol="SASL_PLAINTEXT",
            settings={"oauthbearer.sasl.jaas.config": claim},
        ),
    ]
    yield from _started(
        request,
        LocalKafka(
            host=HOST,
            users=users,
            oauth=True,
            tls="none",
            listeners=listeners,
            properties=settings | _PATIENT,
            java_options=SHORT_LIVED,
        ),
    )


@pytest.fixture(scope="session")
def quota_kafka(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    """One node for tests that set quotas on it, and may leave some behind."""
    yield from _started(
        request, LocalKafka(host=HOST, properties=_PATIENT, java_options=SHORT_LIVED)
    )


@pytest.fixture(scope="session")
def acl_kafka(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    """One node that asks an authorizer: operator may describe and configure all, auditor see it, alice and bob nothing.

    A user's secret is the name with ``-secret`` behind it.
    """
    users = {name: f"{name}-secret" for name in ("operator", "auditor", "alice", "bob")}
    operations: tuple[Operation, ...] = ("describe", "describe_configs", "alter_configs")
    acls = [Acl(user="operator", operation=operation) for operation in operations]
    acls += [Acl(user="auditor", operation="describe_configs")]
    acls += [Acl(user="operator", operation="all", resource="topic", name="*")]
    yield from _started(
        request,
        LocalKafka(
            host=HOST, users=users, acls=acls, properties=_PATIENT, java_options=SHORT_LIVED
        ),
    )


def _started(request: pytest.FixtureRequest, kafka: LocalKafka) -> Iterator[LocalKafka]:
    kafka.start()
    yield kafka
    kafka.stop(keep_logs=request.session.testsfailed > 0)
