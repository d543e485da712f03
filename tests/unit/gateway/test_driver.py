"""A connection reads on, or not, for all the reasons that there are."""

import asyncio

from tests.unit.gateway.world import (
    Worlds,
    heartbeat,
    heartbeat_answer,
    only_driver,
    reasons_of,
    until,
)

from kvota.gateway.settings import GatewayLimits
from kvota.session.pausing import Reason
from kvota.session.settings import ConnectionSettings
from kvota.testing.frames import (
    decoded,
    fetch,
    produce,
    produce_answer,
    throttle_of,
)
from kvota.testing.stage import ALL_TYPES, quotas


async def test_a_client_that_does_not_read_stops_its_broker_from_being_read(worlds: Worlds) -> None:
    world = await worlds(limits=GatewayLimits(write_buffer_bytes=65_536, drain_ms=100))
    world.brokers[0].answer_bytes = 1_000_000
    client = await world.connect()
    client.writer.transport.pause_reading()
    for number in range(60):
        client.send(fetch(correlation=number))
    driver = await only_driver(world)
    await until(lambda: driver.upstream is not None and driver.upstream.paused)

    assert driver.client.transport.get_write_buffer_size() < 2_000_000
    client.writer.transport.resume_reading()

    got = [await client.frame() for _ in range(60)]
    assert [int.from_bytes(frame[4:8], "big") for frame in got] == list(range(60))


async def test_a_broker_that_does_not_read_stops_its_client_from_being_read(worlds: Worlds) -> None:
    world = await worlds(limits=GatewayLimits(write_buffer_bytes=65_536, drain_ms=100))
    world.brokers[0].gate.clear()
    client = await world.connect()
    frame = produce(records=b"r" * 1_000_000)
    for _ in range(40):
        client.send(frame)
    driver = await only_driver(world)
    await until(lambda: driver.machine.pausing.reasons & Reason.UPSTREAM_FULL)

    assert driver.upstream.transport.get_write_buffer_size() < 2_000_000
    world.brokers[0].gate.set()

    for _ in range(40):
        assert await client.frame() == produce_answer()


async def test_requests_in_flight_are_bounded_and_all_are_answered(worlds: Worlds) -> None:
    world = await worlds(connection=ConnectionSettings(in_flight_max=10))
    world.brokers[0].gate.clear()
    client = await world.connect()
    client.send(heartbeat(0))
    await until(lambda: world.open_connections == 1)
    (driver,) = world.drivers
    await until(lambda: driver.upstream is not None)
    for number in range(1, 200):
        client.send(heartbeat(number))
        await client.writer.drain()
        await asyncio.sleep(0)
    await until(lambda: driver.client.paused)

    world.brokers[0].gate.set()

    got = [await client.frame() for _ in range(200)]
    assert got == [heartbeat_answer(number) for number in range(200)]


async def test_a_throttled_client_is_answered_at_once_and_then_not_read(worlds: Worlds) -> None:
    world = await worlds(table=quotas(PRODUCE=100_000))
    client = await world.connect()
    frame = produce(records=b"r" * 1_050_000)

    started_s = asyncio.get_running_loop().time()
    told = await client.ask(frame)
    throttle_ms = throttle_of(told, 0, 9)
    assert await client.ask(heartbeat(2)) == heartbeat_answer(2)

    assert 300 < throttle_ms < 2_000
    assert asyncio.get_running_loop().time() - started_s >= throttle_ms / 1000 - 0.01
    (row,) = world.sink.rows
    assert row.throttle_ms == throttle_ms


async def test_the_cap_of_a_mute_lets_one_request_pass_at_a_time(worlds: Worlds) -> None:
    world = await worlds(
        table=quotas(FETCH=10_000),
        limits=GatewayLimits(drain_ms=100),
        connection=ConnectionSettings(enforced=ALL_TYPES, mute_ms_max=100),
    )
    world.brokers[0].answer_bytes = 5_000_000
    client = await world.connect()
    await client.ask(fetch())

    first = await client.ask(fetch(correlation=2))
    second = await client.ask(fetch(correlation=3))
    beat = await client.ask(heartbeat(4))

    assert decoded(first, 1, 12).responses == decoded(second, 1, 12).responses == ()
    # Kafka's window is longer by up to a second behind the beginning of a sample, and the throttle with it.
    assert throttle_of(first, 1, 12) + 1_000 > throttle_of(second, 1, 12) > 100_000
    assert beat == heartbeat_answer(4)
    assert len(world.brokers[0].frames) == 2


async def test_who_waits_for_the_budget_goes_on_when_another_is_done(worlds: Worlds) -> None:
    world = await worlds(limits=GatewayLimits(announced_bytes_max=150_000, drain_ms=100))
    first, second = await world.connect(), await world.connect()
    large = produce(records=b"r" * 100_000)
    first.send(large[:20_000])
    await until(lambda: world.shared.budgets.used_bytes > 0)
    second.send(large[:20_000])
    await until(lambda: any(reasons_of(driver) & Reason.BUDGET for driver in world.drivers))
    second.send(large[20_000:])
    await asyncio.sleep(0.05)
    assert world.brokers[0].frames == []

    first.send(large[20_000:])

    assert await first.frame() == produce_answer()
    assert await second.frame() == produce_answer()
    assert world.shared.budgets.used_bytes == 0
