"""A glance shows counters and connections as they are, a little at a time, and counts say what has been."""

import asyncio
from math import isnan
from typing import cast

from tests.unit.gateway.world import World, Worlds, heartbeat, heartbeat_answer, only_driver, until

from kvota.engine.reading import PEEKED
from kvota.gateway.driver import Driver
from kvota.gateway.journal import Journal
from kvota.gateway.settings import GatewayLimits
from kvota.metrics.counter_key import CounterKey
from kvota.metrics.glance import GatewayGlance
from kvota.model.quota_type import QuotaType
from kvota.testing.frames import produce
from kvota.testing.stage import quotas

PRODUCE = QuotaType.PRODUCE
KEY = CounterKey(PRODUCE, "client-id=,user=ANONYMOUS", 1)


async def glance(world: World, *keys: CounterKey, uses: bool = False) -> GatewayGlance:
    future = world.gateway.glance(keys, uses=uses)
    return await asyncio.wait_for(asyncio.wrap_future(future), 10)


async def test_a_glance_at_a_gateway_nobody_uses(worlds: Worlds) -> None:
    world = await worlds()

    seen = await glance(world, KEY)

    assert (seen.connections, seen.connections_max) == (0, world.limits.connections_max)
    assert all(map(isnan, seen.peeks))
    assert len(seen.peeks) == len(PEEKED)
    assert seen.reaches_brokers
    assert not seen.is_draining
    assert seen.quotas_version == 1
    assert world.gateway.is_listening


async def test_a_muted_connection_is_seen_with_its_counter(worlds: Worlds) -> None:
    world = await worlds(table=quotas(PRODUCE=1_000))
    muted, idle = await world.connect(1), await world.connect(1)
    await muted.ask(produce(records=bytes(50_000)))
    await idle.ask(heartbeat())

    seen = await glance(world, KEY, uses=True)

    assert seen.connections == 2
    assert seen.paused["muted"] == 1
    assert seen.muted == {PRODUCE: 1}
    use = seen.uses[KEY]
    assert (use.connections, use.muted) == (1, 1)
    reading = seen.readings[KEY]
    assert reading.throttle_ms > 30_000
    assert reading.limit == 1_000
    assert reading.rate is not None
    assert reading.rate > 1_000
    assert abs(reading.throttle_ms - use.mute_left_ms) < 2_000


async def test_requests_are_counted_by_api_but_for_those_that_have_rows(worlds: Worlds) -> None:
    world = await worlds()
    client = await world.connect(1)
    for correlation in range(3):
        await client.ask(heartbeat(correlation))
    await client.ask(produce(correlation=9))

    seen = await glance(world)

    assert seen.requests["Heartbeat"] == 3
    assert seen.request_bytes["Heartbeat"] == 3 * (len(heartbeat()) - 4)
    assert seen.requests.get("Produce", 0) == 0


async def test_what_ends_connections_is_counted(worlds: Worlds) -> None:
    world = await worlds(limits=GatewayLimits(connections_max=2, drain_ms=2_000))
    counts = world.gateway.counts
    by_client = await world.connect(1)
    await by_client.ask(heartbeat())
    by_client.writer.close()
    await until(lambda: counts.closed["client"] == 1)
    no_kafka = await world.connect(1)
    no_kafka.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await no_kafka.rest()
    await until(lambda: counts.closed["bad_frame"] == 1)
    by_broker = await world.connect(1)
    await by_broker.ask(heartbeat())
    await world.brokers[0].stop()
    await until(lambda: counts.closed["broker"] == 1)
    unreachable = await world.connect(1)
    unreachable.send(heartbeat())
    await until(lambda: counts.closed["unreachable"] == 1)

    seen = await glance(world)

    assert counts.accepted == 4
    assert dict(counts.bad_frames) == {"not_kafka": 1}
    assert counts.upstream_errors["unreachable"] >= 1
    assert len(seen.unreachable) == 1
    assert not seen.reaches_brokers


async def test_refused_connections_are_counted(worlds: Worlds) -> None:
    world = await worlds(limits=GatewayLimits(connections_max=1, drain_ms=2_000))
    first = await world.connect(1)
    await first.ask(heartbeat())
    second = await world.connect(1)
    await second.rest()

    assert world.gateway.counts.refused == {"full": 1}


async def test_the_loop_tells_how_late_it_is(worlds: Worlds) -> None:
    world = await worlds()
    lag = world.gateway.counts.loop_lag
    await until(lambda: lag.count >= 1)

    assert world.gateway.counts.ticked_s > 0
    assert lag.max_s < 5


class Quiet:
    """A connection that is there and does nothing."""

    closing = False
    host = "192.0.2.1"
    is_unread = False
    ended_by = "client"

    def __init__(self, machine: object) -> None:
        self.machine = machine


async def test_others_have_their_turn_while_thousands_are_looked_at(worlds: Worlds) -> None:
    world = await worlds(
        limits=GatewayLimits(connections_max=5_000, connections_per_ip_max=5_000, drain_ms=100)
    )
    client = await world.connect(1)
    await client.ask(heartbeat())
    machine = (await only_driver(world)).machine
    quiet = [cast("Driver", Quiet(machine)) for _ in range(4_000)]
    journal = Journal(asyncio.get_running_loop().time)
    for one in quiet:
        world.gateway._places.take(one, journal)
    turns = 0

    def count() -> None:
        nonlocal turns
        turns += 1
        if not future.done():
            asyncio.get_running_loop().call_soon(count)

    future = world.gateway.glance([KEY] * 2_000, uses=True)
    count()
    assert await client.ask(heartbeat(2)) == heartbeat_answer(2)
    seen = await asyncio.wait_for(asyncio.wrap_future(future), 20)

    assert seen.connections == 4_001
    assert turns > 100
    for one in quiet:
        world.gateway._places.leave(one)
