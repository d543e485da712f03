"""The broker's side: answers that must not go on, brokers that go."""

import pytest
from tests.unit.gateway.world import (
    Worlds,
    heartbeat,
    heartbeat_answer,
    obliging,
    silent,
    until,
)

from kvota.testing.frames import (
    METADATA,
    produce,
    request,
)


async def test_an_answer_that_names_an_unknown_node_is_not_forwarded(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(brokers=1)
    world.brokers[0].cluster.append(("far.inside", 9092))
    client = await world.connect()

    client.send(request(METADATA, 12))

    assert await client.rest() == b""
    assert "node 2 at far.inside:9092, outside gateway.node_ids 0-1" in caplog.text
    assert "an answer was not forwarded" in caplog.text


async def test_a_broker_that_dies_takes_its_connections_along_and_the_gateway_stays(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(behaviour=silent)
    client = await world.connect()
    client.send(produce() + heartbeat(2))
    await until(lambda: len(world.brokers[0].frames) == 2)

    await world.brokers[0].stop()

    assert await client.rest() == b""
    assert "2 answers were due" in caplog.text
    await until(lambda: world.open_connections == 0)
    assert [row.upstream_ms for row in world.sink.rows] == [-1]
    world.brokers[0].behaviour = obliging
    await world.brokers[0].start()
    assert await (await world.connect()).ask(heartbeat()) == heartbeat_answer()


async def test_a_client_that_closes_in_order_is_nothing_for_the_log(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds()
    client = await world.connect()
    assert await client.ask(heartbeat()) == heartbeat_answer()
    waiting = await world.connect()
    assert await waiting.ask(heartbeat()) == heartbeat_answer()
    world.brokers[0].behaviour = silent
    waiting.send(heartbeat(2))
    await until(lambda: len(world.brokers[0].frames) == 3)
    caplog.set_level("INFO")
    caplog.clear()

    client.writer.close()
    waiting.writer.close()

    await until(lambda: world.open_connections == 0)
    assert caplog.messages == []


async def test_a_record_without_acks_arrives_though_its_client_is_gone(worlds: Worlds) -> None:
    world = await worlds(behaviour=silent)
    client = await world.connect()
    frame = produce(acks=0, records=b"r" * 100_000)

    client.send(frame)
    await client.writer.drain()
    client.writer.close()

    await until(lambda: world.brokers[0].frames == [frame])
