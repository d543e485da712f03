"""Users by their bearer tokens: OAUTHBEARER logins of real clients through the gateway."""

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import Producer
from kafka import KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider as TokenProvider
from tests.integration.java_logins import BEARER, login_file, produced_by_java
from tests.integration.raw_client import RawClient
from tests.integration.tapped_gateway import TappedGateway, plaintext_and_tls, tapped_gateway

from kvota.localkafka import LocalKafka
from kvota.testing.frames import SASL_AUTHENTICATE, SASL_HANDSHAKE, decoded, produce, request

QUOTAS = """
[[quota]]
user_default = true
producer_byte_rate = "1GB/s"
"""
TOPIC = "bearers"
NONE, FAILED = 0, 58


@pytest.fixture(scope="module", autouse=True)
def topic(sasl_kafka: LocalKafka) -> None:
    sasl_kafka.create_topic(TOPIC)


@pytest.fixture
def gateway(
    request: pytest.FixtureRequest, sasl_kafka: LocalKafka, tmp_path: Path
) -> Iterator[TappedGateway]:
    tls: bool = getattr(request, "param", False)
    with tapped_gateway(tmp_path, sasl_kafka, sasl=True, tls=tls, quotas=QUOTAS) as tapped:
        yield tapped


def token_of(**claims: object) -> str:
    now_s = int(time.time())
    parts = {"alg": "none"}, {"iat": now_s, "exp": now_s + 600, **claims}
    header, body = (
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts
    )
    return f"{header}.{body}."


class AioTokens(AbstractTokenProvider):
    async def token(self) -> str:
        return token_of(sub="aio")


class PythonTokens(TokenProvider):
    def token(self) -> str:
        return token_of(sub="python")


@plaintext_and_tls
async def test_clients_with_tokens_are_recorded_under_the_tokens_names(
    gateway: TappedGateway,
) -> None:
    servers = gateway.bootstrap_servers
    protocol = gateway.librdkafka(sasl=True)["security.protocol"]
    producer = Producer(
        gateway.librdkafka(sasl=True)
        | {
            "client.id": "rd",
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": True,
            "sasl.oauthbearer.config": "principal=librd",
        }
    )
    producer.produce(TOPIC, b"x")
    assert producer.flush(60) == 0
    python = KafkaProducer(
        bootstrap_servers=servers,
        client_id="py",
        security_protocol=protocol,
        ssl_context=gateway.context,
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=PythonTokens(),
    )
    python.send(TOPIC, b"x").get(60)
    python.close()
    async with AIOKafkaProducer(
        bootstrap_servers=servers,
        client_id="aio",
        security_protocol=protocol,
        ssl_context=gateway.context,
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=AioTokens(),
    ) as aio:
        await aio.send_and_wait(TOPIC, b"x")

    gateway.assert_no_address_leaked()
    assert gateway.users_by_client() == {
        "rd": {("librd", "client-id=,user=librd")},
        "py": {("python", "client-id=,user=python")},
        "aio": {("aio", "client-id=,user=aio")},
    }


def test_the_java_client_with_a_token_is_recorded(gateway: TappedGateway, tmp_path: Path) -> None:
    duke = 'unsecuredLoginStringClaim_sub="duke"'

    login = login_file(tmp_path, "OAUTHBEARER", BEARER, duke, cafile=gateway.cafile)
    told = produced_by_java(gateway, TOPIC, login)

    assert "100 records sent" in told, told
    assert gateway.users_by_client() == {"java": {("duke", "client-id=,user=duke")}}


# ------------------------------------------------------------------ bytes


def handshake() -> bytes:
    return request(SASL_HANDSHAKE, 1, mechanism="OAUTHBEARER")


def authenticate(message: bytes) -> bytes:
    return request(SASL_AUTHENTICATE, 2, auth_bytes=message)


def bearer(**claims: object) -> bytes:
    return f"n,,\x01auth=Bearer {token_of(**claims)}\x01\x01".encode()


def test_the_name_stands_in_the_claim_that_is_set(sasl_kafka: LocalKafka, tmp_path: Path) -> None:
    claim = {"sasl.oauthbearer.sub.claim.name": "user"}
    with tapped_gateway(
        tmp_path, sasl_kafka, listener="CLAIM", quotas=QUOTAS, kafka_properties=claim
    ) as gateway:
        with RawClient(("127.0.0.1", gateway.first_port)) as client:
            client.send(handshake() + authenticate(bearer(sub="0b1c", user="alice")) + produce(9))
            client.frame()
            assert decoded(client.frame(), SASL_AUTHENTICATE, 2).error_code == NONE
            client.frame()

        assert [row["user"] for row in gateway.recorded()] == ["alice"]


def test_a_refused_token_is_refused_in_two_steps_as_by_the_broker(gateway: TappedGateway) -> None:
    def converse(address: tuple[str, int]) -> list[bytes]:
        with RawClient(address) as client:
            client.send(handshake() + authenticate(bearer(sub="alice", exp=1)))
            told = [client.frame(), client.frame()]
            client.send(authenticate(b"\x01"))
            told.append(client.frame())
            assert client.is_closed()
        return told

    host, port = gateway.kafka.sasl_bootstrap_servers.split(",")[0].rsplit(":", 1)
    through_the_gateway = converse(("127.0.0.1", gateway.first_port))

    assert through_the_gateway == converse((host, int(port)))
    _, first, second = through_the_gateway
    told = decoded(first, SASL_AUTHENTICATE, 2)
    assert told.error_code == NONE
    assert json.loads(told.auth_bytes)["status"] == "invalid_token"
    assert decoded(second, SASL_AUTHENTICATE, 2).error_code == FAILED
    assert gateway.recorded() == []
    assert 'a login as "alice" with "OAUTHBEARER" from ' in gateway.log
    assert token_of(sub="alice", exp=1).split(".")[1][:20] not in gateway.log


def test_a_strange_token_is_the_brokers_business_and_nobody_is_charged(
    gateway: TappedGateway,
) -> None:
    for message in (
        b"",
        b"\x01",
        b"n,,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Bearer a.b.c.\x01\x01",
        b"n,a=bob,\x01" + bearer(sub="alice").removeprefix(b"n,,\x01"),
        bearer(sub=""),
        bearer(user="alice"),
        bearer(sub=7),
        b"n,,\x01auth=Bearer " + b"." * 500_000 + b"\x01\x01",
    ):
        with RawClient(("127.0.0.1", gateway.first_port)) as client:
            client.send(handshake() + authenticate(message) + produce(9))
            client.frame()
            try:
                told = decoded(client.frame(), SASL_AUTHENTICATE, 2)
            except ConnectionError:
                continue
            assert told.error_code != NONE or told.auth_bytes, message[:100]
            assert client.is_closed(), message[:100]

    assert gateway.recorded() == []


def test_who_is_let_in_with_more_claims_than_are_read_is_closed_with_a_reason(
    gateway: TappedGateway,
) -> None:
    with RawClient(("127.0.0.1", gateway.first_port)) as client:
        client.send(handshake() + authenticate(bearer(sub="alice", groups="g" * 70_000)))
        client.frame()
        assert client.is_closed()

    assert gateway.recorded() == []
    assert "a login with OAUTHBEARER in which no user's name can be read" in gateway.log


def test_who_sends_a_new_token_in_time_goes_on_and_may_not_become_another(
    gateway: TappedGateway,
) -> None:
    address = ("127.0.0.1", gateway.first_port)
    with RawClient(address) as client:
        client.send(handshake() + authenticate(bearer(sub="alice")) + produce(9))
        client.send(handshake() + authenticate(bearer(sub="alice", jti="2")) + produce(9))
        answers = [client.frame() for _ in range(6)]
    assert decoded(answers[4], SASL_AUTHENTICATE, 2).error_code == NONE
    with RawClient(address) as client:
        client.send(handshake() + authenticate(bearer(sub="alice")) + produce(9))
        client.send(handshake() + authenticate(bearer(sub="bob")))
        answers = [client.frame() for _ in range(5)]
        assert client.is_closed()
    assert decoded(answers[3], SASL_HANDSHAKE, 1).error_code == NONE
    assert decoded(answers[4], SASL_AUTHENTICATE, 2).error_code == FAILED

    assert [row["user"] for row in gateway.recorded()] == ["alice"] * 3
