"""Large answers that a client does not take: they share the memory of those that arrive."""

import asyncio

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.gateway.world import Broker, Client, World, Worlds, until

from kvota.gateway.driver import Driver
from kvota.gateway.settings import GatewayLimits
from kvota.session.pausing import Reason
from kvota.testing.frames import FIND_COORDINATOR, answer, parts, request

# More than all the buffers of a system hold for who does not read.
_COORDINATORS, _NAME_BYTES = 9_000, 2_000
_ASKED = request(FIND_COORDINATOR, 4)
_LIMIT_BYTES = 20_000_000


def _answer() -> bytes:
    one = {
        "node_id": 1,
        "host": "127.0.0.1",
        "port": 9_092,
        "error_code": ErrorCode(0),
        "error_message": None,
    }
    rows = ({**one, "key": f"{n:05}".ljust(_NAME_BYTES, "g")} for n in range(_COORDINATORS))
    named = parts(FIND_COORDINATOR, 4, "response", "Coordinator", *rows)
    return answer(FIND_COORDINATOR, 4, coordinators=named)


async def _names_many(broker: Broker, frame: bytes) -> bytes:
    whole = _answer()
    return whole[:4] + frame[8:12] + whole[8:]


async def _deaf_client(worlds: Worlds) -> tuple[World, Client, Driver]:
    """It has asked for a large answer and reads nothing of it; there is room for one more."""
    world = await worlds(behaviour=_names_many, limits=GatewayLimits(frame_ms=60_000, drain_ms=100))
    world.shared.whole_answers.limit_bytes = _LIMIT_BYTES
    client = await world.connect()
    client.writer.transport.pause_reading()
    client.send(_ASKED)
    await until(lambda: any(d.machine.pausing.reasons & Reason.CLIENT_FULL for d in world.drivers))
    (driver,) = world.drivers
    return world, client, driver


async def test_who_takes_no_large_answer_makes_room_for_those_of_others(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world, _deaf, driver = await _deaf_client(worlds)
    assert world.shared.whole_answers.used_bytes > 1_000_000
    world.shared.whole_answers.limit_bytes = 1_000_000
    other = await world.connect()

    told = await asyncio.wait_for(other.ask(_ASKED), 20)

    assert len(told) > _COORDINATORS * _NAME_BYTES
    assert driver.closing
    assert "bytes of an answer unread" in caplog.text
    await until(lambda: not world.shared.whole_answers.used_bytes)


async def test_who_takes_it_late_has_all_of_it_where_nobody_waits(worlds: Worlds) -> None:
    world, client, driver = await _deaf_client(worlds)
    for _ in range(20):
        world.gateway._slow_senders.look(asyncio.get_running_loop().time() * 1000)
        await asyncio.sleep(0.05)

    client.writer.transport.resume_reading()

    assert len(await client.frame()) > _COORDINATORS * _NAME_BYTES
    assert not driver.closing
    await until(lambda: not world.shared.whole_answers.used_bytes)


async def test_who_leaves_without_having_taken_it_leaves_its_room(worlds: Worlds) -> None:
    world, client, _driver = await _deaf_client(worlds)

    client.writer.transport.abort()

    await until(lambda: not world.shared.whole_answers.used_bytes)
