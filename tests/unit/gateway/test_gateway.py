"""The gateway as a whole: its end, and what it offers to others."""

import pytest
from tests.unit.gateway.world import (
    Worlds,
    heartbeat,
    heartbeat_answer,
    silent,
    until,
)

from kvota.gateway.settings import GatewayLimits
from kvota.testing.frames import (
    produce,
    produce_answer,
    split,
)
from kvota.testing.stage import quotas


async def test_draining_answers_what_is_in_flight_and_takes_no_more(worlds: Worlds) -> None:
    world = await worlds(limits=GatewayLimits(drain_ms=8_000))
    idle, busy = await world.connect(), await world.connect()
    await idle.ask(heartbeat())
    world.brokers[0].gate.clear()
    busy.send(produce() + heartbeat(2))
    await until(lambda: sum(driver.machine.due_count for driver in world.drivers) == 2)

    ended = world.stop_soon()
    assert await idle.rest() == b""
    busy.send(heartbeat(3))
    with pytest.raises(OSError, match=r"onnect"):
        await world.connect()
    world.brokers[0].gate.set()

    assert split(await busy.rest()) == [produce_answer(), heartbeat_answer(2)]
    await ended
    assert heartbeat(3) not in world.brokers[0].frames


async def test_draining_ends_though_a_broker_never_answers(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(behaviour=silent, limits=GatewayLimits(drain_ms=100))
    client = await world.connect()
    client.send(produce())
    await until(lambda: world.brokers[0].frames)

    await world.stop()

    assert await client.rest() == b""
    assert "1 connections had not finished after 100 ms" in caplog.text
    assert [row.upstream_ms for row in world.sink.rows] == [-1]


async def test_draining_does_not_wait_for_a_muted_client(worlds: Worlds) -> None:
    world = await worlds(table=quotas(PRODUCE=1_000), limits=GatewayLimits(drain_ms=60_000))
    client = await world.connect()
    await client.ask(produce(records=b"r" * 1_000_000))

    await world.stop()

    assert await client.rest() == b""
