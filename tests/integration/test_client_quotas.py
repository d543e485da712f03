"""Quotas through the gateway by Kafka's own API: each request once to a broker, once to a gateway."""

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.integration.raw_client import RawClient
from tests.unit.quota_api.written import alteration, altered, described, description

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.client import BrokerConnection, Security
from kvota.localkafka import LocalKafka
from kvota.testing import frames
from kvota.testing.frames import decoded
from kvota.wire.apis import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS

ALICE = ({"user": "alice"}, {"producer_byte_rate": 1_000_000.0})
NOT_ALLOWED = 31
# A broker's metadata follows its controller; the next alteration would wait as long.
_KNOWN_S = 60.0


def gateway(
    folder: Path,
    upstream: str,
    *,
    source: str | None = "file",
    more: str = "",
    quotas: str = "",
    enforce: tuple[str, ...] = (),
) -> GatewayProcess:
    config = gateway_toml(
        upstream=upstream,
        node_ids="0-4",
        source=source,
        enforce=dict.fromkeys(enforce, True),
    )
    return GatewayProcess(folder, config=config + more, quotas=quotas)


def address(process: GatewayProcess) -> tuple[str, int]:
    host, _, port = process.bootstrap_servers.partition(":")
    return host, int(port)


def asked(client: RawClient, frame: bytes) -> bytes:
    client.send(frame)
    return client.frame()


def entries_of(frame: bytes, version: int) -> Any:
    """A description, comparable: entities come in no order, nor do their parts."""
    answer = decoded(frame, DESCRIBE_CLIENT_QUOTAS, version)
    entries = None
    if answer.entries is not None:
        entries = sorted(
            repr(
                (
                    sorted((part.entity_type, part.entity_name or "\0") for part in entry.entity),
                    sorted((value.key, repr(value.value)) for value in entry.values),
                )
            )
            for entry in answer.entries
        )
    return int(answer.error_code), answer.error_message, entries


def same_description(direct: RawClient, client: RawClient, frame: bytes, version: int) -> None:
    """The broker may learn of what it has answered a little later."""
    told = entries_of(asked(client, frame), version)
    end = time.monotonic() + _KNOWN_S
    while (straight := entries_of(asked(direct, frame), version)) != told:
        assert time.monotonic() < end, (straight, told)
        time.sleep(0.02)


def cleaned(direct: RawClient) -> None:
    """A test has left quotas on the broker; some of them may be known to it only by and by."""
    end = time.monotonic() + _KNOWN_S
    while found := described(asked(direct, description(strict=False))):
        nothing = ((list(entity), dict.fromkeys(values)) for entity, values in found.items())
        assert {code for _, code, _ in altered(asked(direct, alteration(*nothing)))} == {0}
        assert time.monotonic() < end
        time.sleep(0.02)


def test_what_was_altered_outlives_the_gateway(quota_kafka: LocalKafka, tmp_path: Path) -> None:
    process = gateway(tmp_path, quota_kafka.bootstrap_servers)
    with process, RawClient(address(process)) as client:
        assert altered(asked(client, alteration(ALICE))) == [(ALICE[0], 0, None)]
    with process, RawClient(address(process)) as client:
        found = described(asked(client, description(("user", 0, "alice"))))

    assert found == {(("user", "alice"),): ALICE[1]}
    assert "quotas altered by ANONYMOUS from 127.0.0.1" in process.log


def test_quotas_that_people_write_are_described_and_not_altered(
    quota_kafka: LocalKafka, tmp_path: Path
) -> None:
    quotas = '[[quota]]\nuser = "bob"\nconsumer_byte_rate = "2MB/s"\n'
    process = gateway(tmp_path, quota_kafka.bootstrap_servers, source=None, quotas=quotas)
    with process, RawClient(address(process)) as client:
        ((_, error_code, words),) = altered(asked(client, alteration(ALICE)))
        before = described(asked(client, description(("user", 2, None))))
        process.reload(quotas.replace("2MB", "3MB"))
        after = described(asked(client, description(("user", 2, None))))

    assert error_code == 44
    assert "written in quotas.toml" in str(words)
    assert before == {(("user", "bob"),): {"consumer_byte_rate": 2_000_000.0}}
    assert after == {(("user", "bob"),): {"consumer_byte_rate": 3_000_000.0}}


def test_without_an_authorizer_the_list_decides(quota_kafka: LocalKafka, tmp_path: Path) -> None:
    nobody_here = '\n[quotas.admins]\nhosts = ["192.0.2.7"]\n'
    process = gateway(tmp_path, quota_kafka.bootstrap_servers, more=nobody_here)
    with process, RawClient(address(process)) as client:
        ((_, error_code, words),) = altered(asked(client, alteration(ALICE)))
        found = described(asked(client, description(strict=False)))

    assert (error_code, found) == (NOT_ALLOWED, {})
    assert "quotas.admins" in str(words)
    assert not (tmp_path / "quotas.json").exists()


# ------------------------------------------------------------------ with an authorizer


async def as_user(process: GatewayProcess, name: str, key: int, content: dict[str, object]) -> Any:
    security = Security.scram(name, f"{name}-secret")
    connection = await BrokerConnection.open(address(process), security=security)
    try:
        return await connection.ask(key, content)
    finally:
        await connection.close()


async def test_the_clusters_authorizer_decides(acl_kafka: LocalKafka, tmp_path: Path) -> None:
    entry = {
        "entity": [{"entity_type": "user", "entity_name": "alice"}],
        "ops": [{"key": "producer_byte_rate", "value": 5e6, "remove": False}],
    }
    content = {"entries": [entry], "validate_only": False}
    everything = {"components": [], "strict": False}
    # Who is on the list may not, where there is an authorizer.
    listed = '\n[quotas.admins]\nusers = ["alice"]\nhosts = ["127.0.0.1"]\n'
    with gateway(tmp_path, acl_kafka.sasl_bootstrap_servers, more=listed) as process:
        refused = await as_user(process, "alice", ALTER_CLIENT_QUOTAS, content)
        unseen = await as_user(process, "bob", DESCRIBE_CLIENT_QUOTAS, everything)
        before = await as_user(process, "operator", DESCRIBE_CLIENT_QUOTAS, everything)
        done = await as_user(process, "operator", ALTER_CLIENT_QUOTAS, content)
        after = await as_user(process, "operator", DESCRIBE_CLIENT_QUOTAS, everything)
        log = process.log

    ((code, words),) = [(int(e.error_code), e.error_message) for e in refused.entries]
    assert (code, words) == (NOT_ALLOWED, "Cluster authorization failed.")
    assert (int(unseen.error_code), unseen.entries) == (NOT_ALLOWED, None)
    assert before.entries == ()
    assert [int(entry.error_code) for entry in done.entries] == [0]
    assert [value.value for entry in after.entries for value in entry.values] == [5e6]
    assert "quotas altered by operator from 127.0.0.1: 1 values" in log
    assert "alice-secret" not in log


# ------------------------------------------------------------------ connections


class Begun(NamedTuple):
    """How many connections were answered, and for how long they came."""

    count: int
    took_s: float


def begun(server: tuple[str, int], source: str, count: int) -> Begun:
    """Begin so many connections from an address of this machine."""
    sockets = []
    began_s = time.monotonic()
    took_s = 0.0
    for _ in range(count):
        client = socket.create_connection(server, timeout=30, source_address=(source, 0))
        client.sendall(frames.request(18, 0))
        sockets.append(client)
    answered = 0
    for client in sockets:
        with client, suppress(ConnectionError):
            if client.recv(4):
                answered += 1
                took_s = time.monotonic() - began_s
    return Begun(answered, took_s)


def until_held(server: tuple[str, int], addresses: Iterator[str], *, held: bool) -> None:
    """Until an address that has not come yet is held to the default, or to nothing any more."""
    end = time.monotonic() + _KNOWN_S
    while (begun(server, next(addresses), 60).count < 60) != held:
        assert time.monotonic() < end
        time.sleep(0.1)


def test_connections_of_an_address_are_let_in_as_by_a_broker(
    quota_kafka: LocalKafka, tmp_path: Path
) -> None:
    own = alteration(({"ip": "127.0.0.77"}, {"connection_creation_rate": 2.0}))
    default = alteration(({"ip": None}, {"connection_creation_rate": 3.0}))
    enforced = "\n[quotas.connection_creation_rate]\nenforce = true\n"
    broker = quota_kafka.nodes[0].address
    others = (f"127.0.0.{number}" for number in range(79, 255))
    process = gateway(tmp_path, quota_kafka.bootstrap_servers, more=enforced)
    with process, RawClient(broker) as direct, RawClient(address(process)) as client:
        cleaned(direct)  # other tests leave some
        try:
            for frame in (own, default):
                for answer in (asked(direct, frame), asked(client, frame)):
                    assert [code for _, code, _ in altered(answer)] == [0]
            same_description(direct, client, description(("ip", 2, None)), 1)
            until_held(broker, others, held=True)  # it puts it in force behind its metadata
            straight = [begun(broker, source, 60) for source in ("127.0.0.77", "127.0.0.78")]
        finally:
            cleaned(direct)
        until_held(broker, others, held=False)  # nor is the gateway
        told = [begun(address(process), source, 60) for source in ("127.0.0.77", "127.0.0.78")]

    # 10 s of the rate at once; while they come the window grows by as much, and by parts of a second.
    for rate, by_broker, by_gateway in zip((2.0, 3.0), straight, told, strict=True):
        assert 10 * rate <= by_broker.count < (13 + by_broker.took_s) * rate
        further = rate * max(by_broker.took_s, by_gateway.took_s)
        assert abs(by_broker.count - by_gateway.count) <= 3 + further
    assert "may begin 2 connections a second (connection_creation_rate)" in process.log
