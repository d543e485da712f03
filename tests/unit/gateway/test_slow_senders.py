"""Requests that do not arrive in time, and those that stand in others' way."""

import asyncio

import pytest
from tests.unit.gateway.world import (
    Worlds,
    heartbeat,
    heartbeat_answer,
    silent,
    until,
)

from kvota.gateway.settings import GatewayLimits
from kvota.session.pausing import Reason
from kvota.testing.frames import (
    produce,
    produce_answer,
)


async def test_a_connection_that_never_says_anything_is_closed(worlds: Worlds) -> None:
    world = await worlds(limits=GatewayLimits(frame_ms=100, drain_ms=100))

    nothing = await world.connect()

    assert await nothing.rest() == b""


@pytest.mark.parametrize(
    "begun", [b"\0", heartbeat()[:9], produce(records=b"r" * 5_000)[:4_000], produce(records=b"r" * 100_000)[:20_000]]
)  # fmt: skip
async def test_half_a_request_and_silence_is_closed_in_time(
    worlds: Worlds, caplog: pytest.LogCaptureFixture, begun: bytes
) -> None:
    world = await worlds(behaviour=silent, limits=GatewayLimits(frame_ms=100, drain_ms=100))
    client = await world.connect()

    client.send(begun)

    assert await client.rest() == b""
    assert "no whole request in" in caplog.text
    await until(lambda: world.shared.budgets.used_bytes == 0)


async def test_a_connection_without_half_a_request_may_be_silent(worlds: Worlds) -> None:
    world = await worlds(limits=GatewayLimits(frame_ms=10, drain_ms=100))
    client = await world.connect()
    await client.ask(heartbeat())

    for _ in range(4):
        world.sweep()
        await asyncio.sleep(0.03)

    assert await client.ask(heartbeat()) == heartbeat_answer()


async def test_who_announces_much_and_stands_still_makes_room_for_others(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(
        limits=GatewayLimits(announced_bytes_max=150_000, frame_ms=60_000, drain_ms=100)
    )
    still, other = await world.connect(), await world.connect()
    large = produce(records=b"r" * 100_000)
    still.send(large[:20_000])
    await until(lambda: world.shared.budgets.used_bytes > 0)
    other.send(large[:20_000])
    await until(lambda: any(driver.client.paused for driver in world.drivers))
    other.send(large[20_000:])

    for _ in range(3):
        world.sweep()

    assert await other.frame() == produce_answer()
    assert await still.rest() == b""
    assert "stands still at 19996 bytes, and others wait for room" in caplog.text


async def test_room_for_a_frame_is_free_when_the_broker_has_closed_too(worlds: Worlds) -> None:
    world = await worlds(limits=GatewayLimits(frame_ms=100, drain_ms=100))
    world.brokers[0].gate.clear()
    client = await world.connect()
    client.send(produce(records=b"r" * 100_000)[:20_000])

    assert await client.rest() == b""
    await until(lambda: world.open_connections == 0)
    assert world.shared.budgets.used_bytes > 100_000
    world.brokers[0].gate.set()

    await until(lambda: world.shared.budgets.used_bytes == 0)


async def test_who_finds_no_room_is_closed_in_time(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(
        limits=GatewayLimits(announced_bytes_max=150_000, frame_ms=150, drain_ms=100)
    )
    world.shared.budgets.of(world.brokers[0].address).add(150_000)
    client = await world.connect()

    client.send(produce(records=b"r" * 100_000)[:20_000])

    assert await client.rest() == b""
    assert "no room for its request in" in caplog.text


async def test_a_frame_that_its_broker_reads_slowly_keeps_its_room_though_others_wait(
    worlds: Worlds,
) -> None:
    world = await worlds(limits=GatewayLimits(announced_bytes_max=150_000, drain_ms=1_000))
    held_up, other = await world.connect(), await world.connect()
    large = produce(records=b"r" * 100_000)
    held_up.send(large[:20_000])
    await until(lambda: world.shared.budgets.used_bytes > 0)
    (driver,) = (driver for driver in world.drivers if driver.machine.is_inside_frame)
    driver.pause(Reason.UPSTREAM_FULL)
    other.send(large[:20_000])
    await until(lambda: driver.machine.keeps_others_waiting)

    for _ in range(3):
        world.sweep()
    driver.resume(Reason.UPSTREAM_FULL)
    held_up.send(large[20_000:])
    other.send(large[20_000:])

    assert await held_up.frame() == produce_answer()
    assert await other.frame() == produce_answer()
