"""All places are taken, and somebody new comes: a connection of who has most of them gives way."""

import asyncio
import contextlib
from collections.abc import Sequence

import pytest
from tests.unit.gateway.world import (
    Broker,
    Client,
    World,
    Worlds,
    heartbeat,
    heartbeat_answer,
    obliging,
    reasons_of,
    until,
)

from kvota.gateway import leaving
from kvota.gateway.settings import GatewayLimits, leaving_max
from kvota.model.bucket_settings import BucketSettings
from kvota.model.quota_type import QuotaType
from kvota.session.giving_way import Standing
from kvota.session.pausing import Reason
from kvota.testing.frames import HEARTBEAT, METADATA, answer, fetch, produce, request
from kvota.testing.stage import quotas

GREEDY, MODEST = "127.0.0.8", "127.0.0.9"
LIMITS = GatewayLimits(connections_max=4, drain_ms=100)
FEW = 16
BUCKETS = {QuotaType.PRODUCE: BucketSettings(burst_ms=1_000, debt_max_ms=15_000)}
OVER = produce(records=b"r" * 100_000)  # muted for longer than any test waits


async def deaf_to_produce_and_fetch(broker: Broker, frame: bytes) -> bytes:
    """As a broker whose Fetches wait for records, and whose Produces wait for replicas, until its gate opens."""
    return b"" if frame[5] in {0, 1} else await obliging(broker, frame)


async def filled(
    world: World, *, places: int = LIMITS.connections_max, first: bytes = b""
) -> list[Client]:
    """All places, by one address; each has asked something."""
    clients = []
    for _ in range(places):
        client = await world.connect(host=GREEDY)
        assert await client.ask(heartbeat()) == heartbeat_answer()
        client.send(first)
        clients.append(client)
    return clients


async def let_in(world: World, host: str = MODEST) -> Client:
    client = await world.connect(host=host)
    assert await client.ask(heartbeat()) == heartbeat_answer()
    return client


async def closed(clients: Sequence[Client], at_least: int = 0) -> list[int]:
    """Which are, once so many are and a moment has passed in which more might be."""
    readers = [client.reader for client in clients]

    def now() -> list[int]:
        return [n for n, reader in enumerate(readers) if reader.at_eof() or reader.exception()]

    await until(lambda: len(now()) >= at_least)
    await asyncio.sleep(0.05)
    return now()


# ------------------------------------------------------------------ who has nothing to lose


async def test_the_longest_idle_one_of_who_has_most_gives_way(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(limits=LIMITS)
    clients = await filled(world)
    for client in (clients[0], *clients[2:]):
        world.gateway._places.look()
        await asyncio.sleep(0.01)
        await client.ask(heartbeat())

    modest = await let_in(world)

    assert await closed(clients, 1) == [1]
    assert world.open_connections == LIMITS.connections_max
    assert await modest.ask(heartbeat()) == heartbeat_answer()
    assert "all 4 connections are in use (limits.connections_max): of the 4 from" in caplog.text
    assert world.gateway.counts.closed["made_room"] == 1
    assert not world.gateway.counts.refused


async def test_nobody_below_a_fair_share_gives_way_and_nobody_to_his_like(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(limits=LIMITS)
    clients = await filled(world)
    modest = [await let_in(world), await let_in(world)]
    assert len(await closed(clients, 2)) == 2

    for host in (GREEDY, MODEST, MODEST):  # each of the two has half
        assert await (await world.connect(host=host)).rest() == b""

    assert len(await closed(clients, 2)) == 2
    assert await closed(modest) == []
    assert world.gateway.counts.refused["full"] == 3
    assert "of nobody who has more than a fair share one can give way" in caplog.text
    third = await let_in(world, host="127.0.0.7")
    assert len(await closed([*clients, *modest], 3)) == 3
    assert await third.ask(heartbeat()) == heartbeat_answer()


async def test_a_crowd_of_newcomers_is_said_once(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    limits = GatewayLimits(connections_max=40, drain_ms=100)
    world = await worlds(limits=limits)
    for _ in range(40):
        await (await world.connect(host=GREEDY)).ask(heartbeat())

    modest = [await let_in(world) for _ in range(15)]

    assert await closed(modest) == []
    assert len([text for text in caplog.messages if "given way" in text]) == 1
    assert world.gateway.counts.closed["made_room"] == 15


# ------------------------------------------------------------------ who has something to lose


async def test_who_is_muted_with_a_request_unread_gives_way_uncharged(worlds: Worlds) -> None:
    world = await worlds(table=quotas(PRODUCE=1_000), limits=LIMITS)
    clients = await filled(world)
    for client in clients:
        await client.ask(OVER)
        client.send(produce(records=b"unread"))
    await until(lambda: all(reasons_of(driver) & Reason.MUTED for driver in world.drivers))
    rows = len(world.sink.rows)

    await let_in(world)

    assert len(await closed(clients, 1)) == 1
    assert not any(b"unread" in frame for frame in world.brokers[0].frames)
    assert len(world.sink.rows) == rows


async def test_who_waits_for_records_gives_way_when_nobody_has_less_to_lose(
    worlds: Worlds,
) -> None:
    world = await worlds(behaviour=deaf_to_produce_and_fetch, limits=LIMITS)
    clients = await filled(world, first=fetch())
    await until(lambda: len(world.brokers[0].frames) == 2 * LIMITS.connections_max)

    await let_in(world)

    assert len(await closed(clients, 1)) == 1


@pytest.mark.parametrize(
    ("buckets", "given_back"), [({}, 0), (BUCKETS, 1)], ids=["sampled_rate", "token_bucket"]
)
async def test_who_sends_half_a_request_gives_way_and_is_given_back_what_never_came(
    worlds: Worlds, buckets: dict[QuotaType, BucketSettings], given_back: int
) -> None:
    # All four may go on (13 s of debt), and what never comes of one is not paid off before the test ends.
    world = await worlds(table=quotas(PRODUCE=30_000), limits=LIMITS)
    world.engine.replace_countings({}, buckets)
    clients = await filled(world, first=produce(records=b"h" * 100_000)[:50_000])
    await until(lambda: world.brokers[0].bytes_read == 4 * len(heartbeat()))
    await until(lambda: all(driver.machine.is_inside_frame for driver in world.drivers))

    await let_in(world)

    assert len(await closed(clients, 1)) == 1
    # A sampled rate is charged when all is here.
    assert [row.value < 0 for row in world.sink.rows].count(True) == given_back


@pytest.mark.parametrize("counting", [{}, BUCKETS], ids=["in a mute", "in line"])
async def test_records_that_nobody_sends_again_give_way_last(
    worlds: Worlds, counting: dict[QuotaType, BucketSettings]
) -> None:
    world = await worlds(behaviour=silent_to_others, table=quotas(PRODUCE=1_000), limits=LIMITS)
    world.engine.replace_countings({}, counting)
    unanswered = produce(acks=0, records=b"u" * 1_000)
    clients = await filled(world)
    for client in clients[:3]:
        # Read in one piece; what comes behind a mute stays in the socket.
        if client is clients[0] or not counting:
            await client.ask(OVER + unanswered)
        else:
            client.send(unanswered)
    clients[3].send(request(METADATA, 12))  # no answer comes
    await until(
        lambda: [driver.machine.standing for driver in world.drivers].count(Standing.SENT_ONCE) == 3
    )
    await until(lambda: world.drivers[3].machine.due_count)

    await let_in(world)

    assert world.open_connections == LIMITS.connections_max + 1
    assert await closed(clients) == []
    told = [bool(reasons_of(driver) & Reason.DRAINING) for driver in world.drivers[:4]]
    assert told == [False, False, False, True]


async def silent_to_others(broker: Broker, frame: bytes) -> bytes:
    """Answers what is usual, and Metadata never."""
    return b"" if frame[5] == METADATA else await obliging(broker, frame)


async def gated(broker: Broker, frame: bytes) -> bytes:
    if frame[5] == 0:
        await RELEASED.wait()
    return await obliging(broker, frame)


RELEASED = asyncio.Event()


async def test_who_awaits_an_answer_is_told_to_leave_and_has_it_first(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaving, "HURRY_S", 60.0)
    RELEASED.clear()
    world = await worlds(behaviour=gated, limits=LIMITS)
    clients = await filled(world, first=produce(correlation=7))
    await until(lambda: all(driver.machine.due_count for driver in world.drivers))

    modest = await let_in(world)  # at once, beside the one that is on its way out

    assert await closed(clients) == []
    assert world.open_connections == LIMITS.connections_max + 1
    assert (
        await (await world.connect(host="127.0.0.7")).rest() == b""
    )  # only one may be on its way out
    modest.writer.close()
    await until(lambda: world.open_connections == LIMITS.connections_max)
    await let_in(world)  # the place that has become free; who is on its way out has none
    RELEASED.set()
    for client in clients:
        assert (await client.frame())[4:8] == (7).to_bytes(4, "big")
    await until(lambda: world.open_connections == LIMITS.connections_max)
    assert len(await closed(clients, 1)) == 1


async def test_who_never_reads_its_answers_is_on_its_way_out_for_so_long_at_most(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaving, "LEAVE_S", 0.2)
    world = await worlds(behaviour=deaf_to_produce_and_fetch, limits=LIMITS)
    clients = await filled(world, first=produce())
    await until(lambda: all(driver.machine.due_count for driver in world.drivers))

    await let_in(world)

    await until(lambda: world.open_connections == LIMITS.connections_max)
    assert len(await closed(clients, 1)) == 1
    assert await let_in(world)
    await until(lambda: world.open_connections == LIMITS.connections_max)


async def test_answers_that_never_come_keep_nobody_out(worlds: Worlds) -> None:
    """One address holds all places and another floods: who comes from a third is let in long before LEAVE_S."""
    limits = GatewayLimits(connections_max=FEW, drain_ms=100)
    world = await worlds(behaviour=deaf_to_produce_and_fetch, limits=limits)
    await filled(world, places=FEW, first=produce())
    await until(lambda: all(driver.machine.due_count for driver in world.drivers))
    flood = asyncio.create_task(_floods(world))
    await until(lambda: world.gateway.counts.refused["full"])

    try:
        for number in range(3):
            async with asyncio.timeout(10):  # it takes HURRY_S, and what a busy machine adds
                await _let_in_at_last(world, f"127.0.1.{number}")
            assert world.open_connections <= FEW + leaving_max(FEW)
    finally:
        flood.cancel()


async def test_a_flood_from_one_address_leaves_room_for_others(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaving, "HURRY_S", 60.0)
    limits = GatewayLimits(connections_max=FEW, drain_ms=100)
    world = await worlds(behaviour=deaf_to_produce_and_fetch, limits=limits)
    await filled(world, places=FEW, first=produce())
    await until(lambda: all(driver.machine.due_count for driver in world.drivers))

    await let_in(world)
    assert await (await world.connect(host=MODEST)).rest() == b""
    await let_in(world, "127.0.0.7")  # nobody has had time to leave

    assert world.open_connections == FEW + leaving_max(FEW)


async def test_who_was_told_longest_ago_goes_where_its_address_has_its_share(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaving, "HURRY_S", 0.2)
    world = await worlds(behaviour=deaf_to_produce_and_fetch, limits=LIMITS)
    clients = await filled(world, first=produce())
    await until(lambda: all(driver.machine.due_count for driver in world.drivers))

    await let_in(world)
    assert await closed(clients) == []
    async with asyncio.timeout(10):
        await _let_in_at_last(world, MODEST)

    assert len(await closed(clients, 1)) == 1
    assert world.open_connections == LIMITS.connections_max + 1
    assert world.gateway.counts.closed["made_room"] == 1


async def _floods(world: World) -> None:
    """Closes nothing, and has always something due."""
    while True:
        with contextlib.suppress(OSError):
            (await world.connect(host=MODEST)).send(produce())
        await asyncio.sleep(0.005)


async def _let_in_at_last(world: World, host: str) -> Client:
    """Tries until it is."""
    while True:
        client = await world.connect(host=host)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await client.ask(heartbeat())
            return client
        await asyncio.sleep(0.02)


# ------------------------------------------------------------------ who is nobody yet


async def test_a_login_may_take_its_time_while_others_come(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has asked nothing yet is spared while those who have all the places can give way."""
    # However long a look takes here, the next one comes in a tenth of a second.
    monkeypatch.setattr("kvota.gateway.places._TIMES_THE_LOOK", 0)
    limits = GatewayLimits(connections_max=16, drain_ms=100)
    world = await worlds(limits=limits)
    clients = [await let_in(world, GREEDY) for _ in range(16)]
    slow = [await world.connect(host=MODEST) for _ in range(2)]
    await until(lambda: world.gateway.counts.accepted == 18)

    others = []
    for number in range(1, 5):
        await asyncio.sleep(0.15)  # those who have asked are counted
        others.append(await let_in(world, f"127.0.1.{number}"))

    assert await closed([*slow, *others]) == []
    assert len(await closed(clients, 6)) == 6
    for client in slow:
        assert await client.ask(heartbeat()) == heartbeat_answer()


async def test_of_those_who_are_nobody_the_address_that_has_most_gives_way(
    worlds: Worlds,
) -> None:
    limits = GatewayLimits(connections_max=16, drain_ms=100)
    world = await worlds(limits=limits)
    modest = await world.connect(host=MODEST)
    silent = [await world.connect(host=GREEDY) for _ in range(15)]
    await until(lambda: world.gateway.counts.accepted == 16)

    silent += [await world.connect(host=GREEDY) for _ in range(30)]
    await until(lambda: world.gateway.counts.accepted == 46)

    assert await closed([modest]) == []
    assert await closed(silent, 30) == list(range(30))
    assert await modest.ask(heartbeat()) == heartbeat_answer()


async def test_versions_alone_are_nothing(worlds: Worlds) -> None:
    """Every client asks for them before it logs in: who stops there is nobody yet."""
    world = await worlds(behaviour=_versions, limits=LIMITS)
    clients = [await world.connect(host=GREEDY) for _ in range(LIMITS.connections_max)]
    for client in clients:
        await client.ask(request(18, 0))

    assert await let_in(world, GREEDY)
    assert len(await closed(clients, 1)) == 1


async def _versions(broker: Broker, frame: bytes) -> bytes:
    if frame[5] != 18:
        return answer(HEARTBEAT, 4, correlation=1)
    return b"\0\0\0\x0a" + frame[8:12] + b"\0\0" + b"\0\0\0\0"
