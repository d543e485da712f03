"""The table of APIs, and every answer's bytes, held against what a real broker offers and says."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.index import api_key_map
from kio.serial.errors import OutOfBoundValue
from tests.integration.address_scan import addresses_in
from tests.integration.plain_requests import plain_request
from tests.integration.raw_client import RawClient
from tests.integration.same_answers import differences
from tests.integration.tapped_gateway import TappedGateway, tapped_gateway
from tests.integration.test_gateway_addresses import ask_metadata, batch, leaders

from kvota.localkafka import LocalKafka
from kvota.testing.frames import request
from kvota.testing.kafka_messages import from_frame, versions
from kvota.wire.apis import APIS, name_of

DESCRIBE_QUORUM = 55
# What a broker offers and no client of the gateway gets, as (key, lowest, highest version).
LEFT_OUT = {
    (
        DESCRIBE_QUORUM,
        2,
        2,
    ): "lists the controllers' own listeners, which no client can reach through the gateway",
    (83, 0, 0): "InitializeShareGroupState: between brokers",
    (84, 0, 0): "ReadShareGroupState: between brokers",
    (85, 0, 1): "WriteShareGroupState: between brokers",
    (86, 0, 0): "DeleteShareGroupState: between brokers",
    (87, 0, 1): "ReadShareGroupStateSummary: between brokers",
}
SHARE_GROUPS = range(76, 80)
# Answers in which a broker names addresses of brokers to whoever asks plainly, all versions or these.
NAMES_BROKERS = {"Produce": range(10, 14), "Fetch": range(16, 19), "DescribeQuorum": (2,)}
NAMES_BROKERS_ALWAYS = {"Metadata", "FindCoordinator", "DescribeCluster", "DescribeConfigs"}


@pytest.fixture(scope="module")
def gateway(
    kafka3: LocalKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TappedGateway]:
    with tapped_gateway(tmp_path_factory.mktemp("apis"), kafka3) as tapped:
        ask_metadata(RawClient(tapped.node(1)))  # now it knows every node
        yield tapped


def offered(address: tuple[str, int]) -> dict[int, tuple[int, int]]:
    """The APIs of ApiVersions: key → lowest and highest version."""
    with RawClient(address) as client:
        answer = client.ask(
            request(18, 4, client_software_name="test", client_software_version="1")
        )
    assert answer.error_code == 0
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


def test_what_a_broker_offers_is_offered_through_the_gateway_or_left_out_for_a_reason(
    gateway: TappedGateway, kafka3: LocalKafka
) -> None:
    straight, through = offered(kafka3.nodes[0].address), offered(gateway.node(1))

    left_out = set()
    for key, (lowest, highest) in straight.items():
        if key not in through:
            left_out.add((key, lowest, highest))
            continue
        assert through[key][0] == lowest, name_of(key)
        if through[key][1] < highest:
            left_out.add((key, through[key][1] + 1, highest))
    # Share groups are offered all four, or none of them.
    absent = {each for each in left_out if each[0] in SHARE_GROUPS and each[0] not in APIS}
    assert {key for key, _lowest, _highest in absent} in (set(), set(SHARE_GROUPS))
    assert left_out - absent == set(LEFT_OUT)
    assert set(through) <= set(straight)


def test_every_api_in_every_version_is_answered_alike_and_names_no_broker_to_a_client(
    gateway: TappedGateway, kafka3: LocalKafka
) -> None:
    kafka3.create_topic("every-api", partitions=3, replication_factor=1)
    topic_id, leader_of = leaders(kafka3, "every-api")
    asked_node = next(node for node in kafka3.nodes if node.node_id != leader_of[0])
    straight, through = asked_node.address, gateway.node(asked_node.node_id)
    named = {
        "topic": "every-api", "topic_name": "every-api", "name": "every-api", "topic_id": topic_id,
        "acks": 1, "records": batch(), "endpoint_type": 1,
        "client_software_name": "test", "client_software_version": "1",
    }  # fmt: skip
    told: set[tuple[str, int]] = set()
    closed: set[tuple[str, int]] = set()
    different: dict[tuple[str, int], list[str]] = {}
    own = {node.address: gateway.node(node.node_id) for node in kafka3.nodes}

    def told_by_the_gateway(host: str, port: int) -> tuple[str, int]:
        return own.get((host, port), (host, port))

    groups, transactions = (
        iter(_coordinated_by(straight, asked_node.node_id, key_type)) for key_type in (0, 1)
    )
    offered_through = offered(through)
    for key, (lowest, highest) in offered(straight).items():
        if key not in api_key_map:
            continue
        for version in sorted({*versions(key)} & {*range(lowest, highest + 1)}):
            row = (name_of(key), version)
            more = _named(key, next(groups), next(transactions), asked_node.node_id)
            frame = plain_request(key, version, named | more)
            answer = _settled(straight, frame)
            if not answer:
                closed.add(row)
            if addresses_in(answer, kafka3):
                told.add(row)
            low, high = offered_through.get(key, (1, 0))
            if answer and low <= version <= high:
                both = (_decoded(one, frame) for one in (answer, _settled(through, frame)))
                if found := differences(name_of(key), *both, told_by_the_gateway):
                    different[row] = found

    assert closed == set()
    assert different == {}
    expected = {(name, version) for name, which in NAMES_BROKERS.items() for version in which}
    expected |= {row for row in told if row[0] in NAMES_BROKERS_ALWAYS}
    assert {name for name, _version in told} >= NAMES_BROKERS_ALWAYS
    assert told == expected
    gateway.assert_no_address_leaked()


def _coordinated_by(address: tuple[str, int], node_id: int, key_type: int) -> list[str]:
    """Names of groups (or of transactions, key_type 1) of which this node is the coordinator."""
    names = tuple(f"every-api-{number}" for number in range(5_000))
    asked = request(10, 4, coordinator_keys=names, key_type=key_type)
    with RawClient(address) as client:
        told = client.ask(asked).coordinators
        # The first question has the topic made that coordinators stand for.
        while any(one.error_code for one in told):
            time.sleep(0.1)
            told = client.ask(asked).coordinators
    return [one.key for one in told if one.node_id == node_id]


def _named(key: int, group: str, transaction: str, node_id: int) -> dict[str, Any]:
    """What one API's request has to name, so that its answer has something to tell and nothing is damaged.

    The group and the transaction are of this question alone, and the node that is asked coordinates both.
    """
    fields: dict[str, Any] = {
        "group_id": group, "group_ids": (group,), "groups_names": (group,), "transactional_id": transaction,
        "key": group, "coordinator_keys": (group,), "key_type": 0,
    }  # fmt: skip
    match name_of(key):
        case "Produce":
            fields["transactional_id"] = None
        case "SaslHandshake":
            fields["mechanism"] = "PLAIN"
        case "DeleteTopics" | "DeleteRecords" | "CreatePartitions" | "AlterPartitionReassignments":
            fields |= {"name": "absent", "topic_id": None, "topic_names": ("absent",)}
        case "DescribeConfigs":
            fields |= {
                "resource_type": 4,
                "resource_name": str(node_id),
                "configuration_keys": None,
            }
        case "DescribeQuorum":
            fields["topic_name"] = "__cluster_metadata"
        case "DescribeAcls" | "CreateAcls" | "DeleteAcls":
            fields |= {
                "resource_type": 2,
                "operation": 3,
                "permission_type": 3,
                "resource_name": "absent",
            }
            fields |= {"resource_type_filter": 2, "principal": "User:nobody", "host": "*"}
        case "UnregisterBroker":
            fields["broker_id"] = 99
        case _:
            pass
    return fields


def _settled(address: tuple[str, int], frame: bytes) -> bytes:
    """The answer, once the node has read what it coordinates and has done with what was asked before."""
    while True:
        answer = _answer(address, frame)
        said = repr(_decoded(answer, frame))
        if "coordinator_load_in_progress" not in said and "concurrent_transactions" not in said:
            return answer
        time.sleep(0.1)


def _decoded(answer: bytes, frame: bytes) -> Any:
    """kio's message; None: there was no answer. Where a time is -1 for none, which kio does not take, the bytes."""
    try:
        return from_frame(answer, frame[5], frame[7], "response") if answer else None
    except OutOfBoundValue:
        return answer


def _answer(address: tuple[str, int], frame: bytes) -> bytes:
    """One answer frame; nothing where the connection ends instead."""
    with RawClient(address, timeout_s=60) as client:
        client.send(frame)
        try:
            return client.frame()
        except ConnectionError:
            return b""
