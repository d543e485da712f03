"""Requests sent together with a login: whose quota they are charged on, and what a broker does."""

import base64
import hashlib
import hmac
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.raw_client import RawClient
from tests.integration.tapped_gateway import TappedGateway, tapped_gateway

from kvota.localkafka import LocalKafka
from kvota.testing.frames import (
    API_VERSIONS,
    CREATE_TOPICS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    decoded,
    parts,
    produce,
    request,
)
from kvota.testing.kafka_messages import milliseconds

QUOTAS = """
[[quota]]
user = "alice"
producer_byte_rate = "1GB/s"
controller_mutation_rate = 0.1

[[quota]]
user = "bob"
producer_byte_rate = "1GB/s"
"""
NONE, THROTTLED, FAILED = 0, 89, 58


@pytest.fixture
def gateway(sasl_kafka: LocalKafka, tmp_path: Path) -> Iterator[TappedGateway]:
    with tapped_gateway(tmp_path, sasl_kafka, sasl=True, quotas=QUOTAS) as tapped:
        yield tapped


def handshake(mechanism: str = "PLAIN") -> bytes:
    return request(SASL_HANDSHAKE, 1, mechanism=mechanism)


def authenticate(token: bytes) -> bytes:
    return request(SASL_AUTHENTICATE, 2, auth_bytes=token)


def plain(user: str) -> bytes:
    return authenticate(f"\0{user}\0{user}-secret".encode())


def creation(name: str) -> bytes:
    row = {"name": name, "num_partitions": 10, "replication_factor": 1, "assignments": (), "configs": ()}  # fmt: skip
    topics = parts(CREATE_TOPICS, 7, "request", "CreatableTopic", row)
    return request(
        CREATE_TOPICS, 7, topics=topics, timeout=milliseconds(60_000), validate_only=False
    )


def scram_final(user: str, server_first: bytes) -> bytes:
    """The second message of SCRAM-SHA-256 (RFC 5802)."""
    nonce, salt, rounds = (part[2:] for part in server_first.decode().split(","))
    secret = f"{user}-secret".encode()
    salted = hashlib.pbkdf2_hmac("sha256", secret, base64.b64decode(salt), int(rounds))
    key = hmac.digest(salted, b"Client Key", "sha256")
    said = f"n={user},r=mine,{server_first.decode()},c=biws,r={nonce}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), said, "sha256")
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    return f"c=biws,r={nonce},p={base64.b64encode(proof).decode()}".encode()


def users(gateway: TappedGateway) -> dict[object, int]:
    found: dict[object, int] = {}
    for row in gateway.recorded():
        found[row["user"]] = found.get(row["user"], 0) + 1
    return found


def test_what_comes_in_one_segment_with_a_plain_login_is_charged_to_the_user(
    gateway: TappedGateway,
) -> None:
    for _ in range(5):
        with RawClient(("127.0.0.1", gateway.first_port)) as client:
            client.send(handshake() + plain("alice") + produce(9) * 2)
            for _ in range(4):
                client.frame()

    assert users(gateway) == {"alice": 10}


def test_what_comes_in_one_segment_with_the_last_token_of_scram_is_charged_to_the_user(
    gateway: TappedGateway,
) -> None:
    for _ in range(5):
        with RawClient(("127.0.0.1", gateway.first_port)) as client:
            client.send(handshake("SCRAM-SHA-256") + authenticate(b"n,,n=bob,r=mine"))
            client.frame()
            told = decoded(client.frame(), SASL_AUTHENTICATE, 2)
            client.send(authenticate(scram_final("bob", told.auth_bytes)) + produce(9) * 2)
            assert decoded(client.frame(), SASL_AUTHENTICATE, 2).error_code == NONE
            client.frame()
            client.frame()

    assert users(gateway) == {"bob": 10}


def test_mutations_in_one_segment_with_a_login_find_the_users_quota(
    gateway: TappedGateway,
) -> None:
    outcomes = []
    for number in range(10):
        with RawClient(("127.0.0.1", gateway.first_port)) as client:
            client.send(handshake() + plain("alice") + creation(f"pipelined-{number}"))
            client.frame()
            client.frame()
            (topic,) = decoded(client.frame(), CREATE_TOPICS, 7).topics
            outcomes.append(topic.error_code.value)

    assert outcomes == [NONE] + [THROTTLED] * 9
    assert users(gateway) == {"alice": 10}


# ------------------------------------------------------------------ as a broker does it


def frames_until_closed(client: RawClient) -> list[bytes]:
    frames = []
    try:
        while True:
            frames.append(client.frame())
    except ConnectionError:
        return frames


def within_a_login(frame: bytes) -> Callable[[RawClient], list[bytes]]:
    return lambda client: [client.send(handshake() + frame), *frames_until_closed(client)]


def within_a_login_again(frame: bytes) -> Callable[[RawClient], list[bytes]]:
    def converse(client: RawClient) -> list[bytes]:
        client.send(handshake() + plain("alice"))
        first = [client.frame(), client.frame()]
        client.send(handshake() + frame)
        return first + frames_until_closed(client)

    return converse


@pytest.mark.parametrize(
    "converse",
    [
        within_a_login(produce(9)),
        within_a_login(request(API_VERSIONS, 3)),
        within_a_login(plain("nobody") + produce(9)),
        within_a_login_again(produce(9)),
        within_a_login_again(request(API_VERSIONS, 3)),
        within_a_login_again(plain("bob")),
    ],
    ids=["Produce", "ApiVersions", "wrong", "Produce again", "ApiVersions again", "another user"],
)
def test_the_gateway_ends_a_connection_where_a_broker_ends_it(
    gateway: TappedGateway, converse: Callable[[RawClient], list[bytes]]
) -> None:
    with RawClient(("127.0.0.1", gateway.first_port)) as client:
        through_the_gateway = converse(client)
    host, port = gateway.kafka.sasl_bootstrap_servers.split(",")[0].rsplit(":", 1)
    with RawClient((host, int(port))) as client:
        straight = converse(client)

    # Only a broker tells why before it closes: the gateway has not forwarded what it would refuse.
    assert through_the_gateway == straight[: len(through_the_gateway)]
    assert len(straight) - len(through_the_gateway) <= 1
    assert gateway.recorded() == []


def test_what_follows_a_change_of_user_is_neither_forwarded_nor_charged(
    gateway: TappedGateway,
) -> None:
    """A broker refuses the change; what comes in one segment with it, it may serve all the same."""
    with RawClient(("127.0.0.1", gateway.first_port)) as client:
        told = within_a_login_again(plain("bob") + produce(9))(client)

    assert decoded(told[-1], SASL_AUTHENTICATE, 2).error_code == FAILED
    assert gateway.recorded() == []
    assert "Produce v9 in the middle of a login" in gateway.log


def test_a_user_who_logs_in_again_goes_on_under_the_same_name(gateway: TappedGateway) -> None:
    with RawClient(("127.0.0.1", gateway.first_port)) as client:
        client.send(handshake() + plain("alice") + produce(9) + handshake() + plain("alice"))
        client.send(produce(9))
        answers = [client.frame() for _ in range(6)]

    assert decoded(answers[3], SASL_HANDSHAKE, 1).error_code == NONE
    assert decoded(answers[4], SASL_AUTHENTICATE, 2).error_code == NONE
    assert users(gateway) == {"alice": 2}


def test_without_logins_a_handshake_is_refused_and_the_client_goes_on(
    kafka: LocalKafka, tmp_path: Path
) -> None:
    with tapped_gateway(tmp_path, kafka, quotas=QUOTAS) as gateway:
        with RawClient(("127.0.0.1", gateway.first_port)) as client:
            client.send(handshake() + plain("alice") + produce(9))
            answers = [client.frame() for _ in range(3)]

        assert decoded(answers[0], SASL_HANDSHAKE, 1).error_code != NONE
        assert decoded(answers[1], SASL_AUTHENTICATE, 2).error_code != NONE
        assert users(gateway) == {"ANONYMOUS": 1}
