"""What a driver waits for: deadlines, by one timer, and answers from outside."""

import asyncio
import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest
from tests.unit.gateway.world import (
    Worlds,
    heartbeat,
    heartbeat_answer,
    only_driver,
    reasons_of,
    until,
)

from kvota.callbacks import DefaultQuotaCallback
from kvota.gateway.settings import GatewayLimits
from kvota.model.quota_type import QuotaType
from kvota.model.tags import Tags
from kvota.session import caller
from kvota.session.caller import Caller
from kvota.session.pausing import Reason
from kvota.testing.frames import produce, produce_answer
from kvota.testing.stage import quotas

# Throttled for some 300 to 800 ms by PRODUCE_QUOTA.
LARGE = produce(records=b"r" * 1_050_000)
PRODUCE_QUOTA = quotas(PRODUCE=100_000)


async def test_each_deadline_comes_in_its_time(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Caller, "give_up_asking", lambda _: None)
    world = await worlds()
    client = await world.connect()
    await client.ask(heartbeat(1))
    driver = await only_driver(world)
    pausing, loop = driver.machine.pausing, asyncio.get_running_loop()
    began = loop.time()

    # So long that a busy machine cannot see both end at once; it is cut short when the first has ended.
    pausing.ask(100)
    pausing.mute(20_000)
    driver.look()
    client.send(heartbeat(2))
    await until(lambda: reasons_of(driver) == Reason.MUTED)
    asked_s = loop.time() - began
    pausing.replace_mute(200)
    driver.look()
    assert await client.frame() == heartbeat_answer(2)
    all_s = loop.time() - began

    assert asked_s >= 0.095
    assert all_s - asked_s >= 0.195
    assert driver._timer is None
    assert world.gateway.counts.mute_lateness.count >= 1
    assert 0 <= world.gateway.counts.mute_lateness.max_s <= all_s


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

    driver.close("", by="client")

    assert timer.cancelled()
    await until(lambda: world.open_connections == 0)


# ------------------------------------------------------------------ asking


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is given up while a test looks at it, however busy the machine is."""
    monkeypatch.setattr(caller, "ASK_MS_MAX", 20_000)


class Remote(DefaultQuotaCallback):
    """Must be asked on a thread; waits at its gate, or fails, where it is told to."""

    answers_at_once: ClassVar[bool] = False

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__(quotas(PRODUCE=1_000_000_000))
        self.asked: list[str] = []
        self.gate = threading.Event()
        self._fails = fails

    def quota_metric_tags(self, quota_type: QuotaType, user: str, client_id: str) -> Tags:
        self.asked.append(client_id)
        self.gate.wait(20)
        if self._fails:
            msg = "no directory of users"
            raise LookupError(msg)
        return {"group": "of " + client_id}


@pytest.fixture
def remote() -> Iterator[Remote]:
    remote = Remote()
    yield remote
    remote.gate.set()


async def test_a_request_waits_for_the_callback_and_then_goes_on(
    worlds: Worlds, remote: Remote
) -> None:
    world = await worlds(callback=remote)
    client = await world.connect()
    client.send(produce() + heartbeat(2))
    driver = await only_driver(world)
    await until(lambda: remote.asked)
    assert reasons_of(driver) == Reason.ASKING
    assert driver.client.paused
    assert world.brokers[0].connections == 0

    remote.gate.set()

    assert await client.frame() == produce_answer()
    assert await client.frame() == heartbeat_answer(2)
    assert [row.memo.tags for row in world.sink.rows] == ["group=of%20app"]
    assert driver._questions._open == set()


async def test_what_many_connections_ask_is_asked_once(worlds: Worlds, remote: Remote) -> None:
    world = await worlds(callback=remote)
    clients = [await world.connect() for _ in range(20)]
    for client in clients:
        client.send(produce())
    await until(lambda: sum(reasons_of(d) == Reason.ASKING for d in world.drivers) == 20)

    remote.gate.set()

    assert [await client.frame() for client in clients] == [produce_answer()] * 20
    assert len(remote.asked) == 1


async def test_a_callback_that_hangs_holds_a_client_up_for_a_second(
    worlds: Worlds, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caller, "ASK_MS_MAX", 100)
    world = await worlds(callback=remote)
    client = await world.connect()
    began = asyncio.get_running_loop().time()

    assert await client.ask(produce()) == produce_answer()

    # The callback itself hangs for 20 s.
    assert 0.095 <= asyncio.get_running_loop().time() - began < 10
    assert [row.memo.tags for row in world.sink.rows] == ["client-id=app,user="]
    assert world.gateway.counts.mute_lateness.count == 0


async def test_a_callback_that_fails_is_named_and_the_client_is_served(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    failing = Remote(fails=True)
    failing.gate.set()
    world = await worlds(callback=failing)

    for _ in range(2):
        client = await world.connect()
        assert await client.ask(produce()) == produce_answer()

    assert caplog.text.count("Remote failed in quota_metric_tags") == 1
    assert "no directory of users" in caplog.text


async def test_a_connection_that_ends_leaves_its_question(worlds: Worlds, remote: Remote) -> None:
    world = await worlds(callback=remote)
    client = await world.connect()
    client.send(produce())
    driver = await only_driver(world)
    await until(lambda: remote.asked)
    (question,) = driver._questions._open

    driver.close("", by="client")
    await until(lambda: world.open_connections == 0)
    remote.gate.set()

    assert question.cancelled()
    assert await client.rest() == b""
    assert world.sink.rows == []


async def test_one_who_asks_first_is_not_taken_for_silent(worlds: Worlds, remote: Remote) -> None:
    world = await worlds(
        callback=remote, limits=GatewayLimits(connections_max=1, frame_ms=50, drain_ms=100)
    )
    client = await world.connect()
    client.send(produce())
    await until(lambda: remote.asked)

    for _ in range(3):
        world.sweep()
        await asyncio.sleep(0.05)
    assert await (await world.connect()).rest() == b""
    remote.gate.set()

    assert await client.frame() == produce_answer()


async def test_draining_does_not_wait_for_the_callback(worlds: Worlds, remote: Remote) -> None:
    world = await worlds(callback=remote, limits=GatewayLimits(drain_ms=60_000))
    client = await world.connect()
    client.send(produce())
    await until(lambda: remote.asked)

    ended = world.stop_soon()

    assert await client.rest() == b""
    client.writer.close()
    await asyncio.wait_for(ended, 5)
    assert world.brokers[0].frames == []
