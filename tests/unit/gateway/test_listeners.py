"""The gateway's ports: which are opened, and what is said where one cannot be."""

import asyncio
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import cast

import pytest
from tests.unit.gateway.world import GATEWAY_HOST

from kvota.app.gateway_process import free_port_range
from kvota.gateway.listeners import Entrance, Listeners
from kvota.gateway.receive_buffers import RECEIVE_BUFFER_BYTES
from kvota.gateway.settings import GatewaySettings
from kvota.model.errors import UnreachableError
from kvota.session.topology import Advertised

FLOOD = 500


class Greeting(asyncio.Protocol):
    """Says by which port one has come."""

    def __init__(self, entrance: Entrance) -> None:
        self._node_id = entrance.node_id

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.WriteTransport", transport)
        transport.write(str(self._node_id).encode())
        transport.close()


@pytest.fixture
def settings() -> GatewaySettings:
    first_port = free_port_range(4, GATEWAY_HOST)
    return GatewaySettings(
        host=GATEWAY_HOST,
        bootstrap_port=first_port,
        advertised=Advertised(
            host=GATEWAY_HOST, node_port_base=first_port, node_id_min=1, node_id_max=3
        ),
        upstream=(("nowhere.example", 9092),),
    )


async def greeting_at(port: int) -> bytes:
    reader, writer = await asyncio.open_connection(GATEWAY_HOST, port)
    greeting = await reader.read()
    writer.close()
    return greeting


async def test_each_port_is_for_its_node(settings: GatewaySettings) -> None:
    listeners = Listeners(settings)

    await listeners.open(Greeting)

    ports = range(settings.bootstrap_port, settings.bootstrap_port + 4)
    assert [await greeting_at(port) for port in ports] == [b"None", b"1", b"2", b"3"]
    listeners.close()
    with pytest.raises(OSError, match=r"onnect"):
        await greeting_at(settings.bootstrap_port)


@pytest.mark.parametrize(
    ("offset", "what", "setting"),
    [
        (0, "the bootstrap port", "gateway.bootstrap_port"),
        (2, "node 2's port", "gateway.node_port_base, or fewer gateway.node_ids"),
    ],
)
async def test_a_port_in_use_is_named_with_its_setting_and_the_others_are_freed(
    settings: GatewaySettings, offset: int, what: str, setting: str
) -> None:
    port = settings.bootstrap_port + offset
    with (
        closing(socket.create_server((GATEWAY_HOST, port))),
        pytest.raises(UnreachableError) as caught,
    ):
        await Listeners(settings).open(Greeting)

    assert str(caught.value) == (
        f"cannot listen on {GATEWAY_HOST}:{port} ({what}): Address already in use. End what uses it, "
        f"or choose another: {setting}."
    )
    again = Listeners(settings)
    await again.open(Greeting)
    again.close()


class Measured(asyncio.Protocol):
    """Says how much the system keeps of what is not read."""

    def __init__(self, _entrance: Entrance) -> None:
        pass

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connected = transport.get_extra_info("socket")
        kept_bytes = connected.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        transport = cast("asyncio.WriteTransport", transport)
        transport.write(str(kept_bytes).encode())
        transport.close()


async def test_of_what_is_not_read_the_system_keeps_little(settings: GatewaySettings) -> None:
    listeners = Listeners(settings)
    await listeners.open(Measured)

    kept_bytes = int(await greeting_at(settings.bootstrap_port))

    listeners.close()
    assert kept_bytes <= 2 * RECEIVE_BUFFER_BYTES


async def test_a_flood_of_connections_is_let_in_some_at_a_time(settings: GatewaySettings) -> None:
    let_in = 0

    class Counted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            nonlocal let_in
            let_in += 1

    listeners = Listeners(settings)
    await listeners.open(lambda _entrance: Counted())
    with ExitStack() as stack:
        for _ in range(FLOOD):  # the system takes them; the loop stands still
            address = (GATEWAY_HOST, settings.bootstrap_port)
            stack.enter_context(socket.create_connection(address, timeout=5))

        in_each_turn = []
        while let_in < FLOOD:
            before = let_in
            await asyncio.sleep(0)
            in_each_turn.append(let_in - before)

    listeners.close()
    assert max(in_each_turn) <= 32  # some ms
    # Not one in each turn, either: who has come last would wait for hundreds.
    assert len(in_each_turn) <= FLOOD / 4


async def test_answers_are_sent_at_once(settings: GatewaySettings) -> None:
    """Without Nagle's algorithm: a small answer does not wait for the acknowledgement of the one before."""
    delays: asyncio.Queue[int] = asyncio.Queue()

    class Asked(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            connected = transport.get_extra_info("socket")
            delays.put_nowait(connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    listeners = Listeners(settings)
    await listeners.open(lambda _entrance: Asked())
    _reader, writer = await asyncio.open_connection(GATEWAY_HOST, settings.bootstrap_port)

    assert await delays.get() != 0

    writer.close()
    listeners.close()


@contextmanager
def no_more_files() -> Iterator[None]:
    """What is open stays open."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    next_one = os.dup(0)
    os.close(next_one)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_one, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_where_there_are_no_more_files_newcomers_come_in_when_there_are_again(
    settings: GatewaySettings, caplog: pytest.LogCaptureFixture
) -> None:
    listeners = Listeners(settings)
    await listeners.open(Greeting)
    with ExitStack() as stack:
        waiting = stack.enter_context(socket.socket())
        waiting.settimeout(0)
        loop = asyncio.get_running_loop()
        with no_more_files():
            await loop.sock_connect(waiting, (GATEWAY_HOST, settings.bootstrap_port))
            while not caplog.records:  # noqa: ASYNC110  (no event of ours)
                await asyncio.sleep(0.01)

        assert await loop.sock_recv(waiting, 100) == b"None"

    listeners.close()
    (said,) = caplog.messages
    assert said.startswith("no connection can be let in at the moment: ")
