"""Produce requests that no client sends, with producer ids counted: a real broker beside the gateway is the measure."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.integration.brokers_in_step import await_served
from tests.integration.raw_client import RawClient

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.localkafka import LocalKafka
from kvota.testing.producer_frames import Of, batch, errors_of, produce_of
from kvota.wire.error_code import ErrorCode

_REFUSED = int(ErrorCode.NOT_ENOUGH_REPLICAS)
Records = tuple[tuple[int, bytes], ...]  # by partition


def cases(partitions: int = 10_000) -> dict[str, Records]:
    whole = batch(Of(1000))
    too_long = whole[:8] + (100_000).to_bytes(4, "big") + whole[12:]
    below_0 = whole[:8] + (-1).to_bytes(4, "big", signed=True) + whole[12:]
    by_magic = {
        f"magic {magic}": ((0, whole[:16] + bytes([magic]) + whole[17:]),) for magic in (0, 1, 3)
    }
    return {
        "cut in its head": ((0, whole[:30]),),
        "cut behind its head": ((0, whole[:70]),),
        "longer than its frame": ((0, too_long),),
        "of a length below 0": ((0, below_0),),
        **by_magic,
        "two in one partition": ((0, whole + batch(Of(2000))),),
        "two of one partition": ((0, whole), (0, batch(Of(2000)))),
        "the lowest id": ((0, batch(Of(-(2**63)))),),
        "the highest id": ((0, batch(Of(2**63 - 1))),),
        "epoch and sequence below 0": ((0, batch(Of(1000, -5, -7))),),
        "many partitions": tuple((n, batch(Of(n, records_bytes=0))) for n in range(partitions)),
    }


@pytest.fixture
def gateway(
    kafka: LocalKafka, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[GatewayProcess]:
    config = gateway_toml(
        upstream=kafka.bootstrap_servers, node_ids="0-2", enforce={"PRODUCER_ID": True}
    )
    quotas = f"[[quota]]\nuser_default = true\nproducer_ids_rate = {request.param}\n"
    with GatewayProcess(tmp_path, config=config, quotas=quotas) as process:
        yield process


def outcome(servers: str, topic: str, records: Records) -> object:
    """The error of each partition, or that the connection was closed."""
    host, _, port = servers.partition(":")
    with RawClient((host, int(port))) as client:
        client.send(produce_of(*((topic, partition, data) for partition, data in records)))
        try:
            return errors_of(client.frame())
        except ConnectionError:
            return "closed"


@pytest.mark.parametrize("gateway", [1_000_000], indirect=True)
def test_what_is_within_the_quota_is_answered_as_by_the_broker(
    gateway: GatewayProcess, kafka: LocalKafka
) -> None:
    topic = f"bad-{uuid4().hex[:8]}"
    kafka.create_topic(topic, partitions=1)
    await_served(kafka, topic)
    for name, records in cases().items():
        by_broker = outcome(kafka.bootstrap_servers, topic, records)
        assert outcome(gateway.bootstrap_servers, topic, records) == by_broker, name
    assert gateway.stop() == 0


@pytest.mark.parametrize("gateway", [1], indirect=True)
def test_what_is_beyond_it_is_refused_and_the_gateway_goes_on(
    gateway: GatewayProcess, kafka: LocalKafka
) -> None:
    topic = f"bad-{uuid4().hex[:8]}"
    kafka.create_topic(topic, partitions=1)
    await_served(kafka, topic)
    servers = gateway.bootstrap_servers
    assert outcome(servers, topic, ((0, batch(Of(1))),)) != {(topic, 0): _REFUSED}
    ids = {"two in one partition", "two of one partition", "the highest id"}
    # Of one user 10,000 refused partitions are remembered; some are before these.
    for name, records in cases(9_000).items():
        found = outcome(servers, topic, records)
        if name in ids:
            assert found == {(topic, 0): _REFUSED}, name
        elif name == "many partitions":
            assert isinstance(found, dict)
            # Id 1 is known, and of 10,000 one looks like it.
            assert 8_980 < sum(code == _REFUSED for code in found.values()) <= 8_999
        elif name != "epoch and sequence below 0":
            assert found == outcome(kafka.bootstrap_servers, topic, records), name
    assert outcome(servers, topic, cases()["many partitions"]) == "closed"
    assert gateway.stop() == 0
    assert "more refused batches of one user than are remembered" in gateway.log
