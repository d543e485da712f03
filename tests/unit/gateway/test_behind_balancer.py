"""Behind a balancer a client is where the balancer says it is, and only trusted ones may say so."""

import asyncio
import socket
import ssl
from ipaddress import ip_network
from pathlib import Path

import pytest
from tests.unit.gateway.world import (
    BALANCER_HOST,
    GATEWAY_HOST,
    Client,
    Worlds,
    heartbeat,
    heartbeat_answer,
    until,
)
from tests.unit.wire.test_proxy_protocol import V4, V6, head

from kvota.gateway.settings import GatewayLimits
from kvota.tls.client_tls import Tls
from kvota.tls.server_tls import ServerTls
from kvota.wire.proxy_protocol import SIGNATURE, read_proxy_head

TRUSTED = (ip_network("127.0.0.1"), ip_network("127.0.0.16/28"))
FROM_4, FROM_6, ITS_OWN = head(0x21, 0x11, V4), head(0x21, 0x21, V6), head(0x20, 0, b"")


async def served(client: Client, *parts: bytes) -> bytes:
    for part in parts:
        client.send(part)
        await asyncio.sleep(0.01)
    return await asyncio.wait_for(client.frame(), 10)


@pytest.mark.parametrize(
    ("said", "host"),
    [(FROM_4, "192.0.2.7"), (FROM_6, "2001:db8::7"), (ITS_OWN, "127.0.0.1")],
)
async def test_a_client_is_where_the_balancer_says(worlds: Worlds, said: bytes, host: str) -> None:
    world = await worlds(proxied_by=TRUSTED)
    at_once, in_parts = await world.connect(), await world.connect()

    assert await served(at_once, said + heartbeat()) == heartbeat_answer()
    assert (
        await served(in_parts, said[:5], said[5:20], said[20:], heartbeat()) == heartbeat_answer()
    )

    assert [driver.host for driver in world.drivers] == [host] * 2
    assert [driver.machine.caller.client_host for driver in world.drivers] == [host] * 2


@pytest.mark.parametrize("is_tls", [False, True])
async def test_what_comes_with_the_head_is_read_where_little_is_read_at_a_time(
    worlds: Worlds, *, is_tls: bool
) -> None:
    folder = Path(__file__).parent / "tls"
    tls = ServerTls(certfile=folder / "certificate.pem", keyfile=folder / "key.pem")
    world = await worlds(proxied_by=TRUSTED, tls=tls)
    world.gateway._backlog.is_long = True
    if not is_tls:
        assert await served(await world.connect(), FROM_4 + heartbeat()) == heartbeat_answer()
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    reader, writer = await asyncio.open_connection("127.0.0.1", world.tls_port)
    writer.write(FROM_4 + outgoing.read())  # in one segment

    assert (
        await asyncio.wait_for(reader.read(1), 10)
    ) == b"\x16"  # the server's part of the handshake
    writer.close()


async def test_an_address_has_its_own_connections_behind_a_balancer(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(
        proxied_by=TRUSTED, limits=GatewayLimits(connections_per_ip_max=1, drain_ms=100)
    )
    first, second, other = [await world.connect() for _ in range(3)]
    assert await served(first, FROM_4 + heartbeat()) == heartbeat_answer()

    second.send(FROM_4 + heartbeat())
    assert await asyncio.wait_for(second.rest(), 10) == b""
    assert await served(other, FROM_6 + heartbeat()) == heartbeat_answer()

    assert "a connection from 192.0.2.7 was refused" in caplog.text


async def test_the_head_comes_before_tls(worlds: Worlds) -> None:
    folder = Path(__file__).parent / "tls"
    tls = ServerTls(certfile=folder / "certificate.pem", keyfile=folder / "key.pem")
    world = await worlds(proxied_by=TRUSTED, tls=tls)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", world.tls_port)
    writer.write(FROM_4)
    await writer.start_tls(context)

    assert await served(Client(reader, writer), heartbeat()) == heartbeat_answer()

    assert [driver.host for driver in world.drivers] == ["192.0.2.7"]
    writer.close()


async def test_who_is_not_trusted_is_refused_whatever_it_says(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(proxied_by=TRUSTED)
    stranger = await world.connect(host=BALANCER_HOST)
    stranger.send(FROM_4 + heartbeat())

    assert await asyncio.wait_for(stranger.rest(), 10) == b""

    assert "may say whence clients come (gateway.proxy_protocol_from)" in caplog.text
    assert world.brokers[0].frames == []
    trusted = await world.connect(host="127.0.0.17")
    assert await served(trusted, FROM_4 + heartbeat()) == heartbeat_answer()


@pytest.mark.parametrize(
    "said", [heartbeat(), b"PROXY TCP4 192.0.2.7 10.0.0.1 51000 9192\r\n" + heartbeat()]
)
async def test_who_says_nothing_of_the_kind_is_refused_with_a_reason(
    worlds: Worlds, caplog: pytest.LogCaptureFixture, said: bytes
) -> None:
    world = await worlds(proxied_by=TRUSTED)
    client = await world.connect()
    client.send(said)

    assert await asyncio.wait_for(client.rest(), 10) == b""

    assert "no head of the PROXY protocol, version 2, comes first" in caplog.text
    assert world.open_connections == 0


async def test_half_a_head_is_not_waited_for_for_ever(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    limits = GatewayLimits(tls_handshake_ms=100, drain_ms=100)
    world = await worlds(proxied_by=TRUSTED, limits=limits)
    client = await world.connect()
    client.send(FROM_4[:-1])

    assert await asyncio.wait_for(client.rest(), 10) == b""

    assert "no head of the PROXY protocol in 0.1 s" in caplog.text


async def test_a_balancer_that_only_looks_is_no_news(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(proxied_by=TRUSTED)
    for said in (b"", FROM_4[:7], ITS_OWN):
        client = await world.connect()
        client.send(said)
        client.writer.close()
    await asyncio.sleep(0.1)

    await until(lambda: world.open_connections == 0)
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


# ------------------------------------------------------------------ the other way


async def test_what_is_upstream_is_told_where_each_client_is(worlds: Worlds) -> None:
    reader = await worlds(proxied_by=TRUSTED)
    world = await worlds(behind=reader, tells_clients=True, knows_brokers=False)
    client = await world.connect(host="127.0.0.9")

    assert await served(client, heartbeat()) == heartbeat_answer()
    assert await served(client, heartbeat()) == heartbeat_answer()

    (told,) = reader.drivers
    assert told.peer == world.drivers[0].peer
    assert told.host == "127.0.0.9"


async def test_what_is_upstream_is_told_of_clients_that_a_balancer_tells_of(worlds: Worlds) -> None:
    reader = await worlds(proxied_by=TRUSTED)
    world = await worlds(behind=reader, proxied_by=TRUSTED, tells_clients=True, knows_brokers=False)

    hosts = []
    for said in (FROM_4, FROM_6, ITS_OWN):
        client = await world.connect()
        assert await served(client, said + heartbeat()) == heartbeat_answer()
        hosts.append(reader.drivers[-1].host)

    assert hosts == ["192.0.2.7", "2001:db8::7", "127.0.0.1"]


async def test_upstream_it_is_said_before_tls(worlds: Worlds) -> None:
    folder = Path(__file__).parent / "tls"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    unchecked = Tls(cafile=folder / "certificate.pem", check_hostname=False)
    world = await worlds(tells_clients=True, started=(), upstream_tls=unchecked)
    listening = socket.create_server(world.brokers[0].address)
    listening.settimeout(5)

    def serve() -> bytes:
        """The gateway's first look says nothing and goes; a client's connection says whose it is."""
        while True:
            connection, _ = listening.accept()
            connection.settimeout(5)
            said = connection.recv(28)
            if said.startswith(SIGNATURE):
                break
            connection.close()
        with context.wrap_socket(connection, server_side=True) as tls:
            tls.recv(1_000)
            tls.sendall(heartbeat_answer())
        return said

    with listening:
        serving = asyncio.create_task(asyncio.to_thread(serve))
        client = await world.connect(host="127.0.0.9")
        assert await served(client, heartbeat()) == heartbeat_answer()
        head = read_proxy_head(await serving)

    assert head is not None
    assert head.client == client.writer.get_extra_info("sockname")


async def test_a_gateway_that_looks_whether_brokers_are_there_says_so_as_its_own_before_tls(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    """Else what is upstream would refuse it, and the gateway would not be ready before its first client."""
    caplog.set_level("INFO")
    folder = Path(__file__).parent / "tls"
    shown = ServerTls(certfile=folder / "certificate.pem", keyfile=folder / "key.pem")
    reader = await worlds(proxied_by=TRUSTED, tls=shown)
    unchecked = Tls(cafile=folder / "certificate.pem", check_hostname=False)
    world = await worlds(tells_clients=True, upstream_tls=unchecked, knows_brokers=False)
    world.gateway._dialler._servers = ((GATEWAY_HOST, reader.tls_port),)

    await world.gateway.look_upstream()

    assert f"broker {GATEWAY_HOST}:{reader.tls_port} can be reached" in caplog.text
    assert world.gateway._dialler.reaches_brokers
    assert [one.getMessage() for one in caplog.records if one.levelname == "WARNING"] == []
