"""A broker has one counter for a user, by whatever name and port its connections have come."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.integration.brokers_in_step import await_served
from tests.integration.raw_client import RawClient
from tests.integration.test_gateway_addresses import batch, leaders, produce_to

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.localkafka import LocalKafka
from kvota.testing.frames import CREATE_TOPICS, METADATA, parts, request

# What 127.0.0.2 is called, too; the broker does not advertise it.
OTHER_NAME = "127.2"
TOPIC = "one-counter"


@pytest.fixture
def gateway(kafka: LocalKafka, tmp_path: Path) -> Iterator[GatewayProcess]:
    config = gateway_toml(
        upstream=f"{OTHER_NAME}:{kafka.nodes[0].port}",
        node_ids="0-2",
        record="record",
        limits={"default_partitions": 7},
    )
    quotas = (
        "[[quota]]\nuser_default = true\nproducer_byte_rate = 1e9\ncontroller_mutation_rate = 1e6\n"
    )
    with GatewayProcess(tmp_path, config=config, quotas=quotas) as process:
        yield process


def rows_of(gateway: GatewayProcess, columns: list[str]) -> list[tuple[object, ...]]:
    assert gateway.stop() == 0
    paths = sorted((gateway.folder / "record").glob("*.parquet"))
    return [
        tuple(row.values())
        for path in paths
        for row in pq.read_table(path, columns=columns).to_pylist()
    ]


@pytest.mark.parametrize("asks", [False, True], ids=["never-asks", "asks-metadata"])
def test_all_rows_have_one_node(
    kafka: LocalKafka,
    gateway: GatewayProcess,
    asks: bool,
) -> None:
    name = f"{TOPIC}-{asks}"
    kafka.create_topic(name)
    await_served(kafka, name)
    topic_id, _leaders = leaders(kafka, name)
    node = kafka.nodes[0]
    bootstrap = int(gateway.bootstrap_servers.split(":")[1])
    asked = produce_to(name, topic_id, 0, 12, batch())

    for port in (bootstrap, bootstrap + 1 + node.node_id) * 4:
        with RawClient(("127.0.0.1", port)) as client:
            if asks:
                client.ask(request(METADATA, 12, topics=()))
            answer = client.ask(asked)
        assert answer.responses[0].partition_responses[0].error_code == 0

    assert rows_of(gateway, ["node_id", "quota_type"]) == [(node.node_id, "PRODUCE")] * 8


def test_a_topic_with_the_brokers_default_is_charged_what_the_broker_makes(
    kafka: LocalKafka, gateway: GatewayProcess
) -> None:
    bootstrap = int(gateway.bootstrap_servers.split(":")[1])
    row = {"name": "by-default", "num_partitions": -1, "replication_factor": 1}
    topics = parts(
        CREATE_TOPICS, 4, "request", "CreatableTopic", row | {"assignments": (), "configs": ()}
    )

    with RawClient(("127.0.0.1", bootstrap)) as client:
        answer = client.ask(request(CREATE_TOPICS, 4, topics=topics, validate_only=False))

    assert [topic.error_code.value for topic in answer.topics] == [0]
    assert rows_of(gateway, ["quota_type", "value"]) == [("CONTROLLER_MUTATION", 1.0)]
