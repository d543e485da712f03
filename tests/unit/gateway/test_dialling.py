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

from kvota.app.gateway_process import free_port_range
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.session.topology import UNNAMED_NODE
from kvota.testing.frames import (
    METADATA,
    decoded,
    produce,
    produce_answer,
    request,
)
from kvota.testing.stage import quotas


async def test_a_nodes_port_leads_to_that_node_once_an_answer_has_named_it(worlds: Worlds) -> None:
    world = await worlds(brokers=3, knows_brokers=False)
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


# What 127.0.0.2 is called, too.
OTHER_NAME = "127.2"


def unlimited() -> ConfiguredQuotas:
    return quotas(PRODUCE=10**9)


async def test_connections_by_another_name_are_counted_on_the_broker_that_is_there(
    worlds: Worlds,
) -> None:
    world = await worlds(knows_brokers=False, table=unlimited(), upstream_host=OTHER_NAME)
    by_name = await world.connect()

    assert await by_name.ask(produce()) == produce_answer()

    assert [
        decoded(f, METADATA, 4, is_answer=False).topics for f in world.brokers[0].frames[:1]
    ] == [()]
    by_node = await world.connect(1)
    assert await by_node.ask(produce()) == produce_answer()
    assert [row.memo.node_id for row in world.sink.rows] == [1, 1]
    assert len(world.brokers[0].frames) == 3  # one question, two requests


async def test_known_brokers_take_turns_at_the_bootstrap_port(worlds: Worlds) -> None:
    world = await worlds(
        brokers=3, knows_brokers=False, table=unlimited(), upstream_host=OTHER_NAME
    )
    assert await (await world.connect()).ask(produce()) == produce_answer()
    await until(lambda: len(world.gateway._brokers.reachable) == 3)

    for _ in range(6):
        assert await (await world.connect()).ask(produce()) == produce_answer()

    nodes = [row.memo.node_id for row in world.sink.rows[1:]]
    assert sorted(nodes) == [1, 1, 2, 2, 3, 3]
    asked = [frame for broker in world.brokers for frame in broker.frames if frame[5] == METADATA]
    assert len(asked) == 1  # never where the node is known


async def test_a_broker_that_died_is_left_out_of_the_turns(worlds: Worlds) -> None:
    world = await worlds(brokers=3, table=unlimited())
    await (await world.connect()).ask(produce())
    await until(lambda: len(world.gateway._brokers.reachable) == 3)
    await world.brokers[1].stop()

    for _ in range(6):
        client = await world.connect()
        assert await client.ask(heartbeat()) == heartbeat_answer()
        assert await client.ask(produce()) == produce_answer()

    assert {row.memo.node_id for row in world.sink.rows[1:]} == {1, 3}


async def test_an_address_that_is_no_brokers_is_left_for_one_that_is(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world = await worlds(knows_brokers=False, table=unlimited())
    balancer = await world.balance()
    client = await world.connect()
    client.send(produce())

    assert await client.rest() == b""
    assert "is no broker's own address, and nothing is counted for it" in caplog.text
    assert [frame[5] for frame in world.brokers[0].frames] == [METADATA]
    assert await (await world.connect()).ask(produce()) == produce_answer()
    assert [row.memo.node_id for row in world.sink.rows] == [1]
    assert balancer.connections == 1


async def test_where_brokers_cannot_be_reached_all_connections_have_one_counter(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(knows_brokers=False, table=unlimited())
    balancer = await world.balance()
    world.brokers[0].cluster[:] = [(BROKER_HOST, free_port_range(1, BROKER_HOST))]

    for _ in range(3):
        client = await world.connect()
        assert await client.ask(produce()) == produce_answer()
        assert await client.ask(produce()) == produce_answer()

    assert [row.memo.node_id for row in world.sink.rows] == [UNNAMED_NODE] * 6
    assert caplog.text.count("connections to it are counted together, as node -3") == 1
    assert balancer.connections == 3


async def test_a_node_that_has_moved_is_followed(worlds: Worlds) -> None:
    world = await worlds(brokers=2, table=unlimited())
    first, second = (broker.address for broker in world.brokers)
    assert await (await world.connect(1)).ask(produce()) == produce_answer()

    world.shared.topology.address_of(2, *first)  # another process listens there now
    assert world.shared.topology.brokers == {2: first}

    assert await (await world.connect(2)).ask(produce()) == produce_answer()
    assert [row.memo.node_id for row in world.sink.rows] == [1, 2]
    assert len(world.brokers[0].frames) == 2
    world.shared.topology.address_of(1, *second)
    assert await (await world.connect(1)).ask(produce()) == produce_answer()
    assert [row.memo.node_id for row in world.sink.rows] == [1, 2, 1]
    assert len(world.brokers[1].frames) == 1


# ------------------------------------------------------------------ the gateway's own addresses


async def test_a_broker_that_is_said_to_be_where_the_gateway_is_is_refused_and_said_once(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(knows_brokers=False)
    world.brokers[0].cluster[:] = [(GATEWAY_HOST, world.first_port + 2)]

    for _ in range(20):
        client = await world.connect()
        client.send(request(METADATA, 12))
        assert await client.rest() == b""

    own = f"{GATEWAY_HOST}:{world.first_port + 2}"
    assert caplog.text.count(f"node 1 advertises {own}, which is this gateway's own address") == 1
    assert f"told by {BROKER_HOST}:{world.brokers[0].port}" in caplog.text
    assert "Set advertised.listeners of that broker" in caplog.text
    assert world.shared.topology.brokers == {}
    await until(lambda: world.open_connections == 0)


async def test_a_name_that_leads_to_the_gateway_is_not_dialled(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(knows_brokers=False)
    # A name that only its look-up shows to be the gateway's.
    world.shared.topology.address_of(1, "127.1", world.first_port + 2)

    for _ in range(20):
        client = await world.connect(1)
        client.send(heartbeat())
        assert await client.rest() == b""

    said = f"not dialled as a broker: the gateway itself listens there, at 127.0.0.1:{world.first_port + 2}"
    assert caplog.text.count(said) == 1
    await until(lambda: world.open_connections == 0)
    assert caplog.text.count("closed") == 0


async def test_a_gateway_behind_a_gateway_is_a_broker_like_others(worlds: Worlds) -> None:
    behind = await worlds(table=unlimited())
    front = await worlds(knows_brokers=False, table=unlimited(), behind=behind)
    client = await front.connect()

    told = decoded(await client.ask(request(METADATA, 12)), METADATA, 12)
    assert [broker.port for broker in told.brokers] == [front.first_port + 2]
    assert await (await front.connect(1)).ask(produce()) == produce_answer()

    assert [row.memo.node_id for row in (*front.sink.rows, *behind.sink.rows)] == [1, 1]
