"""Ends that lose nothing: on TCP and TLS, which can close one direction, and on asyncio's TLS, which cannot."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from tests.unit.gateway.world import (
    GATEWAY_HOST,
    Broker,
    Client,
    World,
    Worlds,
    heartbeat,
    heartbeat_answer,
    obliging,
    until,
)

from kvota.gateway import closing
from kvota.gateway.closing import close_when_written, half_close, leave_upstream, say_goodbye
from kvota.gateway.settings import GatewayLimits
from kvota.gateway.side import Side
from kvota.gateway.tls_transport import TlsTransport
from kvota.gateway.turns import Turns
from kvota.testing.frames import fetch, fetch_answer, produce, split
from kvota.tls.server_tls import ServerTls

CERTIFICATE = Path(__file__).parent / "tls" / "certificate.pem"
SERVER_TLS = ServerTls(certfile=CERTIFICATE, keyfile=CERTIFICATE.with_name("key.pem"))
LARGE = 5_000_000


def server_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, CERTIFICATE.with_name("key.pem"))
    return context


def client_tls() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(CERTIFICATE))


@pytest.fixture(params=["TCP", "asyncio's TLS", "TLS"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# ------------------------------------------------------------------ a gateway whose clients use TLS


async def connect_by_tls(world: World) -> Client:
    client = await world.connect_by_tls(client_tls())
    await until(lambda: world.open_connections == 1)
    return client


async def test_a_tls_client_is_drained_in_order(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(limits=GatewayLimits(drain_ms=10_000), tls=SERVER_TLS)
    client = await connect_by_tls(world)
    assert await client.ask(heartbeat(1)) == heartbeat_answer(1)
    may_answer = asyncio.Event()

    async def patient(broker: Broker, frame: bytes) -> bytes:
        await may_answer.wait()
        return await obliging(broker, frame)

    world.brokers[0].behaviour = patient
    client.send(heartbeat(2))
    await until(lambda: world.drivers[0].machine.due_count == 1)

    ended = world.stop_soon()
    await asyncio.sleep(0.05)
    may_answer.set()

    assert await client.reader.read() == heartbeat_answer(2)
    await asyncio.wait_for(ended, 5)
    assert caplog.messages == []


async def test_a_tls_client_that_reads_slowly_gets_all_of_its_last_answer(worlds: Worlds) -> None:
    world = await worlds(limits=GatewayLimits(drain_ms=8_000), tls=SERVER_TLS)
    world.brokers[0].answer_bytes = LARGE
    client = await connect_by_tls(world)
    await client.ask(heartbeat())
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    client.send(fetch())
    await until(lambda: len(world.brokers[0].frames) == 2)
    await asyncio.sleep(0.1)

    ended = world.stop_soon()
    await asyncio.sleep(0.2)
    client.writer.transport.resume_reading()  # type: ignore[attr-defined]

    assert await client.reader.read() == fetch_answer(records=b"f" * LARGE)
    await asyncio.wait_for(ended, 8)


async def test_a_tls_client_that_is_not_read_any_more_is_closed_in_order(worlds: Worlds) -> None:
    world = await worlds(limits=GatewayLimits(drain_ms=10_000), tls=SERVER_TLS)
    client = await connect_by_tls(world)
    assert await client.ask(heartbeat(1)) == heartbeat_answer(1)

    ended = world.stop_soon()
    client.send(heartbeat(2) * 1_000)

    answers = split(await client.reader.read())  # raises where the connection is reset
    assert set(answers) <= {heartbeat_answer(2)}
    await asyncio.wait_for(ended, 5)


async def test_a_tls_client_that_ends_takes_its_broker_along(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(tls=SERVER_TLS)
    client = await connect_by_tls(world)
    await client.ask(heartbeat())

    client.writer.close()

    await until(lambda: world.open_connections == 0 and not world.brokers[0]._writers)
    assert caplog.messages == []


# ------------------------------------------------------------------ one transport


class Peer(asyncio.Protocol):
    """The other end: keeps what it gets, and when it is told that no more comes."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.ended = asyncio.Event()
        self.lost = asyncio.Event()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> bool:
        self.ended.set()
        return self.transport.can_write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


class Here(Side):
    """A side that knows when it is over."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = asyncio.Event()
        self.received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.forget_linger()
        self.lost.set()


class Agreed:
    """Hears when TLS has begun."""

    def __init__(self) -> None:
        self.is_so = asyncio.Event()

    def secured(self, _tls: TlsTransport) -> None:
        self.is_so.set()

    def tls_failed(self, tls: TlsTransport, _error: Exception) -> None:
        tls.abort()


def in_our_tls(side: asyncio.Protocol, upper: Agreed, *, is_server: bool) -> TlsTransport:
    wrap = (
        partial(server_tls().wrap_bio, server_side=True)
        if is_server
        else partial(client_tls().wrap_bio, server_hostname="localhost")
    )
    turns = Turns(asyncio.get_running_loop())
    return TlsTransport(upper, wrap, turns=turns, handshake_s=5, protocol=side)


@pytest.fixture
async def ends(kind: str) -> AsyncIterator[tuple[Here, Peer]]:
    loop = asyncio.get_running_loop()
    peer, here = Peer(), Here()
    if kind == "TLS":
        agreed = Agreed()
        server = await loop.create_server(
            lambda: in_our_tls(peer, Agreed(), is_server=True), GATEWAY_HOST, 0
        )
        await loop.create_connection(
            lambda: in_our_tls(here, agreed, is_server=False),
            *server.sockets[0].getsockname()[:2],
        )
        await agreed.is_so.wait()
    else:
        with_tls = kind != "TCP"
        server = await loop.create_server(
            lambda: peer, GATEWAY_HOST, 0, ssl=server_tls() if with_tls else None
        )
        await loop.create_connection(
            lambda: here,
            *server.sockets[0].getsockname()[:2],
            ssl=client_tls() if with_tls else None,
        )
    await until(lambda: hasattr(peer, "transport"))
    yield here, peer
    server.close()
    for transport in (here.transport, peer.transport):
        transport.abort()
    await asyncio.sleep(0.01)


async def test_what_was_written_arrives_before_the_close(ends: tuple[Here, Peer]) -> None:
    here, peer = ends
    here.transport.write(b"x" * LARGE)

    close_when_written(here, asyncio.get_running_loop())

    await asyncio.wait_for(here.lost.wait(), 5)
    await until(lambda: len(peer.received) == LARGE)
    assert here.linger is None


async def test_who_never_reads_is_aborted_in_the_end(
    ends: tuple[Here, Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "LINGER_S", 0.2)
    here, peer = ends
    peer.transport.pause_reading()
    here.transport.write(b"x" * 4 * LARGE)

    close_when_written(here, asyncio.get_running_loop())
    await asyncio.sleep(0.05)
    assert not here.lost.is_set()

    await asyncio.wait_for(here.lost.wait(), 5)


async def test_who_does_not_even_hear_of_the_end_is_aborted_too(
    ends: tuple[Here, Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "LINGER_S", 0.2)
    here, peer = ends
    peer.transport.pause_reading()
    here.transport.write(b"x" * 1_000)

    close_when_written(here, asyncio.get_running_loop())

    await asyncio.wait_for(here.lost.wait(), 5)
    assert here.linger is None


async def test_a_goodbye_reads_past_what_still_comes(ends: tuple[Here, Peer]) -> None:
    here, peer = ends
    here.pause()
    here.transport.write(b"last")
    peer.transport.write(b"unheard" * 1_000)

    say_goodbye(here, asyncio.get_running_loop())
    await asyncio.wait_for(peer.ended.wait(), 5)
    peer.transport.close()

    await asyncio.wait_for(here.lost.wait(), 5)
    assert peer.received == b"last"
    assert here.received == b""
    assert here.linger is None


@pytest.mark.parametrize("kind", ["TCP", "TLS"], indirect=True)
async def test_a_client_that_does_not_close_after_the_goodbye_is_closed(
    ends: tuple[Here, Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "GOODBYE_S", 0.05)
    here, peer = ends

    say_goodbye(here, asyncio.get_running_loop())

    await asyncio.wait_for(peer.ended.wait(), 5)
    await asyncio.wait_for(here.lost.wait(), 5)


async def test_a_broker_that_is_left_gets_all_that_was_forwarded(ends: tuple[Here, Peer]) -> None:
    here, peer = ends
    here.transport.write(b"x" * LARGE)

    leave_upstream(here, asyncio.get_running_loop(), is_inside_frame=False)
    leave_upstream(here, asyncio.get_running_loop(), is_inside_frame=False)

    await until(lambda: len(peer.received) == LARGE)
    await asyncio.wait_for(here.lost.wait(), 5)


async def test_a_broker_that_is_left_inside_a_frame_closes_first_where_it_can(
    ends: tuple[Here, Peer],
) -> None:
    here, peer = ends
    here.pause()
    can_half_close = here.transport.can_write_eof()

    leave_upstream(here, asyncio.get_running_loop(), is_inside_frame=True)

    await asyncio.wait_for(peer.ended.wait(), 5)
    if can_half_close:
        await asyncio.sleep(0.05)
        assert not here.lost.is_set()
    else:
        await asyncio.wait_for(here.lost.wait(), 10)
    peer.transport.close()
    await asyncio.wait_for(here.lost.wait(), 5)


async def test_a_half_close_is_refused_where_there_is_none(ends: tuple[Here, Peer]) -> None:
    here, peer = ends

    assert half_close(here) is here.transport.can_write_eof()
    peer.transport.write(b"still heard")

    await until(lambda: here.received == b"still heard")


async def test_a_client_gone_in_the_middle_of_a_frame_ends_with_its_broker(worlds: Worlds) -> None:
    world = await worlds()
    client = await world.connect()
    client.send(produce(records=b"r" * 100_000)[:50_000])
    await until(lambda: world.drivers and world.drivers[0].upstream)

    client.writer.transport.abort()  # type: ignore[attr-defined]

    await until(lambda: world.open_connections == 0 and not world.brokers[0]._writers)
    assert world.shared.budgets.used_bytes == 0
