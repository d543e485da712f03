"""Logins on a connection that has one already (KIP-368): what real clients do, and whose requests are whose."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.integration.java_logins import PERFORMANCE, SCRAM, login_file
from tests.integration.raw_client import RawClient
from tests.integration.tapped_gateway import TappedGateway, tapped_gateway

from kvota.localkafka import LocalKafka
from kvota.testing.frames import SASL_AUTHENTICATE, SASL_HANDSHAKE, decoded, produce, request

QUOTAS = """
[[quota]]
user_default = true
producer_byte_rate = "1GB/s"
"""
TOPIC = "later-logins"
# At the listener LEISURELY a login lasts for 30 s: clients log in again once, when a twentieth of it is left, or more.
TIME_S = 36
# At UNHURRIED.
LASTS_S = 10
NONE = 0


@pytest.fixture
def gateway(
    request: pytest.FixtureRequest, sasl_kafka: LocalKafka, tmp_path: Path
) -> Iterator[TappedGateway]:
    listener, tls = getattr(request, "param", ("UNHURRIED", False))
    with tapped_gateway(tmp_path, sasl_kafka, tls=tls, listener=listener, quotas=QUOTAS) as tapped:
        yield tapped


def java(gateway: TappedGateway, folder: Path) -> "subprocess.Popen[str]":
    bob = 'username="bob" password="bob-secret"'
    settings = login_file(folder, "SCRAM-SHA-256", SCRAM, bob, cafile=gateway.cafile)
    command = gateway.kafka.java_command_line(
        PERFORMANCE,
        *("--topic", TOPIC, "--num-records", str(TIME_S * 20), "--record-size", "100"),
        *("--throughput", "20", "--bootstrap-server", gateway.bootstrap_servers),
        *("--command-config", str(settings)),
    )
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("gateway", [("LEISURELY", True)], indirect=True, ids=["TLS"])
def test_clients_that_log_in_again_keep_their_connections_and_their_quotas(
    gateway: TappedGateway, sasl_kafka: LocalKafka, tmp_path: Path
) -> None:
    sasl_kafka.create_topic(TOPIC)
    producer = Producer(
        gateway.librdkafka(sasl=True)
        | {
            "client.id": "librdkafka",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "alice-secret",
            "linger.ms": 0,
        }
    )
    with java(gateway, tmp_path) as running:
        until_s = time.monotonic() + TIME_S
        while time.monotonic() < until_s:
            producer.produce(TOPIC, b"x")
            producer.poll(0.05)
        assert producer.flush(60) == 0
        told, _ = running.communicate(timeout=120)
    assert f"{TIME_S * 20} records sent" in told, told

    handshakes = sum(stream.count(b"SCRAM-SHA-256\0") for stream in gateway.tap.sent_to_clients)
    # Each client has one connection to bootstrap at and one to its node; without a later login there would be more.
    assert len(gateway.tap.sent_to_clients) <= 4
    assert handshakes > len(gateway.tap.sent_to_clients)
    assert "closed connection" not in gateway.log
    users = {(row["client_id"], row["user"]) for row in gateway.recorded()}
    assert users == {("java", "bob"), ("librdkafka", "alice")}


def test_who_does_not_log_in_again_is_closed_by_the_broker(gateway: TappedGateway) -> None:
    def handshake() -> bytes:
        return request(SASL_HANDSHAKE, 1, mechanism="PLAIN")

    def plain() -> bytes:
        return request(SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0alice-secret")

    address = ("127.0.0.1", gateway.first_port)
    with RawClient(address) as never, RawClient(address) as late:
        for client in (never, late):
            client.send(handshake() + plain())
            client.frame()
            told = decoded(client.frame(), SASL_AUTHENTICATE, 2)
            assert told.session_lifetime.total_seconds() == LASTS_S
        never.send(produce(9))
        never.frame()
        time.sleep(LASTS_S + 0.1)
        never.send(produce(9))
        assert never.is_closed()
        late.send(handshake() + plain() + produce(9))  # late, and taken all the same
        late.frame()
        assert decoded(late.frame(), SASL_AUTHENTICATE, 2).error_code == NONE
        late.frame()

    assert {row["user"] for row in gateway.recorded()} == {"alice"}
