"""Which broker a connection is for, and what happens when it is not there."""

import logging

import pytest
from tests.unit.gateway.world import (
    BROKER_HOST,
    GATEWAY_HOST,
    Worlds,
    heartbeat,
    heartbeat_answer,
    until,
)

from kvota.testing.frames import (
    METADATA,
    decoded,
    request,
)


async def test_a_nodes_port_leads_to_that_node_once_an_answer_has_named_it(worlds: Worlds) -> None:
    world = await worlds(brokers=3)
    client = await world.connect()

    told = decoded(await client.ask(request(METADATA, 12)), METADATA, 12)

    addresses = [(broker.host, broker.port - world.first_port - 1) for broker in told.brokers]
    assert addresses == [(GATEWAY_HOST, 1), (GATEWAY_HOST, 2), (GATEWAY_HOST, 3)]
    before = [broker.connections for broker in world.brokers]
    for node_id in (1, 2, 3):
        node = await world.connect(node_id)
        assert await node.ask(heartbeat()) == heartbeat_answer()
    after = [broker.connections for broker in world.brokers]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1, 1]


async def test_another_bootstrap_server_is_tried(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(brokers=3, started=(2,))

    answers = [await (await world.connect()).ask(heartbeat()) for _ in range(4)]

    assert answers == [heartbeat_answer()] * 4
    assert caplog.text.count("cannot be reached") == 2  # each once, not at every attempt


async def test_without_any_broker_the_client_is_closed_and_the_log_says_why_once(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world = await worlds(started=())
    port = world.brokers[0].port
    for _ in range(3):
        client = await world.connect()
        client.send(heartbeat())
        assert await client.rest() == b""
    assert caplog.text.count(f"broker {BROKER_HOST}:{port} cannot be reached") == 1

    await world.brokers[0].start()

    client = await world.connect()
    assert await client.ask(heartbeat()) == heartbeat_answer()
    assert f"broker {BROKER_HOST}:{port} can be reached again" in caplog.text
    await until(lambda: world.open_connections == 1)
