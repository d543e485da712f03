"""Who fills its receive buffer has a large one for as long as it uses it; there are few of them."""

import asyncio
import socket

import pytest
from tests.unit.gateway.world import Client, World, Worlds, heartbeat, heartbeat_answer, until

from kvota.gateway import receive_buffers
from kvota.gateway.driver import Driver
from kvota.gateway.receive_buffers import RECEIVE_BUFFER_BYTES, WIDE_BYTES
from kvota.testing.frames import produce, produce_answer

LARGE = produce(records=b"r" * 1_000_000)


def kept_bytes(driver: Driver) -> int:
    """How much the system keeps of what this client sends and is not read."""
    connected = driver.client.transport.get_extra_info("socket")
    return int(connected.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))


def is_wide(driver: Driver) -> bool:
    return kept_bytes(driver) > 2 * RECEIVE_BUFFER_BYTES


async def poured(client: Client) -> None:
    for _ in range(4):
        assert await client.ask(LARGE) == produce_answer()


def sweep(world: World) -> None:
    world.gateway._backlog.sweep()


async def pourer(world: World) -> tuple[Client, Driver]:
    """A client that has filled its buffer, and its connection."""
    known = set(world.drivers)
    client = await world.connect()
    await poured(client)
    (driver,) = set(world.drivers) - known
    return client, driver


async def test_who_fills_its_buffer_has_a_larger_one_for_as_long_as_it_does(worlds: Worlds) -> None:
    world = await worlds()
    quiet = await world.connect()
    assert await quiet.ask(heartbeat()) == heartbeat_answer()
    (quiet_one,) = world.drivers
    client, driver = await pourer(world)

    assert is_wide(driver)
    assert kept_bytes(driver) <= 2 * WIDE_BYTES
    assert not is_wide(quiet_one)
    sweep(world)
    await poured(client)
    sweep(world)
    assert is_wide(driver)

    sweep(world)

    assert kept_bytes(driver) == 2 * RECEIVE_BUFFER_BYTES
    await poured(client)
    assert is_wide(driver)


async def test_there_are_few_and_who_leaves_makes_room(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receive_buffers, "WIDE_MAX", 2)
    world = await worlds()
    (first, one), (_, two), (third, three) = [await pourer(world) for _ in range(3)]
    assert [is_wide(driver) for driver in (one, two, three)] == [True, True, False]

    first.writer.close()
    await until(lambda: world.open_connections == 2)
    await poured(third)

    assert is_wide(three)


async def test_where_memory_is_short_nobody_has_a_large_one(worlds: Worlds) -> None:
    world = await worlds()
    client, driver = await pourer(world)

    world.gateway._backlog._read_all(is_little=True)

    assert not is_wide(driver)
    await asyncio.sleep(0)
    await poured(client)
    assert not is_wide(driver)
