"""What a driver waits for: deadlines, by one timer, and answers from outside."""

import asyncio

import pytest
from tests.unit.gateway.world import (
    Worlds,
    heartbeat,
    heartbeat_answer,
    only_driver,
    reasons_of,
    until,
)
from tests.unit.session.frames import produce
from tests.unit.session.stage import quotas

from kvota.session.caller import Caller
from kvota.session.commands import Do
from kvota.session.connection import Connection
from kvota.session.pausing import Reason

# Throttled for some 300 to 800 ms by PRODUCE_QUOTA.
LARGE = produce(records=b"r" * 1_050_000)
PRODUCE_QUOTA = quotas(PRODUCE=100_000)


async def test_each_deadline_comes_in_its_time(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Caller, "give_up_asking", lambda _: None, raising=False)
    world = await worlds()
    client = await world.connect()
    await client.ask(heartbeat(1))
    driver = await only_driver(world)
    pausing, loop = driver.machine.pausing, asyncio.get_running_loop()
    began = loop.time()

    pausing.ask(100)
    pausing.mute(300)
    driver.look()
    client.send(heartbeat(2))
    await until(lambda: reasons_of(driver) == Reason.MUTED)
    asked_s = loop.time() - began
    assert await client.frame() == heartbeat_answer(2)
    muted_s = loop.time() - began

    assert 0.095 <= asked_s < 0.290
    assert muted_s >= 0.295
    assert driver._timer is None
    assert world.gateway._mutes.ended >= 1
    assert 0 <= world.gateway._mutes.late_ms_max < 1_000


async def test_a_deadline_that_moves_takes_its_timer_along(worlds: Worlds) -> None:
    world = await worlds()
    client = await world.connect()
    await client.ask(heartbeat(1))
    driver = await only_driver(world)
    driver.machine.pausing.mute(20_000)
    driver.look()
    client.send(heartbeat(2))
    first = driver._timer
    assert first is not None

    driver.machine.pausing.replace_mute(0)
    driver.look()

    assert first.cancelled()
    assert await client.frame() == heartbeat_answer(2)


async def test_a_closed_connection_has_no_timer(worlds: Worlds) -> None:
    world = await worlds(table=quotas(PRODUCE=1_000))
    client = await world.connect()
    client.send(LARGE)
    driver = await only_driver(world)
    await until(lambda: driver._timer is not None)
    timer = driver._timer
    assert timer is not None

    driver.close("")

    assert timer.cancelled()
    await until(lambda: world.open_connections == 0)


# ------------------------------------------------------------------ asking


Resolved = list[tuple[int, object]]


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> Resolved:
    """What the machines have been told."""
    told: Resolved = []

    def resolve(machine: Connection, token: int, result: object, now_us: int) -> object:
        told.append((token, result))
        return machine.resume(Reason.ASKING, now_us)

    monkeypatch.setattr(Connection, "resolved", resolve)
    return told


class Asked:
    """A question with its answer in it."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def ask(self, callback: object, /) -> object:  # noqa: ARG002
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("answer", ["an answer", LookupError("none")])
async def test_a_question_is_asked_and_its_answer_lets_the_client_go_on(
    worlds: Worlds, resolved: Resolved, answer: object
) -> None:
    world = await worlds()
    client = await world.connect()
    await client.ask(heartbeat(1))
    driver = await only_driver(world)

    driver.machine.pausing.ask(20_000)
    driver.machine.commands.append((Do.ASK, (7, Asked(answer))))
    driver.look()
    client.send(heartbeat(2))

    assert await client.frame() == heartbeat_answer(2)
    assert resolved == [(7, answer)]
    assert driver._questions == set()


async def test_who_asks_first_is_not_taken_for_silent(worlds: Worlds) -> None:
    world = await worlds()
    await world.connect()
    driver = await only_driver(world)
    assert not driver.has_asked

    driver.machine.pausing.ask(20_000)

    assert driver.has_asked


async def test_a_connection_that_ends_is_not_told(
    worlds: Worlds, resolved: Resolved, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await worlds()
    client = await world.connect()
    await client.ask(heartbeat(1))
    driver = await only_driver(world)
    asked: list[asyncio.Future[object]] = []

    def ask(question: object) -> asyncio.Future[object]:
        asked.append(asyncio.get_running_loop().create_future())
        return asked[-1]

    monkeypatch.setattr(driver._means.asking, "ask", ask)
    driver.machine.commands.append((Do.ASK, (7, Asked("late"))))
    driver.look()

    client.writer.transport.abort()

    await until(lambda: world.open_connections == 0)
    assert asked[0].cancelled()
    assert resolved == []
