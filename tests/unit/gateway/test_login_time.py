"""Who has to log in and does not, or stops in the middle of it, is not waited for for ever."""

import asyncio
import ssl
from ipaddress import ip_network
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.gateway.world import (
    GATEWAY_HOST,
    Broker,
    World,
    Worlds,
    heartbeat,
    heartbeat_answer,
    obliging,
    until,
)
from tests.unit.wire.test_proxy_protocol import V4, head

from kvota.gateway.settings import GatewayLimits
from kvota.testing.frames import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    answer,
    request,
)
from kvota.tls.server_tls import ServerTls

TLS = Path(__file__).parent / "tls"
SHORT = GatewayLimits(login_ms=100, drain_ms=100)
HANDSHAKE = request(SASL_HANDSHAKE, 1, mechanism="PLAIN")
TOKEN = request(SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0alice-secret")


async def secured(broker: Broker, frame: bytes) -> bytes:
    """Lets anybody log in."""
    key, version, correlation = frame[5], frame[7], int.from_bytes(frame[8:12], "big")
    if key in {SASL_HANDSHAKE, SASL_AUTHENTICATE, API_VERSIONS}:
        code = ErrorCode(0)
        return answer(key, version, correlation=correlation, throttle_ms=None, error_code=code)
    return await obliging(broker, frame)


async def sweeps(world: World) -> None:
    for _ in range(4):
        world.sweep()
        await asyncio.sleep(0.05)


async def test_who_does_not_log_in_in_time_is_closed_with_a_reason(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(behaviour=secured, limits=SHORT)
    world.shared.asks_for_logins = True
    silent = await world.connect()
    await silent.ask(request(API_VERSIONS, 0))

    await sweeps(world)

    assert await silent.rest() == b""
    assert "no login in 100 ms (limits.login_time)" in caplog.text


@pytest.mark.parametrize("again", [False, True])
async def test_half_a_login_is_not_waited_for_for_ever(
    worlds: Worlds, caplog: pytest.LogCaptureFixture, again: bool
) -> None:
    world = await worlds(behaviour=secured, limits=SHORT)
    client = await world.connect()
    if again:
        await client.ask(HANDSHAKE)
        await client.ask(TOKEN)
        await client.ask(heartbeat())
    await client.ask(HANDSHAKE)

    await sweeps(world)

    assert await client.rest() == b""
    assert "no login in 100 ms (limits.login_time)" in caplog.text


async def test_who_has_logged_in_may_be_silent_and_so_may_all_where_nobody_has(
    worlds: Worlds,
) -> None:
    world = await worlds(behaviour=secured, limits=SHORT)
    nobody = await world.connect()
    assert await nobody.ask(heartbeat()) == heartbeat_answer()
    await sweeps(world)
    assert await nobody.ask(heartbeat()) == heartbeat_answer()
    client = await world.connect()
    await client.ask(HANDSHAKE)
    await client.ask(TOKEN)

    await sweeps(world)

    assert await client.ask(heartbeat()) == heartbeat_answer()


async def test_of_all_that_comes_before_a_login_nothing_gives_a_place_more_time(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    """With what a balancer says no place is taken yet; the time begins with the place, so with a TLS handshake."""
    server = ServerTls(certfile=TLS / "certificate.pem", keyfile=TLS / "key.pem")
    limits = GatewayLimits(login_ms=10_000, drain_ms=100)
    world = await worlds(
        behaviour=secured, limits=limits, tls=server, proxied_by=(ip_network("127.0.0.1"),)
    )
    world.shared.asks_for_logins = True
    now_ms, sweep = asyncio.get_running_loop().time() * 1000, world.gateway._slow_senders.sweep
    said = head(0x21, 0x11, V4)
    reader, writer = await asyncio.open_connection(GATEWAY_HOST, world.tls_port)
    writer.write(said[:10])
    await asyncio.sleep(0.05)
    assert world.open_connections == 0

    writer.write(said[10:])
    await until(lambda: world.open_connections == 1)
    sweep(now_ms)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    await writer.start_tls(context)
    sweep(now_ms + 4_000)
    writer.write(HANDSHAKE)
    await reader.readexactly(4)
    sweep(now_ms + 9_999)
    assert world.open_connections == 1

    sweep(now_ms + 10_000)

    await asyncio.wait_for(reader.read(), 5)
    await until(lambda: world.open_connections == 0)
    assert "no login in 10000 ms (limits.login_time)" in caplog.text
    writer.close()
