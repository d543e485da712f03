"""The end of a gateway, whatever its connections are waiting for."""

import asyncio

import pytest
from tests.unit.gateway.world import (
    Broker,
    Worlds,
    heartbeat,
    heartbeat_answer,
    only_driver,
    reasons_of,
    silent,
    until,
)

from kvota.gateway.settings import GatewayLimits
from kvota.session.pausing import Reason
from kvota.testing.frames import fetch, fetch_answer, produce, produce_answer, split
from kvota.testing.stage import quotas

PRODUCE_QUOTA = quotas(PRODUCE=100_000)


@pytest.mark.parametrize("reason", list(Reason))
async def test_draining_waits_for_no_reason_when_nothing_is_due(
    worlds: Worlds, reason: Reason
) -> None:
    world = await worlds(limits=GatewayLimits(drain_ms=60_000))
    client = await world.connect()
    await client.ask(heartbeat(1))
    driver = await only_driver(world)
    driver.pause(reason)

    ended = world.stop_soon()

    assert await client.rest() == b""
    client.writer.close()
    await asyncio.wait_for(ended, 5)


async def test_draining_waits_for_a_broker_that_is_being_dialled(worlds: Worlds) -> None:
    world = await worlds(limits=GatewayLimits(drain_ms=10_000))
    may_dial = world.dial_later()
    client = await world.connect()
    client.send(heartbeat(1))
    await until(lambda: world.drivers and world.drivers[0].machine.due_count)

    ended = world.stop_soon()
    await asyncio.sleep(0.1)
    may_dial.set()

    assert await client.rest() == heartbeat_answer(1)
    await asyncio.wait_for(ended, 5)


async def test_draining_keeps_a_record_without_acks_for_a_broker_that_is_being_dialled(
    worlds: Worlds,
) -> None:
    world = await worlds(limits=GatewayLimits(drain_ms=10_000))
    may_dial = world.dial_later()
    client = await world.connect()
    client.send(produce(acks=0))
    await until(lambda: world.drivers and reasons_of(world.drivers[0]) & Reason.DIALLING)

    ended = world.stop_soon()
    await asyncio.sleep(0.1)
    may_dial.set()

    assert await client.rest() == b""
    client.writer.close()
    await asyncio.wait_for(ended, 5)
    await until(lambda: world.brokers[0].frames == [produce(acks=0)])


async def test_draining_lets_a_broker_that_reads_slowly_have_the_frame_that_has_begun(
    worlds: Worlds,
) -> None:
    world = await worlds(limits=GatewayLimits(write_buffer_bytes=65_536, drain_ms=10_000))
    world.brokers[0].gate.clear()
    client = await world.connect()
    client.send(produce(records=b"r" * 20_000_000) + heartbeat(2))
    driver = await only_driver(world)
    await until(lambda: reasons_of(driver) & Reason.UPSTREAM_FULL)

    ended = world.stop_soon()
    await asyncio.sleep(0.1)
    world.brokers[0].gate.set()

    assert await client.rest() == produce_answer()
    await asyncio.wait_for(ended, 8)
    assert len(world.brokers[0].frames) == 1


async def test_draining_lets_a_client_that_reads_slowly_have_its_answers(worlds: Worlds) -> None:
    world = await worlds(limits=GatewayLimits(write_buffer_bytes=65_536, drain_ms=10_000))
    world.brokers[0].answer_bytes = 8_000_000
    client = await world.connect()
    client.writer.transport.pause_reading()
    client.send(fetch())
    driver = await only_driver(world)
    await until(lambda: reasons_of(driver) & Reason.CLIENT_FULL)

    ended = world.stop_soon()
    await asyncio.sleep(0.1)
    client.writer.transport.resume_reading()

    assert await client.rest() == fetch_answer(records=b"f" * 8_000_000)
    await asyncio.wait_for(ended, 8)


async def test_draining_does_not_wait_for_a_client_that_does_not_read(worlds: Worlds) -> None:
    world = await worlds(limits=GatewayLimits(write_buffer_bytes=65_536, drain_ms=200))
    world.brokers[0].answer_bytes = 8_000_000
    client = await world.connect()
    client.writer.transport.pause_reading()
    client.send(fetch())
    driver = await only_driver(world)
    await until(lambda: reasons_of(driver) & Reason.CLIENT_FULL)

    await asyncio.wait_for(world.stop(), 5)

    assert world.open_connections == 0


async def test_draining_does_not_wait_for_fetches_that_wait_for_records(worlds: Worlds) -> None:
    world = await worlds(behaviour=silent, limits=GatewayLimits(drain_ms=10_000))
    client = await world.connect()
    client.send(fetch() + fetch())
    await until(lambda: len(world.brokers[0].frames) == 2)

    ended = world.stop_soon()
    await asyncio.wait([ended], timeout=5)

    assert ended.done()
    assert await client.rest() == b""


async def test_draining_waits_for_what_is_due_beside_a_fetch(worlds: Worlds) -> None:
    world = await worlds(limits=GatewayLimits(drain_ms=10_000))
    client = await world.connect()
    driver = await only_driver(world)
    world.brokers[0].gate.clear()
    client.send(fetch() + produce())
    await until(lambda: driver.machine.due_count == 2)

    ended = world.stop_soon()
    await asyncio.sleep(0.1)
    world.brokers[0].gate.set()

    assert len(split(await client.rest())) == 2
    await asyncio.wait_for(ended, 5)


async def test_draining_lets_an_answer_arrive_that_has_begun(worlds: Worlds) -> None:
    answer = fetch_answer()
    begun = asyncio.Event()

    async def by_halves(broker: Broker, frame: bytes) -> bytes:
        begun.set()
        return answer[:10]

    world = await worlds(behaviour=by_halves, limits=GatewayLimits(drain_ms=10_000))
    client = await world.connect()
    client.send(fetch())
    await begun.wait()
    await asyncio.sleep(0.1)

    ended = world.stop_soon()
    await asyncio.sleep(0.1)
    for writer in world.brokers[0]._writers:
        writer.write(answer[10:])

    assert await client.rest() == answer
    await asyncio.wait_for(ended, 5)


async def test_draining_while_a_question_is_open(worlds: Worlds) -> None:
    world = await worlds(behaviour=silent, limits=GatewayLimits(drain_ms=60_000))
    client = await world.connect()
    driver = await only_driver(world)
    driver.machine.pausing.ask(60_000)
    driver.look()
    client.send(heartbeat(1))

    await asyncio.wait_for(world.stop(), 10)

    assert await client.rest() == b""
    assert world.brokers[0].frames == []


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
