"""Addresses rewritten in every answer that carries some, against kio's encoding."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvota.model.errors import ProtocolError
from kvota.testing.kafka_messages import (
    RandomMessages,
    from_frame,
    part_type,
    payload_type,
    to_frame,
    versions,
)
from kvota.wire.addresses import UnknownNodeError, rewrite
from kvota.wire.apis import APIS, DESCRIBE_CONFIGS

SEEDS = st.integers(0, 2**32)
# Hidden, not replaced, in DescribeConfigs: see test_broker_configs.
KEYS_AND_VERSIONS = [
    (key, version)
    for key, api in APIS.items()
    for version in versions(key)
    if version >= api.addresses_from and key != DESCRIBE_CONFIGS
]
ADDRESSED = st.sampled_from(KEYS_AND_VERSIONS)


def gateway_address(node_id: int, _host: str, _port: int) -> tuple[str, int]:
    return "gateway.example", 19_092 + node_id


def expected(payload: Any) -> Any:
    """The kio message with its addresses replaced by kio's own means."""
    if hasattr(payload, "host"):
        return rewritten(payload, payload.node_id)
    for name in ("brokers", "coordinators", "node_endpoints"):
        if hasattr(payload, name):
            entries = getattr(payload, name)
            return replace(payload, **{name: tuple(rewritten(e, node_of(e)) for e in entries)})
    raise AssertionError(payload)


def node_of(entry: Any) -> int:
    return entry.node_id if hasattr(entry, "node_id") else entry.broker_id


def rewritten(entry: Any, node_id: int) -> Any:
    host, port = gateway_address(node_id, entry.host, entry.port)
    return replace(entry, host=host, port=port)


@given(key_version=ADDRESSED, seed=SEEDS)
@settings(deadline=None, max_examples=500)
def test_only_the_addresses_change(key_version: tuple[int, int], seed: int) -> None:
    payload = RandomMessages(Random(seed)).payload(*key_version, "response")
    frame = to_frame(payload, correlation_id=seed % 1000)

    answer = rewrite(frame, *key_version, gateway_address)

    assert from_frame(answer, *key_version, "response") == expected(payload)
    assert answer == to_frame(expected(payload), correlation_id=seed % 1000)


@given(key_version=ADDRESSED, seed=SEEDS)
@settings(deadline=None, max_examples=300)
def test_the_gateway_learns_every_address_in_order(key_version: tuple[int, int], seed: int) -> None:
    payload = RandomMessages(Random(seed)).payload(*key_version, "response")
    seen: list[tuple[int, str, int]] = []

    def learn(node_id: int, host: str, port: int) -> tuple[str, int]:
        seen.append((node_id, host, port))
        return "gateway.example", 1

    rewrite(to_frame(payload), *key_version, learn)

    assert seen == addresses_in(payload)


def addresses_in(payload: Any) -> list[tuple[int, str, int]]:
    if hasattr(payload, "host"):
        return [(payload.node_id, payload.host, payload.port)]
    names = [n for n in ("brokers", "coordinators", "node_endpoints") if hasattr(payload, n)]
    return [(node_of(e), e.host, e.port) for e in getattr(payload, names[0])]


@given(key_version=ADDRESSED, seed=SEEDS)
@settings(deadline=None, max_examples=300)
def test_a_node_without_an_address_fails_the_whole_answer(
    key_version: tuple[int, int], seed: int
) -> None:
    payload = RandomMessages(Random(seed)).payload(*key_version, "response")
    asked: list[int] = []

    def unknown(node_id: int, host: str, port: int) -> tuple[str, int]:
        asked.append(node_id)
        msg = f"node {node_id} at {host}:{port} is outside the range"
        raise UnknownNodeError(msg)

    outcome = outcome_of(to_frame(payload), key_version, unknown)

    assert outcome == ("refused" if addresses_in(payload) else "unchanged")
    assert len(asked) == bool(addresses_in(payload))


def outcome_of(frame: bytes, key_version: tuple[int, int], address_of: Any) -> str:
    try:
        answer = rewrite(frame, *key_version, address_of)
    except UnknownNodeError:
        return "refused"
    return "unchanged" if answer is frame else "changed"


@pytest.mark.parametrize("version", range(7))
def test_a_coordinator_that_is_not_known_stays_as_it_is(version: int) -> None:
    answer = payload_type(10, version, "response")
    nobody = {"node_id": -1, "host": "", "port": -1}
    messages = RandomMessages(Random(version))
    payload = (
        messages.entity(answer, **nobody)
        if version < 4
        else answer(
            throttle_time=messages.payload(10, 4, "response").throttle_time,
            coordinators=(messages.entity(part_type(answer, "Coordinator"), **nobody),),
        )
    )
    frame = to_frame(payload)

    assert rewrite(frame, 10, version, gateway_address) is frame


@pytest.mark.parametrize(("key", "version"), [(0, 9), (1, 15), (2, 11), (18, 4), (77, 1), (999, 0)])
def test_answers_that_carry_no_addresses_are_not_looked_at(key: int, version: int) -> None:
    frame = b"not even a frame"

    assert rewrite(frame, key, version, gateway_address) is frame


@pytest.mark.parametrize("key", [0, 1])
def test_tags_beside_the_node_endpoints_survive(key: int) -> None:
    version = {0: 10, 1: 16}[key]
    bare = RandomMessages(Random(1)).frame(key, version, "response", node_endpoints=())
    endpoint = b"\x02" + b"\0\0\0\x03" + b"\x07broker" + b"\0\0\x23\x84" + b"\0" + b"\0"
    tags = b"\x03" + b"\0" + bytes((len(endpoint),)) + endpoint + b"\x05\x02zz" + b"\x81\x01\0"
    frame = sized(bare[:-1] + tags)

    answer = rewrite(frame, key, version, gateway_address)

    moved = b"\x02" + b"\0\0\0\x03" + b"\x10gateway.example" + b"\0\0\x4a\x97" + b"\0" + b"\0"
    new_tags = b"\x03" + b"\0" + bytes((len(moved),)) + moved + b"\x05\x02zz" + b"\x81\x01\0"
    assert answer == sized(bare[:-1] + new_tags)


def test_tags_of_a_broker_and_bytes_behind_the_brokers_survive() -> None:
    broker = b"\0\0\0\x01" + b"\x02b" + b"\0\0\x23\x84" + b"\0"
    moved = b"\0\0\0\x01" + b"\x10gateway.example" + b"\0\0\x4a\x95" + b"\0"
    rest = b"\x01\x09\x01t" + b"whatever a later version may bring"
    head = b"\0\0\0\x07" + b"\0" + bytes(4) + b"\x02"

    answer = rewrite(sized(b"\0\0\0\0" + head + broker + rest), 3, 12, gateway_address)

    assert answer == sized(b"\0\0\0\0" + head + moved + rest)


def test_controllers_named_by_describe_cluster_are_asked_for_like_brokers() -> None:
    payload = RandomMessages(Random(5)).payload(60, 1, "response", endpoint_type=2)
    seen = []

    def learn(node_id: int, _host: str, _port: int) -> tuple[str, int]:
        seen.append(node_id)
        return "gateway.example", 1

    rewrite(to_frame(payload), 60, 1, learn)

    assert seen == [broker.broker_id for broker in payload.brokers]
    assert seen


def sized(frame: bytes) -> bytes:
    return (len(frame) - 4).to_bytes(4, "big") + frame[4:]


@given(
    # Of the others an end that says that no addresses are there is believed.
    key_version=ADDRESSED.filter(lambda key_version: key_version[0] not in {0, 1, 78}),
    seed=SEEDS,
    data=st.data(),
)
@settings(deadline=None, max_examples=300)
def test_an_answer_cut_within_its_addresses_is_refused(
    key_version: tuple[int, int], seed: int, data: st.DataObject
) -> None:
    payload = RandomMessages(Random(seed)).payload(*key_version, "response")
    frame = to_frame(payload)
    hosts = [host.encode() for _node, host, _port in addresses_in(payload)]
    addresses_end = max((frame.rindex(host) + len(host) + 4 for host in hosts), default=12)
    cut = data.draw(st.integers(8, addresses_end - 1))

    with pytest.raises(ProtocolError, match=r"answer|message header"):
        rewrite(sized(frame[:cut]), *key_version, gateway_address)
