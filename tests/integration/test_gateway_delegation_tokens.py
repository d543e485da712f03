"""Logins with delegation tokens (KIP-48): their owners are who pays."""

import asyncio
import base64
import contextlib
import time
from datetime import timedelta
from pathlib import Path

import pytest
from tests.integration.java_logins import SCRAM, login_file, produced_by_java
from tests.integration.tapped_gateway import TappedGateway, tapped_gateway

from kvota.client import BrokerError, Cluster, Security
from kvota.client.properties import cluster_of
from kvota.localkafka import LocalKafka

QUOTAS = """
[[quota]]
user_default = true
producer_byte_rate = "1GB/s"
"""
TOPIC = "delegated"
KNOWN_S = 60
CREATE_DELEGATION_TOKEN = 38
ADMIN = "client.quota.callback.static.kafka.admin."


@pytest.fixture(scope="module", autouse=True)
def topic(sasl_kafka: LocalKafka) -> None:
    sasl_kafka.create_topic(TOPIC)


def token_of_alice(kafka: LocalKafka) -> tuple[str, str]:
    """A new token's id, and its secret, once the broker lets in who has it: it hears of it from its controller."""

    async def create() -> tuple[str, str]:
        servers = kafka.sasl_bootstrap_servers.split(",")
        security = Security.scram("alice", "alice-secret")
        content = {
            "owner_principal_type": None,
            "owner_principal_name": None,
            "renewers": [],
            "max_lifetime": timedelta(hours=1),
        }
        async with Cluster(servers, security=security) as cluster:
            made = await cluster.ask(CREATE_DELEGATION_TOKEN, content)
        assert made.error_code == 0
        return made.token_id, base64.b64encode(made.hmac).decode()

    token_id, secret = asyncio.run(create())
    end, found = time.monotonic() + KNOWN_S, set[str]()
    while not found:
        with contextlib.suppress(*([BrokerError] if time.monotonic() < end else [])):
            found = topics_as(kafka, token_id, f'password="{secret}" tokenauth="true"')
    return token_id, secret


def topics_as(
    kafka: LocalKafka, token_id: str, options: str, mechanism: str = "SCRAM-SHA-512"
) -> set[str]:
    """What the broker tells a connection of our own that logs in with a token: the topic."""
    properties = {
        "bootstrap.servers": kafka.sasl_bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{SCRAM} required username="{token_id}" {options};',
    }

    async def topics() -> set[str]:
        async with cluster_of(properties) as cluster:
            return set((await cluster.metadata([TOPIC])).topics)

    return asyncio.run(topics())


def produce_with(gateway: TappedGateway, folder: Path, token_id: str, secret: str) -> str:
    options = f'username="{token_id}" password="{secret}" tokenauth="true"'
    login = login_file(folder, "SCRAM-SHA-512", SCRAM, options, cafile=gateway.cafile)
    return produced_by_java(gateway, TOPIC, login)


def test_who_logs_in_with_a_token_is_its_owner(sasl_kafka: LocalKafka, tmp_path: Path) -> None:
    own_login = {
        f"{ADMIN}bootstrap.servers": sasl_kafka.sasl_bootstrap_servers,
        f"{ADMIN}security.protocol": "SASL_PLAINTEXT",
        f"{ADMIN}sasl.mechanism": "SCRAM-SHA-256",
        f"{ADMIN}sasl.jaas.config": "x required username='bob' password='bob-secret';",
    }
    token_id, secret = token_of_alice(sasl_kafka)
    with tapped_gateway(
        tmp_path, sasl_kafka, sasl=True, tls=True, quotas=QUOTAS, kafka_properties=own_login
    ) as gateway:
        told = produce_with(gateway, tmp_path, token_id, secret)

        assert "100 records sent" in told, told
        gateway.assert_no_address_leaked()
        assert secret not in gateway.log
        assert {row["user"] for row in gateway.recorded()} == {"alice"}


def test_without_a_login_of_its_own_the_gateway_says_that_nobody_knows(
    sasl_kafka: LocalKafka, tmp_path: Path
) -> None:
    token_id, secret = token_of_alice(sasl_kafka)
    with tapped_gateway(tmp_path, sasl_kafka, sasl=True, quotas=QUOTAS) as gateway:
        told = produce_with(gateway, tmp_path, token_id, secret)

        assert "100 records sent" in told, told
        assert "the owner of a delegation token cannot be read from the wire" in gateway.log
        assert f"{ADMIN}security.protocol" in gateway.log
        assert {row["user"] for row in gateway.recorded()} == {"ANONYMOUS"}


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_connections_of_our_own_log_in_with_a_token(sasl_kafka: LocalKafka, mechanism: str) -> None:
    token_id, secret = token_of_alice(sasl_kafka)

    def topics(options: str) -> set[str]:
        return topics_as(sasl_kafka, token_id, options, mechanism)

    assert topics(f'password="{secret}" tokenauth="true"') == {TOPIC}
    for refused in (f'password="{secret}"', 'password="another" tokenauth="true"'):
        with pytest.raises(BrokerError, match="sasl_authentication_failed"):
            topics(refused)
