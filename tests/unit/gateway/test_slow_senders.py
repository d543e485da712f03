"""Requests that do not arrive in time, and those that stand in others' way."""

import asyncio
from dataclasses import replace

import pytest
from tests.adversary.frames import delete_topics
from tests.unit.gateway.world import (
    Broker,
    Client,
    World,
    Worlds,
    heartbeat,
    heartbeat_answer,
    silent,
    until,
)
from tests.unit.session.test_whole_answers import coordinators

from kvota.gateway.driver import Driver
from kvota.gateway.settings import GatewayLimits
from kvota.gateway.slow_senders import SlowSenders
from kvota.model.bucket_settings import BucketSettings
from kvota.model.quota_type import QuotaType
from kvota.session.pausing import Reason
from kvota.testing.frames import (
    FIND_COORDINATOR,
    METADATA,
    fetch,
    produce,
    produce_answer,
    request,
)
from kvota.testing.stage import quotas


async def test_a_connection_that_never_says_anything_is_closed(worlds: Worlds) -> None:
    world = await worlds(limits=GatewayLimits(frame_ms=100, drain_ms=100))

    nothing = await world.connect()

    assert await nothing.rest() == b""


@pytest.mark.parametrize(
    "begun", [b"\0", heartbeat()[:9], produce(records=b"r" * 5_000)[:4_000], produce(records=b"r" * 100_000)[:20_000]]
)  # fmt: skip
async def test_half_a_request_and_silence_is_closed_in_time(
    worlds: Worlds, caplog: pytest.LogCaptureFixture, begun: bytes
) -> None:
    world = await worlds(behaviour=silent, limits=GatewayLimits(frame_ms=100, drain_ms=100))
    client = await world.connect()

    client.send(begun)

    assert await client.rest() == b""
    assert "no whole request in" in caplog.text
    await until(lambda: world.shared.budgets.used_bytes == 0)


async def test_a_connection_without_half_a_request_may_be_silent(worlds: Worlds) -> None:
    limits = GatewayLimits(frame_ms=10_000, drain_ms=100)
    world = await worlds(limits=limits)
    client = await world.connect()
    await client.ask(heartbeat())
    now_ms = asyncio.get_running_loop().time() * 1000

    for look in range(4):
        world.gateway._slow_senders.sweep(now_ms + 3 * limits.frame_ms * look)

    assert await client.ask(heartbeat()) == heartbeat_answer()


ROOM_FOR_ONE = GatewayLimits(announced_bytes_max=150_000, frame_ms=60_000, drain_ms=100)
LARGE = produce(records=b"r" * 100_000)


async def holder_of(world: World) -> Driver:
    """The driver of the one frame that takes room, once the first 20,000 bytes of it are here."""
    await until(lambda: any(d.machine.arrived_bytes == 20_000 - 4 for d in world.drivers))
    (driver,) = (driver for driver in world.drivers if driver.machine.is_inside_frame)
    return driver


async def wait_for_room(client: Client, holder: Driver) -> None:
    """What is here whole needs no room."""
    client.send(LARGE[:20_000])
    await until(lambda: holder.machine.keeps_others_waiting)
    client.send(LARGE[20_000:])


async def test_who_announces_much_and_stands_still_makes_room_for_others(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(limits=ROOM_FOR_ONE)
    still, other = await world.connect(), await world.connect()
    still.send(LARGE[:20_000])
    driver = await holder_of(world)

    await wait_for_room(other, driver)

    assert await other.frame() == produce_answer()
    assert await still.rest() == b""
    assert "0 bytes of its request have come in" in caplog.text
    assert "and others wait for room (limits.announced_bytes_max)" in caplog.text


async def send_slowly(
    world: World, driver: Driver, client: Client, *, bytes_per_look: int, looks: int
) -> None:
    """So many bytes a tenth of a second, on a clock of the test's own."""
    sent_bytes = 20_000
    for look in range(looks):
        world.gateway._slow_senders.look(look * 100.0)
        client.send(LARGE[sent_bytes : sent_bytes + bytes_per_look])
        sent_bytes = min(sent_bytes + bytes_per_look, len(LARGE))
        if driver.closing or sent_bytes == len(LARGE):
            return
        arrived_bytes = sent_bytes - 4
        await until(lambda: driver.machine.arrived_bytes == arrived_bytes)  # noqa: B023


@pytest.mark.parametrize(("bytes_per_look", "keeps_it"), [(1_000, True), (900, False)])
async def test_who_sends_at_the_least_rate_keeps_its_room_though_others_wait(
    worlds: Worlds, bytes_per_look: int, keeps_it: bool
) -> None:
    world = await worlds(limits=replace(ROOM_FOR_ONE, frame_bytes_per_s_min=10_000))
    world.shared.budgets.when_waited = lambda: None
    slow, other = await world.connect(), await world.connect()
    slow.send(LARGE[:20_000])
    driver = await holder_of(world)
    await wait_for_room(other, driver)

    await send_slowly(world, driver, slow, bytes_per_look=bytes_per_look, looks=100)

    assert driver.closing is not keeps_it
    assert await other.frame() == produce_answer()


async def test_who_has_waited_for_room_is_not_sent_away_together_with_who_has_taken_it(
    worlds: Worlds,
) -> None:
    world = await worlds(limits=ROOM_FOR_ONE)
    world.shared.budgets.when_waited = lambda: None
    still, other = await world.connect(), await world.connect()
    still.send(LARGE[:20_000])
    driver = await holder_of(world)
    other.send(LARGE[:20_000])
    await until(lambda: driver.machine.keeps_others_waiting)

    for now_ms in (0, 2 * ROOM_FOR_ONE.frame_ms):
        world.gateway._slow_senders.sweep(now_ms)
    other.send(LARGE[20_000:])

    assert await still.rest() == b""
    assert await other.frame() == produce_answer()


@pytest.mark.parametrize(("host", "keeps_it"), [("127.0.0.1", True), ("127.0.0.9", False)])
async def test_who_has_more_than_its_part_of_the_room_does_not_keep_other_users_waiting_for_long(
    worlds: Worlds, caplog: pytest.LogCaptureFixture, host: str, keeps_it: bool
) -> None:
    world = await worlds(limits=replace(ROOM_FOR_ONE, frame_bytes_per_s_min=10_000))
    world.shared.budgets.when_waited = lambda: None
    slow, other = await world.connect(), await world.connect(host=host)
    slow.send(LARGE[:20_000])
    driver = await holder_of(world)
    await wait_for_room(other, driver)

    await send_slowly(world, driver, slow, bytes_per_look=2_000, looks=25)

    assert driver.closing is not keeps_it
    assert ("its user takes more than its part of the room" in caplog.text) is not keeps_it


async def test_a_stall_of_the_gateway_is_nobodys_fault(worlds: Worlds) -> None:
    world = await worlds(limits=ROOM_FOR_ONE)
    world.shared.budgets.when_waited = lambda: None
    slow, other = await world.connect(), await world.connect()
    slow.send(LARGE[:20_000])
    driver = await holder_of(world)
    await wait_for_room(other, driver)

    for now_ms in (0, 10_000, 20_000):
        world.gateway._slow_senders.look(now_ms)

    assert not driver.closing


async def test_room_for_a_frame_is_free_when_the_broker_has_closed_too(worlds: Worlds) -> None:
    world = await worlds(limits=GatewayLimits(frame_ms=100, drain_ms=100))
    world.brokers[0].gate.clear()
    client = await world.connect()
    client.send(produce(records=b"r" * 100_000)[:20_000])

    assert await client.rest() == b""
    await until(lambda: world.open_connections == 0)
    assert world.shared.budgets.used_bytes > 100_000
    world.brokers[0].gate.set()

    await until(lambda: world.shared.budgets.used_bytes == 0)


async def test_who_finds_no_room_is_closed_in_time(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(
        limits=GatewayLimits(announced_bytes_max=150_000, frame_ms=150, drain_ms=100)
    )
    world.shared.budgets.of(world.brokers[0].address).add(150_000, ("other", ""))
    client = await world.connect()

    client.send(produce(records=b"r" * 100_000)[:20_000])

    assert await client.rest() == b""
    assert "no room for its request in" in caplog.text


async def test_a_frame_that_its_broker_reads_slowly_keeps_its_room_though_others_wait(
    worlds: Worlds,
) -> None:
    world = await worlds(limits=GatewayLimits(announced_bytes_max=150_000, drain_ms=1_000))
    held_up, other = await world.connect(), await world.connect()
    large = produce(records=b"r" * 100_000)
    held_up.send(large[:20_000])
    await until(lambda: world.shared.budgets.used_bytes > 0)
    (driver,) = (driver for driver in world.drivers if driver.machine.is_inside_frame)
    driver.pause(Reason.UPSTREAM_FULL)
    other.send(large[:20_000])
    await until(lambda: driver.machine.keeps_others_waiting)

    await asyncio.sleep(1.0)  # longer than a sender may be behind
    driver.resume(Reason.UPSTREAM_FULL)
    held_up.send(large[20_000:])
    other.send(large[20_000:])

    assert await held_up.frame() == produce_answer()
    assert await other.frame() == produce_answer()


# ------------------------------------------------------------------ a counter that others wait for


LIMIT = 100_000
SHARED = quotas(PRODUCE=LIMIT)
BUCKETS = {QuotaType.PRODUCE: BucketSettings(burst_ms=1, debt_max_ms=0)}


async def begin_a_request_that_others_wait_for(
    worlds: Worlds, records: int
) -> tuple[World, Client, Client, Driver]:
    """One with ``records`` bytes of which 20,000 are here, and one that waits in line behind it."""
    world = await worlds(table=SHARED, limits=GatewayLimits(frame_ms=60_000, drain_ms=100))
    world.engine.replace_countings({}, BUCKETS)
    first, other = await world.connect(), await world.connect()
    assert await other.ask(produce())  # from now on the bucket counts
    first.send(produce(records=b"r" * records)[:20_000])
    await until(lambda: any(d.machine.is_inside_frame for d in world.drivers))
    (driver,) = (d for d in world.drivers if d.machine.is_inside_frame)
    other.send(produce())
    await until(lambda: any(d.machine.is_in_line for d in world.drivers))
    return world, first, other, driver


async def test_who_was_charged_for_what_it_does_not_send_makes_way_for_the_line(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world, first, other, _ = await begin_a_request_that_others_wait_for(worlds, 10_000_000)

    assert await other.frame()
    assert await first.rest() == b""
    assert "others wait for their turn under its quota of 100000 bytes/s" in caplog.text
    await until(lambda: not len(world.shared.early_charges))


def on_a_clock_of_the_tests_own(world: World) -> SlowSenders:
    """No look comes by itself any more, and what such looks have seen is forgotten."""
    slow_senders = world.gateway._slow_senders
    assert slow_senders._next_look is not None
    slow_senders._next_look.cancel()
    slow_senders._in_the_way.clear()
    slow_senders._before_lines.clear()
    return slow_senders


@pytest.mark.parametrize(("bytes_per_look", "keeps_it"), [(5_000, True), (3_000, False)])
async def test_half_the_limit_is_fast_enough(
    worlds: Worlds, bytes_per_look: int, keeps_it: bool
) -> None:
    # So much that the other waits for longer than this takes on a busy machine.
    world, first, _, driver = await begin_a_request_that_others_wait_for(worlds, 1_500_000)
    world.shared.early_charges.when_added = lambda: None
    frame = produce(records=b"r" * 1_500_000)
    slow_senders = on_a_clock_of_the_tests_own(world)

    sent_bytes = 20_000
    for look in range(20):
        slow_senders.look(look * 100.0)
        if driver.closing:
            break
        first.send(frame[sent_bytes : sent_bytes + bytes_per_look])
        sent_bytes += bytes_per_look
        await until(lambda: driver.machine.arrived_bytes == sent_bytes - 4)  # noqa: B023

    assert driver.closing is not keeps_it


async def test_what_time_pays_within_a_second_may_come_slowly(worlds: Worlds) -> None:
    world, _, _, driver = await begin_a_request_that_others_wait_for(worlds, 100_000)

    for look in range(20):
        world.gateway._slow_senders.look(look * 100.0)

    assert not driver.closing


async def test_where_nobody_waits_for_the_counter_it_may_come_slowly(worlds: Worlds) -> None:
    world = await worlds(table=SHARED, limits=GatewayLimits(frame_ms=60_000, drain_ms=100))
    world.engine.replace_countings({}, BUCKETS)
    client = await world.connect()
    assert await client.ask(produce())
    client.send(produce(records=b"r" * 10_000_000)[:20_000])
    await until(lambda: len(world.shared.early_charges) == 1)

    for look in range(20):
        world.gateway._slow_senders.look(look * 100.0)

    assert not any(driver.closing for driver in world.drivers)


# ------------------------------------------------------------------ large topic mutations, one at a time


async def test_half_a_large_mutation_does_not_keep_its_users_others_waiting(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    limits = GatewayLimits(frame_ms=60_000, drain_ms=100)
    world = await worlds(table=quotas(CONTROLLER_MUTATION=1_000_000), limits=limits)
    request = delete_topics([f"{number:05}{'n' * 195}" for number in range(2_000)], client_id="a")
    half, whole = await world.connect(), await world.connect()
    half.send(request[:100_000])
    await until(lambda: any(driver.machine.arrived_bytes > 50_000 for driver in world.drivers))
    whole.send(request)

    await until(lambda: any(frame[5] == METADATA for frame in world.brokers[0].frames))
    assert await half.rest() == b""
    assert "another large topic mutation of its user waits for this one to end" in caplog.text


async def test_a_large_mutation_that_comes_at_the_least_rate_keeps_its_turn(worlds: Worlds) -> None:
    limits = GatewayLimits(frame_ms=60_000, frame_bytes_per_s_min=40_000, drain_ms=100)
    world = await worlds(table=quotas(CONTROLLER_MUTATION=1_000_000), limits=limits)
    request = delete_topics([f"{number:05}{'n' * 195}" for number in range(2_000)], client_id="a")
    slow, other = await world.connect(), await world.connect()
    slow.send(request[:100_000])
    await until(lambda: any(driver.machine.arrived_bytes > 50_000 for driver in world.drivers))
    (driver,) = (driver for driver in world.drivers if driver.machine.arrived_bytes)
    other.send(request)
    await until(lambda: world.shared.budgets.is_waited_for)
    slow_senders = on_a_clock_of_the_tests_own(world)

    sent_bytes = 100_000
    for look in range(25):
        slow_senders.look(look * 100.0)
        slow.send(request[sent_bytes : sent_bytes + 4_000])
        sent_bytes += 4_000
        await until(lambda: driver.machine.arrived_bytes == sent_bytes)  # noqa: B023
    assert not driver.closing

    for look in range(25, 40):  # it stands still
        slow_senders.look(look * 100.0)
    assert driver.closing
    await until(lambda: not world.shared.budgets.is_waited_for)


# ------------------------------------------------------------------ who does not read its answers


async def deaf_client(world: World, request: bytes) -> tuple[Client, Driver]:
    """It has sent a Fetch, with ``request`` behind it in one segment, and reads nothing of the answer."""
    world.brokers[0].answer_bytes = 16_000_000
    client = await world.connect()
    client.writer.transport.pause_reading()
    client.send(fetch() + request)
    await until(lambda: any(d.machine.pausing.reasons & Reason.CLIENT_FULL for d in world.drivers))
    (driver,) = (d for d in world.drivers if d.machine.pausing.reasons & Reason.CLIENT_FULL)
    return client, driver


async def test_who_does_not_read_its_answers_makes_room_for_others_all_the_same(
    worlds: Worlds,
) -> None:
    world = await worlds(
        limits=GatewayLimits(
            announced_bytes_max=150_000, write_buffer_bytes=65_536, frame_ms=60_000, drain_ms=100
        )
    )
    _, deaf = await deaf_client(world, LARGE[:20_000])
    assert deaf.machine.is_inside_frame
    other = await world.connect()

    await wait_for_room(other, deaf)

    assert await other.frame() == produce_answer()
    assert deaf.closing


async def test_who_does_not_read_its_answers_makes_way_for_the_line_all_the_same(
    worlds: Worlds,
) -> None:
    world = await worlds(
        table=SHARED,
        limits=GatewayLimits(write_buffer_bytes=65_536, frame_ms=60_000, drain_ms=100),
    )
    world.engine.replace_countings({}, BUCKETS)
    other = await world.connect()
    assert await other.ask(produce())
    _, deaf = await deaf_client(world, produce(records=b"r" * 10_000_000)[:20_000])
    assert len(world.shared.early_charges) == 1

    assert await asyncio.wait_for(other.ask(produce()), 10)

    assert deaf.closing
    assert not len(world.shared.early_charges)  # though what it has not read is still being written


async def test_who_is_closed_and_does_not_read_keeps_no_turn(worlds: Worlds) -> None:
    world = await worlds(
        table=SHARED,
        limits=GatewayLimits(write_buffer_bytes=65_536, frame_ms=60_000, drain_ms=100),
    )
    world.engine.replace_countings({}, BUCKETS)
    first, other = await world.connect(), await world.connect()
    assert await first.ask(produce(records=b"r" * 600_000))  # some 6 s are owed
    client, deaf = await deaf_client(world, produce())
    assert deaf.machine.is_in_line
    client.writer.write_eof()
    other.send(produce())
    await until(lambda: sum(d.machine.is_in_line for d in world.drivers) == 2)

    assert await asyncio.wait_for(other.frame(), 10)

    assert deaf.closing
    assert world.brokers[0].frames.count(produce()) == 1  # not that of who has gone


async def test_an_answer_that_falls_silent_makes_room_for_those_of_others(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    large = coordinators(1_600)  # 440 KB

    async def stops_in_the_middle_of_the_first(broker: Broker, frame: bytes) -> bytes:
        return large[:20_000] if len(broker.frames) == 1 else large

    world = await worlds(behaviour=stops_in_the_middle_of_the_first)
    world.shared.whole_answers.limit_bytes = 500_000
    silenced, good = [await world.connect() for _ in range(2)]
    silenced.send(request(FIND_COORDINATOR, 4))
    await until(lambda: world.shared.whole_answers.used_bytes > 0)

    answered = await good.ask(request(FIND_COORDINATOR, 4))

    assert len(answered) > 400_000
    assert await silenced.rest() == b""
    assert "of an answer of its broker have come in" in caplog.text
    await until(lambda: world.shared.whole_answers.used_bytes == 0)
