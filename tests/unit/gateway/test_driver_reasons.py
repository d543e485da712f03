"""Reasons to pause that come together: no byte is lost, no connection stands still for ever."""

import asyncio

import pytest
from tests.unit.gateway.world import (
    World,
    Worlds,
    heartbeat,
    heartbeat_answer,
    only_driver,
    reasons_of,
    until,
)

from kvota.gateway.driver import Driver
from kvota.gateway.settings import GatewayLimits
from kvota.model.bucket_settings import BucketSettings
from kvota.model.quota_type import QuotaType
from kvota.session.pausing import Reason
from kvota.testing.frames import fetch, fetch_answer, produce, produce_answer, split
from kvota.testing.stage import quotas

# Throttled for some 10 s by LONG_MUTE, which a test ends when it has seen what it wants; and for some 300 to 800 ms
# by SHORT_MUTE, of which nothing is to be seen before it ends.
LARGE = produce(records=b"r" * 1_050_000)
LONG_MUTE, SHORT_MUTE = quotas(PRODUCE=50_000), quotas(PRODUCE=100_000)


def charge_at_the_head(world: World, *, burst_ms: int = 10_000) -> None:
    """As a debt bucket does: so a mute begins while the rest of its request is still to come."""
    settings = BucketSettings(burst_ms=burst_ms, debt_max_ms=15_000)
    world.engine.replace_countings({}, {QuotaType.PRODUCE: settings})


def end_mute_soon(driver: Driver) -> None:
    driver.machine.pausing.replace_mute(50)
    driver.look()


OF_THE_DRIVER = [Reason.UPSTREAM_FULL, Reason.CLIENT_FULL, Reason.DIALLING]
# Of the announced-bytes budget below two of these do not fit.
HALF_LARGE = produce(records=b"r" * 100_000)
OTHER = ("other", "")
TIGHT = GatewayLimits(announced_bytes_max=150_000, drain_ms=2_000)


# ------------------------------------------------------------------ mutes and the driver's own reasons


@pytest.mark.parametrize("reason", OF_THE_DRIVER)
async def test_what_a_mute_keeps_back_waits_for_another_reason_too(
    worlds: Worlds, reason: Reason
) -> None:
    world = await worlds(table=LONG_MUTE)
    client = await world.connect()
    client.send(LARGE + heartbeat(2))
    driver = await only_driver(world)
    await until(lambda: reasons_of(driver) == Reason.MUTED)
    assert await client.frame()

    driver.pause(reason)
    end_mute_soon(driver)
    await until(lambda: reasons_of(driver) == reason)
    await asyncio.sleep(0.02)
    assert len(world.brokers[0].frames) == 1
    driver.resume(reason)

    assert await client.frame() == heartbeat_answer(2)
    assert not driver.client.paused


@pytest.mark.parametrize("reason", OF_THE_DRIVER)
async def test_a_reason_that_ends_within_a_mute_lets_nothing_through(
    worlds: Worlds, reason: Reason
) -> None:
    world = await worlds(table=LONG_MUTE)
    client = await world.connect()
    client.send(LARGE + heartbeat(2))
    driver = await only_driver(world)
    await until(lambda: reasons_of(driver) == Reason.MUTED)

    driver.pause(reason)
    driver.resume(reason)
    assert await client.frame()
    await asyncio.sleep(0.02)

    assert reasons_of(driver) == Reason.MUTED
    assert driver.client.paused
    assert len(world.brokers[0].frames) == 1
    end_mute_soon(driver)
    assert await client.frame() == heartbeat_answer(2)


async def test_a_mute_that_ends_while_the_broker_reads_slowly(worlds: Worlds) -> None:
    world = await worlds(
        table=quotas(PRODUCE=1_000_000),
        limits=GatewayLimits(write_buffer_bytes=65_536, drain_ms=2_000),
    )
    charge_at_the_head(world, burst_ms=12_000)
    world.brokers[0].gate.clear()
    client = await world.connect()
    large = produce(records=b"r" * 20_000_000)
    client.send(large + heartbeat(2))
    driver = await only_driver(world)
    await until(lambda: reasons_of(driver) == Reason.MUTED | Reason.UPSTREAM_FULL)
    end_mute_soon(driver)
    await until(lambda: reasons_of(driver) == Reason.UPSTREAM_FULL)
    assert driver.client.paused

    world.brokers[0].gate.set()

    assert split(await client.frame() + await client.frame())[1] == heartbeat_answer(2)
    assert world.brokers[0].frames == [large, heartbeat(2)]


async def test_the_rest_of_a_frame_is_read_in_a_mute_and_nothing_behind_it(worlds: Worlds) -> None:
    world = await worlds(table=LONG_MUTE)
    charge_at_the_head(world)
    client = await world.connect()
    client.send(LARGE[:500_000])
    driver = await only_driver(world)
    await until(lambda: reasons_of(driver) == Reason.MUTED)
    assert not driver.client.paused

    client.send(LARGE[500_000:] + heartbeat(2))
    await until(lambda: driver.client.paused)
    end_mute_soon(driver)

    assert await client.frame()
    assert await client.frame() == heartbeat_answer(2)


async def test_a_mute_that_ends_while_the_broker_is_dialled(worlds: Worlds) -> None:
    world = await worlds(table=LONG_MUTE)
    charge_at_the_head(world)
    may_dial = world.dial_later()
    client = await world.connect()
    client.send(LARGE + heartbeat(2))
    driver = await only_driver(world)
    await until(lambda: reasons_of(driver) & Reason.MUTED)
    end_mute_soon(driver)
    await until(lambda: reasons_of(driver) == Reason.DIALLING)

    may_dial.set()

    assert await client.frame()
    assert await client.frame() == heartbeat_answer(2)
    assert world.brokers[0].frames == [LARGE, heartbeat(2)]
    assert world.brokers[0].connections == 1


async def test_a_broker_that_accepts_while_the_client_reads_slowly_is_not_read(
    worlds: Worlds,
) -> None:
    world = await worlds()
    may_dial = world.dial_later()
    client = await world.connect()
    client.send(heartbeat(1))
    driver = await only_driver(world)
    await until(lambda: reasons_of(driver) == Reason.DIALLING)
    driver.client_full()

    may_dial.set()
    await until(lambda: world.brokers[0].frames)
    assert driver.upstream is not None
    assert driver.upstream.paused
    driver.client_caught_up()

    assert await client.frame() == heartbeat_answer(1)


# ------------------------------------------------------------------ half-closed clients


async def test_a_client_that_ends_while_its_broker_is_dialled_is_answered(worlds: Worlds) -> None:
    world = await worlds()
    may_dial = world.dial_later()
    client = await world.connect()
    client.send(heartbeat(1) + heartbeat(2))
    client.writer.write_eof()
    driver = await only_driver(world)
    await until(lambda: reasons_of(driver) & Reason.DIALLING)
    await asyncio.sleep(0.05)

    may_dial.set()

    assert split(await client.rest()) == [heartbeat_answer(1), heartbeat_answer(2)]


async def test_a_client_that_leaves_while_its_broker_is_dialled_leaves_nothing(
    worlds: Worlds,
) -> None:
    world = await worlds()
    may_dial = world.dial_later()
    client = await world.connect()
    client.send(HALF_LARGE[:50_000])
    await until(lambda: world.drivers and reasons_of(world.drivers[0]) & Reason.DIALLING)

    client.writer.transport.abort()
    await asyncio.sleep(0.05)
    may_dial.set()

    await until(lambda: world.open_connections == 0 and not world.brokers[0]._writers)
    assert world.brokers[0].frames == []
    assert world.shared.budgets.used_bytes == 0


async def test_a_client_that_is_closed_while_its_broker_is_dialled_ends_the_dialling(
    worlds: Worlds,
) -> None:
    world = await worlds(limits=GatewayLimits(drain_ms=100))
    world.dial_later()
    client = await world.connect()
    client.send(HALF_LARGE[:50_000])
    await until(lambda: world.drivers and reasons_of(world.drivers[0]) & Reason.DIALLING)

    await asyncio.wait_for(world.stop(), 5)

    assert await client.rest() == b""
    assert world.brokers[0].connections == 0
    assert world.shared.budgets.used_bytes == 0


async def test_a_client_that_ends_in_a_mute_is_served_to_the_end(worlds: Worlds) -> None:
    world = await worlds(table=SHORT_MUTE)
    client = await world.connect()

    client.send(LARGE + heartbeat(2))
    client.writer.write_eof()

    assert split(await client.rest())[1:] == [heartbeat_answer(2)]


async def test_a_client_that_ends_while_its_broker_reads_slowly_is_served_to_the_end(
    worlds: Worlds,
) -> None:
    world = await worlds(limits=GatewayLimits(write_buffer_bytes=65_536, drain_ms=2_000))
    world.brokers[0].gate.clear()
    client = await world.connect()
    frame = produce(records=b"r" * 1_000_000)
    for _ in range(30):
        client.send(frame)
    client.writer.write_eof()
    driver = await only_driver(world)
    await until(lambda: reasons_of(driver) & Reason.UPSTREAM_FULL)

    world.brokers[0].gate.set()

    assert split(await client.rest()) == [produce_answer()] * 30


async def test_a_client_that_ends_while_its_first_request_waits_for_the_budget_is_served(
    worlds: Worlds,
) -> None:
    world = await worlds(limits=TIGHT)
    taken = world.shared.budgets.of(world.brokers[0].address)
    taken.add(150_000, OTHER)
    client = await world.connect()
    client.send(LARGE)  # more than is read at once
    client.writer.write_eof()
    driver = await only_driver(world)
    await until(lambda: reasons_of(driver) == Reason.BUDGET)

    taken.give_back(150_000, OTHER)

    assert await client.rest() == produce_answer()


async def test_a_client_that_ends_inside_its_first_request_is_let_go_when_there_is_room(
    worlds: Worlds,
) -> None:
    world = await worlds(limits=TIGHT)
    taken = world.shared.budgets.of(world.brokers[0].address)
    taken.add(150_000, OTHER)
    client = await world.connect()
    client.send(HALF_LARGE[:20_000])
    client.writer.write_eof()
    driver = await only_driver(world)
    await until(lambda: reasons_of(driver) == Reason.BUDGET)

    taken.give_back(150_000, OTHER)

    assert await client.rest() == b""
    await until(lambda: world.open_connections == 0)
    await until(lambda: world.shared.budgets.used_bytes == 0)


# ------------------------------------------------------------------ the budget


async def test_room_in_the_budget_for_a_client_that_reads_slowly_goes_to_the_next(
    worlds: Worlds,
) -> None:
    world = await worlds(limits=TIGHT)
    first, slow, third = [await world.connect() for _ in range(3)]
    first.send(HALF_LARGE[:20_000])
    await until(lambda: world.shared.budgets.used_bytes > 0)
    slow.send(HALF_LARGE[:20_000])
    await until(lambda: any(reasons_of(driver) == Reason.BUDGET for driver in world.drivers))
    (driver,) = (driver for driver in world.drivers if reasons_of(driver) == Reason.BUDGET)
    driver.pause(Reason.CLIENT_FULL)
    third.send(HALF_LARGE[:20_000])
    await until(lambda: sum(reasons_of(d) == Reason.BUDGET for d in world.drivers) == 1)

    first.send(HALF_LARGE[20_000:])
    third.send(HALF_LARGE[20_000:])

    assert await first.frame() == produce_answer()
    assert await third.frame() == produce_answer()
    assert reasons_of(driver) == Reason.CLIENT_FULL
    driver.client_caught_up()
    slow.send(HALF_LARGE[20_000:])
    assert await slow.frame() == produce_answer()
    assert world.shared.budgets.used_bytes == 0


async def test_one_who_is_woken_after_the_end_lets_the_next_one_know(worlds: Worlds) -> None:
    world = await worlds(limits=TIGHT)
    taken = world.shared.budgets.of(world.brokers[0].address)
    taken.add(150_000, OTHER)
    gone, here = await world.connect(), await world.connect()
    gone.send(HALF_LARGE[:20_000])
    await until(lambda: sum(reasons_of(d) == Reason.BUDGET for d in world.drivers) == 1)
    (driver,) = (driver for driver in world.drivers if reasons_of(driver) == Reason.BUDGET)
    here.send(HALF_LARGE[:20_000])
    await until(lambda: sum(reasons_of(d) == Reason.BUDGET for d in world.drivers) == 2)

    taken.give_back(150_000, OTHER)  # both have room, and are told in the next turn of the loop
    driver.close("", by="client")
    here.send(HALF_LARGE[20_000:])

    assert await here.frame() == produce_answer()
    await until(lambda: world.shared.budgets.used_bytes == 0)


# ------------------------------------------------------------------ answers


async def test_a_client_that_reads_slowly_while_muted_loses_nothing(worlds: Worlds) -> None:
    world = await worlds(
        table=SHORT_MUTE, limits=GatewayLimits(write_buffer_bytes=65_536, drain_ms=2_000)
    )
    world.brokers[0].answer_bytes = 8_000_000
    client = await world.connect()
    client.writer.transport.pause_reading()
    client.send(fetch() + LARGE + heartbeat(3))
    driver = await only_driver(world)
    await until(lambda: reasons_of(driver) & Reason.CLIENT_FULL)
    await until(lambda: reasons_of(driver) == Reason.CLIENT_FULL)

    client.writer.transport.resume_reading()

    assert await client.frame() == fetch_answer(records=b"f" * 8_000_000)
    assert await client.frame()
    assert await client.frame() == heartbeat_answer(3)
    assert reasons_of(driver) == 0
