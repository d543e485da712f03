"""Where connections hold much that has not gone on, everybody is read in small parts, and nobody is closed."""

import pytest
from tests.unit.gateway.world import Client, World, Worlds, heartbeat, heartbeat_answer, until

from kvota.gateway import backlog
from kvota.gateway.backlog import LARGE_READ_BYTES
from kvota.gateway.driver import Driver
from kvota.gateway.little_reads import LITTLE_READ_BYTES
from kvota.gateway.side import BrokerSide
from kvota.session.pausing import Reason
from kvota.testing.frames import fetch, fetch_answer, produce, produce_answer

# More than the kernel takes for anybody.
FRAMES = 20
FRAME = produce(records=b"r" * 1_000_000)


@pytest.fixture
def scarce(monkeypatch: pytest.MonkeyPatch) -> None:
    """One side that has not taken a read is too much already."""
    monkeypatch.setattr(backlog, "HELD_BYTES_MAX", LARGE_READ_BYTES - 1)


@pytest.mark.usefixtures("scarce")
async def test_behind_a_broker_that_reads_nothing_little_is_held_and_all_arrives(
    worlds: Worlds,
) -> None:
    world = await worlds()
    held = world.gateway._backlog
    clients = [await world.connect() for _ in range(4)]
    for client in clients:
        assert await client.ask(heartbeat(7)) == heartbeat_answer(7)
    world.brokers[0].gate.clear()
    first, *others = world.drivers

    for client in clients:
        for _ in range(FRAMES):
            client.send(FRAME)
    await until(
        lambda: all(d.machine.pausing.reasons & Reason.UPSTREAM_FULL for d in world.drivers)
    )

    assert held.is_long
    assert held.held_bytes >= LARGE_READ_BYTES * 4
    sizes = sorted(d.upstream.transport.get_write_buffer_size() for d in (first, *others))
    assert sizes[-1] <= LARGE_READ_BYTES + LITTLE_READ_BYTES
    assert max(sizes[:-1]) <= 2 * LITTLE_READ_BYTES
    late = await world.connect()
    late.send(FRAME)

    world.brokers[0].gate.set()
    for client in clients:
        for _ in range(FRAMES):
            assert await client.frame() == produce_answer()
    assert await late.frame() == produce_answer()
    await until(lambda: not held.held_bytes)
    held.sweep()
    assert not held.is_long
    for client in clients:
        assert await client.ask(FRAME) == produce_answer()


@pytest.mark.usefixtures("scarce")
async def test_before_clients_that_do_not_read_little_is_held_and_all_arrives(
    worlds: Worlds,
) -> None:
    world = await worlds()
    world.brokers[0].answer_bytes = 1_000_000
    clients = [await world.connect() for _ in range(4)]
    for client in clients:
        assert await client.ask(heartbeat(7)) == heartbeat_answer(7)
        client.writer.transport.pause_reading()

    for client in clients:
        for number in range(FRAMES):
            client.send(fetch(correlation=number))
    await until(lambda: all(d.machine.pausing.reasons & Reason.CLIENT_FULL for d in world.drivers))

    assert world.gateway._backlog.is_long
    sizes = sorted(d.client.transport.get_write_buffer_size() for d in world.drivers)
    assert max(sizes[:-1]) <= 2 * LITTLE_READ_BYTES
    for client in clients:
        client.writer.transport.resume_reading()
        for number in range(FRAMES):
            got = await client.frame()
            assert got == fetch_answer(
                fetch()[7], correlation=number, records=b"f" * world.brokers[0].answer_bytes
            )


async def behind_a_broker_that_reads_nothing(
    worlds: Worlds,
) -> tuple[World, Client, Driver, BrokerSide]:
    """More than is taken has been sent, and memory is short."""
    world = await worlds()
    client = await world.connect()
    assert await client.ask(heartbeat(7)) == heartbeat_answer(7)
    world.brokers[0].gate.clear()
    for _ in range(FRAMES):
        client.send(FRAME)
    (driver,) = world.drivers
    await until(lambda: world.gateway._backlog.is_long)
    upstream = driver.upstream
    assert upstream is not None
    return world, client, driver, upstream


@pytest.mark.usefixtures("scarce")
async def test_what_a_broker_has_not_taken_is_not_kept_for_a_client_that_has_gone(
    worlds: Worlds,
) -> None:
    world, client, driver, upstream = await behind_a_broker_that_reads_nothing(worlds)

    client.writer.transport.abort()
    driver.close("", by="client")

    await until(upstream.transport.is_closing)
    await until(lambda: not world.gateway._backlog.held_bytes)


@pytest.mark.usefixtures("scarce")
async def test_what_a_broker_has_not_taken_arrives_when_the_gateway_ends_the_connection(
    worlds: Worlds,
) -> None:
    world, _, driver, upstream = await behind_a_broker_that_reads_nothing(worlds)
    await until(upstream.transport.get_write_buffer_size)

    driver.close("", by="moved")
    await until(lambda: not world.drivers)

    assert upstream.transport.get_write_buffer_size()
