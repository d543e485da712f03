"""The gateway on real sockets, in front of brokers that do what a test says."""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Iterator

import pytest
from tests.unit.gateway.world import (
    BROKER_HOST,
    GATEWAY_HOST,
    Broker,
    World,
    heartbeat,
    heartbeat_answer,
    obliging,
    until,
)

from kvota.gateway.relay import ClientSide, UpstreamSide
from kvota.gateway.settings import GatewayLimits
from kvota.session.settings import ConnectionSettings
from kvota.testing.frames import (
    METADATA,
    decoded,
    fetch,
    fetch_answer,
    produce,
    produce_answer,
    request,
    split,
    throttle_of,
)
from kvota.testing.stage import quotas

Worlds = Callable[..., Awaitable[World]]


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What a closed connection leaves behind must be nothing for the collector to find."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def silent(broker: Broker, frame: bytes) -> bytes:
    """Never answers."""
    return b""


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


# ------------------------------------------------------------------ nodes


async def test_a_nodes_port_leads_to_that_node_once_an_answer_has_named_it(worlds: Worlds) -> None:
    world = await worlds(brokers=3)
    client = await world.connect()

    told = decoded(await client.ask(request(METADATA, 12)), METADATA, 12)

    addresses = [(broker.host, broker.port - world.first_port - 1) for broker in told.brokers]
    assert addresses == [(GATEWAY_HOST, 1), (GATEWAY_HOST, 2), (GATEWAY_HOST, 3)]
    before = [broker.connections for broker in world.brokers]
    for node_id in (1, 2, 3):
        node = await world.connect(node_id)
        assert await node.ask(heartbeat()) == heartbeat_answer()
    after = [broker.connections for broker in world.brokers]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1, 1]


async def test_an_answer_that_names_an_unknown_node_is_not_forwarded(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(brokers=1)
    world.brokers[0].cluster.append(("far.inside", 9092))
    client = await world.connect()

    client.send(request(METADATA, 12))

    assert await client.rest() == b""
    assert "node 2 at far.inside:9092, outside gateway.node_ids 0-1" in caplog.text
    assert "an answer was not forwarded" in caplog.text


# ------------------------------------------------------------------ brokers that are not there


async def test_another_bootstrap_server_is_tried(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(brokers=3, started=(2,))

    answers = [await (await world.connect()).ask(heartbeat()) for _ in range(4)]

    assert answers == [heartbeat_answer()] * 4
    assert caplog.text.count("cannot be reached") == 2  # each once, not at every attempt


async def test_without_any_broker_the_client_is_closed_and_the_log_says_why_once(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world = await worlds(started=())
    port = world.brokers[0].port
    for _ in range(3):
        client = await world.connect()
        client.send(heartbeat())
        assert await client.rest() == b""
    assert caplog.text.count(f"broker {BROKER_HOST}:{port} cannot be reached") == 1

    await world.brokers[0].start()

    client = await world.connect()
    assert await client.ask(heartbeat()) == heartbeat_answer()
    assert f"broker {BROKER_HOST}:{port} can be reached again" in caplog.text
    await until(lambda: world.open_connections == 1)


async def test_a_broker_that_dies_takes_its_connections_along_and_the_gateway_stays(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(behaviour=silent)
    client = await world.connect()
    client.send(produce() + heartbeat(2))
    await until(lambda: len(world.brokers[0].frames) == 2)

    await world.brokers[0].stop()

    assert await client.rest() == b""
    assert "2 answers were due" in caplog.text
    await until(lambda: world.open_connections == 0)
    assert [row.upstream_ms for row in world.sink.rows] == [-1]
    world.brokers[0].behaviour = obliging
    await world.brokers[0].start()
    assert await (await world.connect()).ask(heartbeat()) == heartbeat_answer()


async def test_a_client_that_leaves_takes_its_upstream_connection_along(worlds: Worlds) -> None:
    world = await worlds()
    client = await world.connect()
    await client.ask(heartbeat())

    client.writer.transport.abort()

    await until(lambda: not world.brokers[0]._writers)
    assert world.open_connections == 0


# ------------------------------------------------------------------ closing in order


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


async def test_a_record_without_acks_arrives_though_its_client_is_gone(worlds: Worlds) -> None:
    world = await worlds(behaviour=silent)
    client = await world.connect()
    frame = produce(acks=0, records=b"r" * 100_000)

    client.send(frame)
    await client.writer.drain()
    client.writer.close()

    await until(lambda: world.brokers[0].frames == [frame])


# ------------------------------------------------------------------ bounds


async def test_connections_over_the_limit_are_closed_with_a_reason(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(limits=GatewayLimits(connections_max=2, drain_ms=100))
    good = [await world.connect() for _ in range(2)]
    for client in good:
        assert await client.ask(heartbeat()) == heartbeat_answer()

    refused = await world.connect()

    assert await refused.rest() == b""
    assert "all 2 connections are in use (limits.connections_max)" in caplog.text
    assert await good[0].ask(heartbeat()) == heartbeat_answer()
    good[1].writer.close()
    await until(lambda: world.open_connections == 1)
    assert await (await world.connect()).ask(heartbeat()) == heartbeat_answer()


async def test_who_is_silent_makes_room_for_who_has_something_to_say(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(limits=GatewayLimits(connections_max=2, drain_ms=100))
    talking = await world.connect()
    assert await talking.ask(heartbeat()) == heartbeat_answer()
    silent_one = await world.connect()
    await until(lambda: world.open_connections == 2)

    newcomer = await world.connect()

    assert await newcomer.ask(heartbeat()) == heartbeat_answer()
    assert await silent_one.rest() == b""
    assert await talking.ask(heartbeat()) == heartbeat_answer()
    assert "it had asked nothing yet when all connections were in use" in caplog.text


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
    world = await worlds(limits=GatewayLimits(frame_ms=10, drain_ms=100))
    client = await world.connect()
    await client.ask(heartbeat())

    for _ in range(4):
        world.gateway._sweep(world.gateway.loop.time() * 1000)
        await asyncio.sleep(0.03)

    assert await client.ask(heartbeat()) == heartbeat_answer()


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
    assert "This is TLS: the gateway takes security.protocol PLAINTEXT" in caplog.text


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
    await asyncio.sleep(0.05)
    # By type(), as isinstance would ask a weak proxy of some library for a referent long gone.
    left = [found for found in gc.get_objects() if type(found) in (ClientSide, UpstreamSide)]
    assert left == []


async def test_a_client_that_does_not_read_stops_its_broker_from_being_read(worlds: Worlds) -> None:
    world = await worlds(limits=GatewayLimits(write_buffer_bytes=65_536, drain_ms=100))
    world.brokers[0].answer_bytes = 1_000_000
    client = await world.connect()
    client.writer.transport.pause_reading()
    for number in range(60):
        client.send(fetch(correlation=number))
    (side,) = world.gateway._clients
    await until(lambda: side.upstream is not None and side.upstream._paused)

    assert side.transport.get_write_buffer_size() < 2_000_000
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
    (side,) = world.gateway._clients
    await until(lambda: side._held & 2)

    assert side.upstream.transport.get_write_buffer_size() < 2_000_000
    world.brokers[0].gate.set()

    for _ in range(40):
        assert await client.frame() == produce_answer()


async def test_requests_in_flight_are_bounded_and_all_are_answered(worlds: Worlds) -> None:
    world = await worlds(connection=ConnectionSettings(in_flight_max=10))
    world.brokers[0].gate.clear()
    client = await world.connect()
    client.send(heartbeat(0))
    await until(lambda: world.open_connections == 1)
    (side,) = world.gateway._clients
    await until(lambda: side.upstream is not None)
    for number in range(1, 200):
        client.send(heartbeat(number))
        await client.writer.drain()
        await asyncio.sleep(0)
    await until(lambda: side._held)

    world.brokers[0].gate.set()

    got = [await client.frame() for _ in range(200)]
    assert got == [heartbeat_answer(number) for number in range(200)]


# ------------------------------------------------------------------ throttling


async def test_a_throttled_client_is_answered_at_once_and_then_not_read(worlds: Worlds) -> None:
    world = await worlds(table=quotas(PRODUCE=100_000))
    client = await world.connect()
    frame = produce(records=b"r" * 1_050_000)

    told = await client.ask(frame)
    throttle_ms = throttle_of(told, 0, 9)
    started_s = world.gateway.loop.time()
    assert await client.ask(heartbeat(2)) == heartbeat_answer(2)

    assert 300 < throttle_ms < 2_000
    assert world.gateway.loop.time() - started_s >= throttle_ms / 1000 - 0.1
    (row,) = world.sink.rows
    assert row.throttle_ms == throttle_ms


async def test_the_cap_of_a_mute_lets_one_request_pass_at_a_time(worlds: Worlds) -> None:
    world = await worlds(
        table=quotas(FETCH=10_000), limits=GatewayLimits(mute_ms_max=100, drain_ms=100)
    )
    world.brokers[0].answer_bytes = 5_000_000
    client = await world.connect()
    await client.ask(fetch())

    first = await client.ask(fetch(correlation=2))
    second = await client.ask(fetch(correlation=3))
    beat = await client.ask(heartbeat(4))

    assert decoded(first, 1, 12).responses == decoded(second, 1, 12).responses == ()
    assert throttle_of(first, 1, 12) > throttle_of(second, 1, 12) > 100_000
    assert beat == heartbeat_answer(4)
    assert len(world.brokers[0].frames) == 2


async def test_who_waits_for_the_budget_goes_on_when_another_is_done(worlds: Worlds) -> None:
    world = await worlds(limits=GatewayLimits(announced_bytes_max=150_000, drain_ms=100))
    first, second = await world.connect(), await world.connect()
    large = produce(records=b"r" * 100_000)
    first.send(large[:20_000])
    await until(lambda: world.shared.budgets.used_bytes > 0)
    second.send(large[:20_000])
    await until(lambda: any(side._held for side in world.gateway._clients))
    second.send(large[20_000:])
    await asyncio.sleep(0.05)
    assert world.brokers[0].frames == []

    first.send(large[20_000:])

    assert await first.frame() == produce_answer()
    assert await second.frame() == produce_answer()
    assert world.shared.budgets.used_bytes == 0


async def test_who_announces_much_and_stands_still_makes_room_for_others(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(
        limits=GatewayLimits(announced_bytes_max=150_000, frame_ms=60_000, drain_ms=100)
    )
    still, other = await world.connect(), await world.connect()
    large = produce(records=b"r" * 100_000)
    still.send(large[:20_000])
    await until(lambda: world.shared.budgets.used_bytes > 0)
    other.send(large[:20_000])
    await until(lambda: any(side._held for side in world.gateway._clients))
    other.send(large[20_000:])

    for _ in range(3):
        world.gateway._sweep(world.gateway.loop.time() * 1000)

    assert await other.frame() == produce_answer()
    assert await still.rest() == b""
    assert "stands still at 19996 bytes, and others wait for room" in caplog.text


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
    world.shared.budgets.of(world.brokers[0].address).add(150_000)
    client = await world.connect()

    client.send(produce(records=b"r" * 100_000)[:20_000])

    assert await client.rest() == b""
    assert "no room for its request in" in caplog.text


# ------------------------------------------------------------------ the end


async def test_draining_answers_what_is_in_flight_and_takes_no_more(worlds: Worlds) -> None:
    world = await worlds(limits=GatewayLimits(drain_ms=8_000))
    idle, busy = await world.connect(), await world.connect()
    await idle.ask(heartbeat())
    world.brokers[0].gate.clear()
    busy.send(produce() + heartbeat(2))
    await until(lambda: sum(s.machine.in_flight_count for s in world.gateway._clients) == 2)

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
