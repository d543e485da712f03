"""Users by name: SASL logins of real clients through the gateway, as the record tells them."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer
from tests.integration.address_scan import TAP_HOST, addresses_in
from tests.integration.java_logins import SCRAM, login_file, produced_by_java
from tests.integration.raw_client import RawClient
from tests.integration.tapped_gateway import TappedGateway, plaintext_and_tls, tapped_gateway

from kvota.localkafka import LocalKafka
from kvota.testing.frames import METADATA, SASL_HANDSHAKE, request

QUOTAS = """
[[quota]]
user_default = true
producer_byte_rate = "1GB/s"
"""
TOPIC = "logins"


@pytest.fixture
def gateway(
    request: pytest.FixtureRequest, sasl_kafka: LocalKafka, tmp_path: Path
) -> Iterator[TappedGateway]:
    tls: bool = getattr(request, "param", False)
    with tapped_gateway(tmp_path, sasl_kafka, sasl=True, tls=tls, quotas=QUOTAS) as tapped:
        yield tapped


@pytest.fixture(scope="module", autouse=True)
def topic(sasl_kafka: LocalKafka) -> None:
    sasl_kafka.create_topic(TOPIC)


def librdkafka(gateway: TappedGateway, mechanism: str, user: str, secret: str) -> dict[str, str]:
    return gateway.librdkafka(sasl=True) | {
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": secret,
    }


@plaintext_and_tls
async def test_every_way_to_log_in_is_recorded_under_the_users_name(
    gateway: TappedGateway,
) -> None:
    protocol = gateway.librdkafka(sasl=True)["security.protocol"]
    for mechanism, user in (("PLAIN", "alice"), ("SCRAM-SHA-256", "bob"), ("SCRAM-SHA-512", "alice")):  # fmt: skip
        config = librdkafka(gateway, mechanism, user, f"{user}-secret")
        producer = Producer(config | {"client.id": f"rd-{mechanism}"})
        producer.produce(TOPIC, b"x")
        assert producer.flush(60) == 0
        python = KafkaProducer(
            bootstrap_servers=gateway.bootstrap_servers,
            client_id=f"py-{mechanism}",
            security_protocol=protocol,
            ssl_context=gateway.context,
            sasl_mechanism=mechanism,
            sasl_plain_username=user,
            sasl_plain_password=f"{user}-secret",
        )
        python.send(TOPIC, b"x").get(60)
        python.close()
        async with AIOKafkaProducer(
            bootstrap_servers=gateway.bootstrap_servers,
            client_id=f"aio-{mechanism}",
            security_protocol=protocol,
            ssl_context=gateway.context,
            sasl_mechanism=mechanism,
            sasl_plain_username=user,
            sasl_plain_password=f"{user}-secret",
        ) as aio:
            await aio.send_and_wait(TOPIC, b"x")

    gateway.assert_no_address_leaked()
    told = b"".join(gateway.tap.sent_to_clients)
    planted = told.replace(TAP_HOST.encode(), gateway.kafka.host.encode())
    assert addresses_in(planted, gateway.kafka) != []  # also inside TLS the scan sees what is said
    alice, bob = ("alice", "client-id=,user=alice"), ("bob", "client-id=,user=bob")
    assert gateway.users_by_client() == {
        f"{client}-{mechanism}": {who}
        for client in ("rd", "py", "aio")
        for mechanism, who in (("PLAIN", alice), ("SCRAM-SHA-256", bob), ("SCRAM-SHA-512", alice))
    }


@plaintext_and_tls
def test_the_java_client_logs_in_and_is_recorded(gateway: TappedGateway, tmp_path: Path) -> None:
    bob = 'username="bob" password="bob-secret"'

    login = login_file(tmp_path, "SCRAM-SHA-512", SCRAM, bob, cafile=gateway.cafile)
    told = produced_by_java(gateway, TOPIC, login)

    assert "100 records sent" in told, told
    assert gateway.users_by_client() == {"java": {("bob", "client-id=,user=bob")}}


@plaintext_and_tls
def test_a_wrong_password_is_refused_by_the_broker_and_names_nobody(
    gateway: TappedGateway,
) -> None:
    config = librdkafka(gateway, "PLAIN", "alice", "wrong")

    client = AdminClient(config | {"log_level": "0"})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=3)

    end = time.monotonic() + 60  # it tries again and again until then
    while 'WARNING a login as "alice"' not in gateway.log:
        assert time.monotonic() < end, gateway.log
        time.sleep(0.05)
    del client
    assert gateway.process.running
    assert gateway.recorded() == []
    refused = [line for line in gateway.log.splitlines() if "refused" in line]
    assert 'WARNING a login as "alice" with "PLAIN" from ' in refused[0]
    assert refused[0].endswith("Authentication failed: Invalid username or password")
    assert all("more logins" in line for line in refused[1:])  # librdkafka tries again and again
    assert "closed connection" not in gateway.log
    assert "wrong" not in gateway.log


def test_clients_that_come_and_go_are_no_news(gateway: TappedGateway) -> None:
    for number in range(3):
        config = librdkafka(gateway, "PLAIN", "alice", "alice-secret")
        producer = Producer(config | {"client.id": f"rd-{number}"})
        producer.produce(TOPIC, b"x")
        assert producer.flush(60) == 0
        del producer

    assert len(gateway.recorded()) == 3
    since_ready = gateway.log.split("can be reached\n", 1)[1].splitlines()
    assert [line for line in since_ready if "connection " in line] == []


@plaintext_and_tls
def test_raw_tokens_of_the_oldest_handshake_let_the_user_in(gateway: TappedGateway) -> None:
    token = b"\0alice\0alice-secret"
    with gateway.raw_client() as client:
        assert client.ask(request(SASL_HANDSHAKE, 0, mechanism="PLAIN")).error_code == 0
        client.send(len(token).to_bytes(4, "big") + token)
        assert client.frame() == bytes(4)

        told = client.ask(request(METADATA, 12, topics=()))

    assert {(b.host, b.port) for b in told.brokers} == {gateway.node(1)}


def test_before_a_login_a_broker_answers_nothing_and_closes(gateway: TappedGateway) -> None:
    with RawClient(("127.0.0.1", gateway.first_port)) as client:
        client.send(request(METADATA, 12, topics=()))

        assert client.is_closed()
    assert "closed connection 1 from" in gateway.log
    assert (
        "Nobody had logged in: a broker closes so where its listener is a SASL one" in gateway.log
    )
