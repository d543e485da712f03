"""As many connections as there are places."""

import pytest
from tests.unit.gateway.world import (
    Worlds,
    heartbeat,
    heartbeat_answer,
    until,
)

from kvota.gateway.settings import GatewayLimits


async def test_connections_over_the_limit_are_closed_with_a_reason(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(limits=GatewayLimits(connections_max=2, drain_ms=100))
    good = [await world.connect() for _ in range(2)]
    for client in good:
        assert await client.ask(heartbeat()) == heartbeat_answer()

    refused = await world.connect()

    assert await refused.rest() == b""
    assert "all 2 connections are in use (limits.connections_max)" in caplog.text
    assert await good[0].ask(heartbeat()) == heartbeat_answer()
    good[1].writer.close()
    await until(lambda: world.open_connections == 1)
    assert await (await world.connect()).ask(heartbeat()) == heartbeat_answer()


async def test_who_is_silent_makes_room_for_who_has_something_to_say(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(limits=GatewayLimits(connections_max=2, drain_ms=100))
    talking = await world.connect()
    assert await talking.ask(heartbeat()) == heartbeat_answer()
    silent_one = await world.connect()
    await until(lambda: world.open_connections == 2)

    newcomer = await world.connect()

    assert await newcomer.ask(heartbeat()) == heartbeat_answer()
    assert await silent_one.rest() == b""
    assert await talking.ask(heartbeat()) == heartbeat_answer()
    assert "it had asked nothing yet when all connections were in use" in caplog.text
