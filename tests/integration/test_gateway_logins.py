"""Users by name: SASL logins of real clients through the gateway, as the record tells them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer
from tests.integration.java_logins import SCRAM, login_file, produced_by_java
from tests.integration.raw_client import RawClient
from tests.integration.tapped_gateway import TappedGateway, tapped_gateway

from kvota.localkafka import LocalKafka
from kvota.testing.frames import METADATA, SASL_HANDSHAKE, request

QUOTAS = """
[[quota]]
user_default = true
producer_byte_rate = "1GB/s"
"""
TOPIC = "logins"


@pytest.fixture
def gateway(sasl_kafka: LocalKafka, tmp_path: Path) -> Iterator[TappedGateway]:
    with tapped_gateway(tmp_path, sasl_kafka, sasl=True, quotas=QUOTAS) as tapped:
        yield tapped


@pytest.fixture(scope="module", autouse=True)
def topic(sasl_kafka: LocalKafka) -> None:
    sasl_kafka.create_topic(TOPIC)


def librdkafka(gateway: TappedGateway, mechanism: str, user: str, secret: str) -> dict[str, str]:
    return {
        "bootstrap.servers": gateway.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": secret,
    }


async def test_every_way_to_log_in_is_recorded_under_the_users_name(
    gateway: TappedGateway,
) -> None:
    for mechanism, user in (("PLAIN", "alice"), ("SCRAM-SHA-256", "bob"), ("SCRAM-SHA-512", "alice")):  # fmt: skip
        config = librdkafka(gateway, mechanism, user, f"{user}-secret")
        producer = Producer(config | {"client.id": f"rd-{mechanism}"})
        producer.produce(TOPIC, b"x")
        assert producer.flush(60) == 0
        python = KafkaProducer(
            bootstrap_servers=gateway.bootstrap_servers,
            client_id=f"py-{mechanism}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=user,
            sasl_plain_password=f"{user}-secret",
        )
        python.send(TOPIC, b"x").get(60)
        python.close()
        async with AIOKafkaProducer(
            bootstrap_servers=gateway.bootstrap_servers,
            client_id=f"aio-{mechanism}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=user,
            sasl_plain_password=f"{user}-secret",
        ) as aio:
            await aio.send_and_wait(TOPIC, b"x")

    gateway.assert_no_address_leaked()
    alice, bob = ("alice", "client-id=,user=alice"), ("bob", "client-id=,user=bob")
    assert gateway.users_by_client() == {
        f"{client}-{mechanism}": {who}
        for client in ("rd", "py", "aio")
        for mechanism, who in (("PLAIN", alice), ("SCRAM-SHA-256", bob), ("SCRAM-SHA-512", alice))
    }


def test_the_java_client_logs_in_and_is_recorded(gateway: TappedGateway, tmp_path: Path) -> None:
    bob = 'username="bob" password="bob-secret"'

    told = produced_by_java(gateway, TOPIC, login_file(tmp_path, "SCRAM-SHA-512", SCRAM, bob))

    assert "100 records sent" in told, told
    assert gateway.users_by_client() == {"java": {("bob", "client-id=,user=bob")}}


def test_a_wrong_password_is_refused_by_the_broker_and_names_nobody(
    gateway: TappedGateway,
) -> None:
    config = librdkafka(gateway, "PLAIN", "alice", "wrong")

    with pytest.raises(KafkaException):
        AdminClient(config | {"log_level": "0"}).list_topics(timeout=3)

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


@pytest.mark.parametrize("user", ["alice", "bob"])
def test_raw_tokens_of_the_oldest_handshake_let_the_user_in(
    gateway: TappedGateway, user: str
) -> None:
    token = f"\0{user}\0{user}-secret".encode()
    with RawClient(("127.0.0.1", gateway.first_port)) as client:
        assert client.ask(request(SASL_HANDSHAKE, 0, mechanism="PLAIN")).error_code == 0
        client.send(len(token).to_bytes(4, "big") + token)
        assert client.frame() == bytes(4)

        told = client.ask(request(METADATA, 12, topics=()))

    assert {(b.host, b.port) for b in told.brokers} == {gateway.node(1)}


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("mechanism", ["GSSAPI", "NONSENSE", "scram-sha-256", ""])
def test_a_mechanism_that_the_broker_does_not_take_has_the_brokers_own_answer(
    gateway: TappedGateway, mechanism: str, version: int
) -> None:
    host, port = gateway.kafka.sasl_bootstrap_servers.split(",")[0].rsplit(":", 1)

    def converse(address: tuple[str, int]) -> bytes:
        with RawClient(address) as client:
            client.send(request(SASL_HANDSHAKE, version, mechanism=mechanism))
            told = client.frame()
            assert client.is_closed()
            return told

    assert converse(("127.0.0.1", gateway.first_port)) == converse((host, int(port)))


def test_before_a_login_a_broker_answers_nothing_and_closes(gateway: TappedGateway) -> None:
    with RawClient(("127.0.0.1", gateway.first_port)) as client:
        client.send(request(METADATA, 12, topics=()))

        assert client.is_closed()
    assert "closed connection 1 from" in gateway.log
    assert (
        "Nobody had logged in: a broker closes so where its listener is a SASL one" in gateway.log
    )
