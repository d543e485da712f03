"""As many connections as there are places."""

import asyncio
import logging

import pytest
from tests.unit.gateway.world import (
    Client,
    World,
    Worlds,
    heartbeat,
    heartbeat_answer,
    reasons_of,
    until,
)

from kvota.gateway.closing import gone_among
from kvota.gateway.settings import GatewayLimits
from kvota.session.pausing import Reason
from kvota.testing.frames import fetch, produce, produce_answer
from kvota.testing.stage import quotas

PRODUCE_QUOTA = quotas(PRODUCE=1_000)
OVER = produce(records=b"r" * 100_000)  # muted for longer than any test waits


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
    assert "one has given way to a newcomer" in caplog.text
    assert "that have not logged in or asked anything yet" in caplog.text


# ------------------------------------------------------------------ clients that have gone in a mute


async def muted(world: World, places: int) -> list[Client]:
    """So many connections that are muted, each with its answer."""
    clients = [await world.connect() for _ in range(places)]
    for client in clients:
        await client.ask(OVER)
    await until(lambda: all(reasons_of(driver) & Reason.MUTED for driver in world.drivers))
    return clients


async def have_gone(world: World, clients: int) -> None:
    """So many have closed, and the gateway's sockets know it."""
    await until(lambda: len(gone_among(driver.client for driver in world.drivers)) == clients)


async def test_a_client_that_closes_in_a_mute_gives_its_place_back(worlds: Worlds) -> None:
    world = await worlds(table=PRODUCE_QUOTA, limits=GatewayLimits(drain_ms=100))
    clients = await muted(world, 3)

    for client in clients[:2]:
        client.writer.close()
    await have_gone(world, 2)
    world.gateway._places.look()

    await until(lambda: world.open_connections == 1)
    assert not clients[2].reader.at_eof()


async def test_upkeep_sees_the_close_of_a_muted_client(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    world = await worlds(table=PRODUCE_QUOTA, limits=GatewayLimits(frame_ms=400, drain_ms=100))
    (client,) = await muted(world, 1)

    client.writer.close()

    said = "1 connections were muted when their clients closed them"
    await until(lambda: said in caplog.text)  # when all have been looked at: after the close
    assert world.open_connections == 0


async def test_places_of_clients_that_have_gone_are_free_at_once_for_others(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    limits = GatewayLimits(connections_max=5, drain_ms=100)
    world = await worlds(table=PRODUCE_QUOTA, limits=limits)
    for client in await muted(world, 5):
        client.writer.close()
    await have_gone(world, 5)

    others = [await world.connect() for _ in range(5)]

    for client in others:
        assert await client.ask(heartbeat()) == heartbeat_answer()
    assert "refused" not in caplog.text


async def test_records_that_await_no_answer_are_kept_while_there_are_places(
    worlds: Worlds,
) -> None:
    world = await worlds(table=PRODUCE_QUOTA, limits=GatewayLimits(drain_ms=100))
    (client,) = await muted(world, 1)
    (driver,) = world.drivers
    records = produce(acks=0, records=b"left behind")
    client.send(records)
    client.writer.close()
    await have_gone(world, 1)

    world.gateway._places.look()

    assert world.open_connections == 1
    driver.machine.pausing.replace_mute(50)  # it ends
    driver.look()
    await until(lambda: records in world.brokers[0].frames)


async def test_who_has_gone_and_left_bytes_makes_room_when_all_places_are_taken(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    limits = GatewayLimits(connections_max=2, drain_ms=100)
    world = await worlds(table=PRODUCE_QUOTA, limits=limits)
    gone, muted_one = await muted(world, 2)
    gone.send(produce(acks=0))
    gone.writer.close()
    await have_gone(world, 1)

    newcomer = await world.connect()

    assert await newcomer.ask(heartbeat()) == heartbeat_answer()
    assert not muted_one.reader.at_eof()
    assert "its client had gone when all places were in use" in caplog.text


async def test_who_is_muted_and_has_not_gone_keeps_its_place(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    limits = GatewayLimits(connections_max=2, drain_ms=100)
    world = await worlds(table=PRODUCE_QUOTA, limits=limits)
    clients = await muted(world, 2)

    refused = await world.connect()

    assert await refused.rest() == b""
    assert "all 2 connections are in use (limits.connections_max)" in caplog.text
    assert not any(client.reader.at_eof() for client in clients)


async def test_a_client_that_only_ends_its_side_gets_its_answers(worlds: Worlds) -> None:
    world = await worlds(table=PRODUCE_QUOTA)
    world.brokers[0].gate.clear()
    client = await world.connect()
    client.send(OVER)
    client.writer.write_eof()
    await until(lambda: world.drivers and reasons_of(world.drivers[0]) & Reason.MUTED)

    world.gateway._places.look()
    world.brokers[0].gate.set()

    assert (await client.frame())[:8] == produce_answer()[:8]


@pytest.mark.parametrize(
    "limits",
    [
        GatewayLimits(connections_max=3, drain_ms=100),
        GatewayLimits(connections_per_ip_max=3, drain_ms=100),
    ],
    ids=["all", "of-an-address"],
)
async def test_who_has_closed_while_it_waits_for_records_makes_room(
    worlds: Worlds, limits: GatewayLimits
) -> None:
    """A broker in a long poll reads nothing, so it does not see the close."""
    world = await worlds(limits=limits)
    world.brokers[0].gate.clear()
    clients = [await world.connect() for _ in range(3)]
    for client in clients:
        client.send(fetch())
    await until(lambda: sum(not driver.machine.idle for driver in world.drivers) == 3)
    for client in clients[:2]:
        client.writer.close()
    await until(lambda: sum(driver.has_been_left for driver in world.drivers) == 2)
    world.gateway._places.look()
    assert world.open_connections == 3, "it may have closed one direction alone"

    newcomers = [await world.connect() for _ in range(2)]
    for client in newcomers:
        client.send(fetch())
    await until(lambda: sum(not driver.machine.idle for driver in world.drivers) == 3)

    assert await (await world.connect()).rest() == b"", "nobody else has gone"
    assert not any(client.reader.at_eof() for client in (clients[2], *newcomers))


async def test_who_ends_its_side_and_waits_for_records_gets_them(worlds: Worlds) -> None:
    world = await worlds()
    world.brokers[0].gate.clear()
    client = await world.connect()
    client.send(fetch())
    client.writer.write_eof()
    await until(lambda: any(driver.has_been_left for driver in world.drivers))

    world.gateway._places.look()
    world.brokers[0].gate.set()

    assert len(await client.frame()) > 8


# ------------------------------------------------------------------ places of one address


async def test_an_address_has_so_many_connections(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    limits = GatewayLimits(
        connections_per_ip_max=1, connections_per_ip_overrides={"127.0.0.9": 2}, drain_ms=100
    )
    world = await worlds(limits=limits)
    hosts = ("127.0.0.1", "127.0.0.9", "127.0.0.9", "127.0.0.8")
    good = [await world.connect(host=host) for host in hosts]
    for client in good:
        assert await client.ask(heartbeat()) == heartbeat_answer()

    refused = [await world.connect(host=host) for host in hosts]

    for client in refused:
        assert await client.rest() == b""
    assert "127.0.0.9 was refused: its address has 2 connections" in caplog.text
    good[1].writer.close()
    await until(lambda: world.open_connections == 3)
    assert await (await world.connect(host="127.0.0.9")).ask(heartbeat()) == heartbeat_answer()


async def test_an_address_that_may_have_none_is_closed_at_once(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    limits = GatewayLimits(connections_per_ip_overrides={"127.0.0.9": 0}, drain_ms=100)
    world = await worlds(limits=limits)

    for _ in range(3):
        assert await (await world.connect(host="127.0.0.9")).rest() == b""

    assert "127.0.0.9 was refused: its address has 0 connections" in caplog.text
    assert world.open_connections == 0
    assert await (await world.connect()).ask(heartbeat()) == heartbeat_answer()


async def test_who_has_gone_in_a_mute_does_not_count_for_its_address(worlds: Worlds) -> None:
    limits = GatewayLimits(connections_per_ip_max=2, drain_ms=100)
    world = await worlds(table=PRODUCE_QUOTA, limits=limits)
    for client in await muted(world, 2):
        client.writer.close()
    await have_gone(world, 2)

    assert await (await world.connect()).ask(heartbeat()) == heartbeat_answer()


# ------------------------------------------------------------------ idle connections


async def test_who_asks_nothing_for_too_long_is_closed_and_who_waits_is_not(worlds: Worlds) -> None:
    world = await worlds(table=PRODUCE_QUOTA, limits=GatewayLimits(idle_ms=3_000, drain_ms=100))
    idle, silent, kept_back, waits = [await world.connect() for _ in range(4)]
    assert await idle.ask(heartbeat()) == heartbeat_answer()
    await kept_back.ask(OVER)
    world.brokers[0].gate.clear()
    waits.send(heartbeat(1))

    assert await idle.rest() == b""
    assert await silent.rest() == b""
    await until(lambda: world.gateway.counts.closed == {"idle": 2})
    await asyncio.sleep(0.2)
    world.gateway._places.look()

    assert world.gateway.counts.closed == {"idle": 2}
    world.brokers[0].gate.set()
    assert await waits.frame() == heartbeat_answer(1)


async def test_below_zero_nobody_is_closed_for_being_idle(worlds: Worlds) -> None:
    world = await worlds(limits=GatewayLimits(idle_ms=-1, drain_ms=100))
    client = await world.connect()
    await asyncio.sleep(1.5)

    assert await client.ask(heartbeat()) == heartbeat_answer()
