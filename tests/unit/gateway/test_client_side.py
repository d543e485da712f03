"""The client's side: what it sends arrives, in order, and what it ends is ended."""

import asyncio
import gc

import pytest
from tests.unit.gateway.world import (
    Worlds,
    heartbeat,
    heartbeat_answer,
    only_driver,
    until,
)

from kvota.gateway.client_side import ClientSide
from kvota.gateway.driver import Driver
from kvota.gateway.upstream_side import UpstreamSide
from kvota.session.connection import Connection
from kvota.testing.frames import (
    fetch,
    fetch_answer,
    produce,
    produce_answer,
)

KEPT_PER_CONNECTION = (ClientSide, UpstreamSide, Driver, Connection)


async def test_a_request_is_answered(worlds: Worlds) -> None:
    world = await worlds()
    client = await world.connect()

    assert await client.ask(heartbeat(5)) == heartbeat_answer(5)
    assert world.brokers[0].frames == [heartbeat(5)]


async def test_many_requests_on_many_connections_are_answered_in_order(worlds: Worlds) -> None:
    world = await worlds()
    clients = [await world.connect() for _ in range(20)]

    for client in clients:
        client.send(b"".join(heartbeat(number) for number in range(300)))

    for client in clients:
        got = [await client.frame() for _ in range(300)]
        assert got == [heartbeat_answer(number) for number in range(300)]


async def test_nothing_is_dialled_before_the_first_request_is_here(worlds: Worlds) -> None:
    world = await worlds()
    client = await world.connect()
    client.send(heartbeat()[:10])
    await until(lambda: world.open_connections == 1)
    await asyncio.sleep(0.05)
    assert world.brokers[0].connections == 0

    client.send(heartbeat()[10:])

    assert await client.frame() == heartbeat_answer()
    assert world.brokers[0].connections == 1


async def test_megabytes_go_both_ways_unchanged(worlds: Worlds) -> None:
    world = await worlds()
    world.brokers[0].answer_bytes = 5_000_000
    client = await world.connect()
    large = produce(records=bytes(range(256)) * 20_000)

    client.send(large + fetch(16, correlation=2))

    assert await client.frame() == produce_answer()
    assert await client.frame() == fetch_answer(16, correlation=2, records=b"f" * 5_000_000)
    assert world.brokers[0].frames[0] == large


class _CannotBeAbandoned:
    """Work whose end fails, as a fault in the gateway would have it."""

    def abandoned(self) -> None:
        raise LookupError("nobody knows what it was charged on")


@pytest.mark.parametrize("who", ["client", "gateway"])
async def test_a_fault_at_the_end_of_a_connection_keeps_neither_its_place_nor_its_broker(
    worlds: Worlds, caplog: pytest.LogCaptureFixture, who: str
) -> None:
    world = await worlds()
    client = await world.connect()
    await client.ask(heartbeat())
    driver = await only_driver(world)
    upstream = driver.upstream
    assert upstream is not None
    driver.machine.caller.at_work = _CannotBeAbandoned()  # type: ignore[assignment]

    if who == "client":
        client.writer.close()
    else:
        driver.close("", by="unreachable")
        assert await client.rest() == b""

    await until(lambda: world.open_connections == 0)
    assert upstream.transport.is_closing()
    assert "nobody knows what it was charged on" in caplog.text


async def test_garbage_is_closed_with_a_reason_and_others_are_served(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds()
    good = await world.connect()
    await good.ask(heartbeat())

    bad = await world.connect()
    bad.send(b"GET / HTTP/1.1\r\n\r\n")

    assert await bad.rest() == b""
    assert "a request of 1195725856 bytes is announced" in caplog.text
    assert "This is HTTP" in caplog.text
    assert await good.ask(heartbeat()) == heartbeat_answer()
    assert world.brokers[0].connections == 1


async def test_a_client_that_begins_with_tls_is_told_in_the_log(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds()
    client = await world.connect()

    client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")

    assert await client.rest() == b""
    assert (
        "This is TLS, and this port takes none: its client needs security.protocol=PLAINTEXT"
        in caplog.text
    )


async def test_a_client_that_leaves_takes_its_upstream_connection_along(worlds: Worlds) -> None:
    world = await worlds()
    client = await world.connect()
    await client.ask(heartbeat())

    client.writer.transport.abort()

    await until(lambda: not world.brokers[0]._writers and not world.open_connections)


async def test_a_client_that_only_stops_sending_gets_the_answers_due(worlds: Worlds) -> None:
    world = await worlds()
    world.brokers[0].gate.clear()
    client = await world.connect()
    client.send(heartbeat(1) + heartbeat(2))
    client.writer.write_eof()
    await asyncio.sleep(0.05)

    world.brokers[0].gate.set()

    assert await client.rest() == heartbeat_answer(1) + heartbeat_answer(2)


async def test_a_client_that_stops_sending_before_any_request_is_let_go(worlds: Worlds) -> None:
    world = await worlds()
    client = await world.connect()

    client.writer.write_eof()

    assert await client.rest() == b""
    await until(lambda: world.open_connections == 0)


@pytest.mark.parametrize("sent", [b"", b"\x7f\xff\xff\xff", heartbeat()])
async def test_closed_connections_leave_nothing_behind(
    worlds: Worlds, no_collector: None, sent: bytes
) -> None:
    world = await worlds()
    clients = [await world.connect() for _ in range(20)]
    for client in clients:
        client.send(sent)
        client.writer.write_eof()

    for client in clients:
        await client.rest()

    await until(lambda: world.open_connections == 0 and not world.brokers[0]._writers)

    def left() -> list[object]:
        # By type(), as isinstance would ask a weak proxy of some library for a referent long gone.
        return [found for found in gc.get_objects() if type(found) in KEPT_PER_CONNECTION]

    await until(lambda: not left())
