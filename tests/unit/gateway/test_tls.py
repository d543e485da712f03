"""TLS at the gateway's listeners and on its way to brokers: what passes, who one is, and what is closed with a reason."""

import asyncio
import contextlib
import os
import ssl
import struct
import time
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from tests.unit.gateway.world import (
    BROKER_HOST,
    GATEWAY_HOST,
    Client,
    Worlds,
    heartbeat,
    heartbeat_answer,
    until,
)

from kvota.gateway.certificate_in_force import watch_certificates
from kvota.gateway.closing import has_unread
from kvota.gateway.settings import ConnectionRateSettings, GatewayLimits
from kvota.gateway.tls_transport import TlsTransport
from kvota.localkafka.cluster.certificates import Authority, Issued
from kvota.model.client_quotas import ClientQuotas
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.model.quota_window import QuotaWindow
from kvota.testing.frames import METADATA, fetch, fetch_answer, produce, request
from kvota.tls.client_tls import Tls
from kvota.tls.pem import TlsSettingError
from kvota.tls.principal_mapping import PrincipalMapper
from kvota.tls.secret import Secret
from kvota.tls.server_tls import ClientAuth, ServerTls
from kvota.wire.apis import API_VERSIONS

LARGE = 3_000_000
METADATA_REQUEST = request(METADATA, 12)
TLS_1_2 = ssl.TLSVersion.TLSv1_2


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def server(authority: Authority) -> ServerTls:
    issued = authority.issue("gateway", hosts=["localhost", "*.kafka.example"])
    return ServerTls(
        certfile=issued.certificate, keyfile=issued.key, client_cafile=authority.certificate
    )


def trusting(authority: Authority, shown: Issued | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if shown is not None:
        context.load_cert_chain(shown.certificate, shown.key)
    return context


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


async def shaken_by_hand(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext
) -> tuple[ssl.SSLObject, ssl.MemoryBIO]:
    """A client whose records the test sends as it likes; its last of the handshake is still to be sent."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    while True:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            writer.write(outgoing.read())
            incoming.write(await reader.read(65_536))
        else:
            return tls, outgoing


def client_hello(context: ssl.SSLContext) -> bytes:
    """What a client begins its handshake with."""
    outgoing = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


# ------------------------------------------------------------------ what passes


@pytest.mark.parametrize("version", [TLS_1_2, ssl.TLSVersion.TLSv1_3])
async def test_requests_and_answers_pass_in_either_version(
    worlds: Worlds, authority: Authority, server: ServerTls, version: ssl.TLSVersion
) -> None:
    world = await worlds(tls=server)
    world.brokers[0].answer_bytes = LARGE
    context = trusting(authority)
    context.minimum_version = context.maximum_version = version
    client = await world.connect_by_tls(context)

    assert await client.ask(heartbeat(1)) == heartbeat_answer(1)
    assert await client.ask(fetch()) == fetch_answer(records=b"f" * LARGE)
    frame = produce(records=b"r" * LARGE)
    await client.ask(frame)

    assert world.brokers[0].frames[-1] == frame


async def test_plaintext_and_tls_are_served_at_once_each_with_its_own_addresses(
    worlds: Worlds, authority: Authority, server: ServerTls
) -> None:
    world = await worlds(tls=server)
    plain, by_tls = await world.connect(), await world.connect_by_tls(trusting(authority))

    inside = await plain.ask(METADATA_REQUEST)
    outside = await by_tls.ask(METADATA_REQUEST)

    assert struct.pack(">i", world.first_port + 2) in inside
    assert struct.pack(">i", world.tls_port + 2) in outside
    assert struct.pack(">i", world.first_port + 2) not in outside


async def test_what_nobody_reads_is_not_read(
    worlds: Worlds, authority: Authority, server: ServerTls
) -> None:
    world = await worlds(tls=server)
    world.brokers[0].gate.clear()
    client = await world.connect_by_tls(trusting(authority))
    frame = produce(records=b"r" * 40_000_000)
    client.send(frame)

    await asyncio.sleep(0.3)
    held = world.gateway._backlog.held_bytes
    world.brokers[0].gate.set()

    await asyncio.wait_for(client.frame(), 20)
    assert held < 4_000_000
    assert world.brokers[0].frames[-1] == frame


async def test_bytes_that_come_one_by_one_are_one_request(
    worlds: Worlds, authority: Authority, server: ServerTls
) -> None:
    world = await worlds(tls=server)
    client = await world.connect_by_tls(trusting(authority))

    for byte in heartbeat(1) * 40:
        client.send(bytes([byte]))  # a record each

    for _ in range(40):
        assert await client.frame() == heartbeat_answer(1)


async def test_what_waits_for_its_turn_stays_what_it_was_whatever_others_send_meanwhile(
    worlds: Worlds, authority: Authority, server: ServerTls
) -> None:
    """All connections are read into the same memory."""
    world = await worlds(tls=server)
    reader, writer = await asyncio.open_connection(GATEWAY_HOST, world.tls_port)
    tls, outgoing = await shaken_by_hand(reader, writer, trusting(authority))
    writer.write(outgoing.read())
    await until(lambda: world.drivers)
    transport = cast("TlsTransport", world.drivers[0].client.transport)
    await until(lambda: transport.is_secured)
    sent = [heartbeat(number) for number in range(400)]
    for one in sent:  # a record each: more than one turn's
        tls.write(one)
    records = outgoing.read()

    memory = transport.get_buffer(-1)
    memory[: len(records)] = records
    transport.buffer_updated(len(records))
    assert transport.unread_bytes
    memory[: len(records)] = bytes(len(records))

    await until(lambda: world.brokers[0].frames == sent)
    writer.close()


# ------------------------------------------------------------------ who one is


@pytest.mark.parametrize(
    ("rules", "name"),
    [("DEFAULT", "CN=orders"), ("RULE:^CN=(.*)$/$1/U,DEFAULT", "ORDERS")],
)
async def test_a_client_is_who_its_certificate_says(
    worlds: Worlds, authority: Authority, server: ServerTls, rules: str, name: str
) -> None:
    tls = replace(server, client_auth=ClientAuth.REQUIRED, mapper=PrincipalMapper(rules))
    world = await worlds(tls=tls)
    client = await world.connect_by_tls(trusting(authority, authority.issue("orders")))

    await client.ask(produce(records=b"r" * 1_000))

    assert [row.memo.user for row in world.sink.rows] == [name]


async def test_who_shows_no_certificate_is_anonymous_where_it_is_requested(
    worlds: Worlds, authority: Authority, server: ServerTls
) -> None:
    world = await worlds(tls=replace(server, client_auth=ClientAuth.REQUESTED))
    client = await world.connect_by_tls(trusting(authority))

    await client.ask(produce(records=b"r" * 1_000))

    assert [row.memo.user for row in world.sink.rows] == ["ANONYMOUS"]


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (None, "it shows no certificate"),
        ("expired", "certificate has expired"),
        ("foreign", "unable to get local issuer certificate"),
        ("self-signed", "self-signed certificate"),
        ("unruly", "no rule applies"),
    ],
)
async def test_who_cannot_be_taken_is_closed_with_a_reason(  # noqa: PLR0917
    worlds: Worlds,
    authority: Authority,
    server: ServerTls,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    shown: str | None,
    said: str,
) -> None:
    rules = PrincipalMapper("RULE:^CN=[^u].*$/known/")
    world = await worlds(tls=replace(server, client_auth=ClientAuth.REQUIRED, mapper=rules))
    issuer = Authority(tmp_path / "other", name="other") if shown == "foreign" else authority
    ways = {"is_expired": shown == "expired", "is_self_signed": shown == "self-signed"}
    issued = None if shown is None else issuer.issue(shown, **ways)
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        client = await world.connect_by_tls(trusting(authority, issued))
        await client.ask(heartbeat())
        pytest.fail("it was let in")

    await until(lambda: world.open_connections == 0)
    assert said in " ".join(warnings(caplog))
    assert world.brokers[0].connections == 0


# ------------------------------------------------------------------ what is no handshake


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (heartbeat(), "it speaks no TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "it speaks no TLS"),
        (b"\x17\x03\x03\x00\x05early", "TLS cannot be agreed on"),
        (b"\x16\x03\x01\xff\xff" + b"x" * 100, "TLS cannot be agreed on"),
        (b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", "TLS cannot be agreed on"),
    ],
    ids=["kafka", "http", "data before the handshake", "too long", "damaged"],
)
async def test_what_is_no_handshake_is_closed_with_a_reason(
    worlds: Worlds, server: ServerTls, caplog: pytest.LogCaptureFixture, sent: bytes, said: str
) -> None:
    world = await worlds(tls=server)
    reader, writer = await asyncio.open_connection(GATEWAY_HOST, world.tls_port)

    writer.write(sent)

    with contextlib.suppress(ConnectionError):
        await asyncio.wait_for(reader.read(), 5)
    await until(lambda: world.open_connections == 0)
    assert said in " ".join(warnings(caplog))
    writer.close()


async def test_half_a_handshake_is_not_waited_for_for_ever(
    worlds: Worlds, server: ServerTls, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(tls=server, limits=GatewayLimits(tls_handshake_ms=200, drain_ms=1_000))
    reader, writer = await asyncio.open_connection(GATEWAY_HOST, world.tls_port)
    writer.write(b"\x16\x03\x01\x02\x00\x01")

    assert await asyncio.wait_for(reader.read(), 5) == b""
    assert "no TLS handshake in 0.2 s (limits.tls_handshake_time)" in " ".join(warnings(caplog))
    writer.close()


async def test_a_handshake_that_is_left_while_its_turn_is_due_is_closed_in_order(
    worlds: Worlds, authority: Authority, server: ServerTls, caplog: pytest.LogCaptureFixture
) -> None:
    """As where the gateway drains: what the client has sent is not answered any more."""
    caplog.set_level("DEBUG")
    world = await worlds(tls=server)
    reader, writer = await asyncio.open_connection(GATEWAY_HOST, world.tls_port)
    await until(lambda: world.drivers)
    (side,) = [driver.client for driver in world.drivers]
    transport = cast("TlsTransport", side.transport)

    transport.data_received(client_hello(trusting(authority)))
    transport.write_eof()

    assert await asyncio.wait_for(reader.read(), 5) == b""
    await until(lambda: world.open_connections == 0)
    assert "Exception" not in caplog.text
    writer.close()


async def test_who_says_that_no_more_comes_behind_the_gateway_has_sent_nothing_damaged(
    worlds: Worlds, authority: Authority, server: ServerTls, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(tls=server)
    reader, writer = await asyncio.open_connection(GATEWAY_HOST, world.tls_port)
    tls, outgoing = await shaken_by_hand(reader, writer, trusting(authority))
    writer.write(outgoing.read())
    await until(lambda: world.drivers)
    (side,) = [driver.client for driver in world.drivers]
    await until(lambda: cast("TlsTransport", side.transport).is_secured)

    side.transport.write_eof()
    with contextlib.suppress(ssl.SSLError):
        tls.unwrap()
    writer.write(outgoing.read())

    await asyncio.wait_for(reader.read(), 5)
    await until(lambda: world.open_connections == 0)
    assert warnings(caplog) == []
    writer.close()


async def test_a_handshake_cut_at_any_byte_leaves_nothing(
    worlds: Worlds, authority: Authority, server: ServerTls, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(tls=server)
    hello = client_hello(trusting(authority))
    for cut in range(0, len(hello), 7):
        _, writer = await asyncio.open_connection(GATEWAY_HOST, world.tls_port)
        writer.write(hello[:cut])
        writer.write_eof()
        writer.close()

    await until(lambda: world.open_connections == 0)
    assert warnings(caplog) == []  # that somebody is gone is no news


async def test_a_request_cut_at_any_byte_of_its_records_is_not_forwarded_in_part(
    worlds: Worlds, authority: Authority, server: ServerTls
) -> None:
    """One that is whole is: what is cut is the connection, not TLS."""
    world = await worlds(tls=server)
    frame = produce(records=b"r" * 500)
    for cut in range(1, len(frame) + 60, 97):
        reader, writer = await asyncio.open_connection(GATEWAY_HOST, world.tls_port)
        tls, outgoing = await shaken_by_hand(reader, writer, trusting(authority))
        writer.write(outgoing.read())
        tls.write(frame)
        writer.write(outgoing.read()[:cut])
        writer.write_eof()
        await asyncio.wait_for(reader.read(), 5)
        writer.close()

    await until(lambda: world.open_connections == 0)
    assert {len(sent) for sent in world.brokers[0].frames} <= {len(frame)}
    assert world.shared.budgets.used_bytes == 0


@pytest.mark.parametrize("cut", [3, 40], ids=["in its head", "behind its head"])
async def test_who_ends_in_the_middle_of_a_record_is_said_where_all_is_said(
    worlds: Worlds,
    authority: Authority,
    server: ServerTls,
    caplog: pytest.LogCaptureFixture,
    cut: int,
) -> None:
    caplog.set_level("DEBUG")
    world = await worlds(tls=server)
    said = "its client has ended in the middle of a TLS record"
    for sent in (cut, None):  # the other one ends behind a whole record, without TLS's own end
        assert said not in caplog.text or sent is None
        reader, writer = await asyncio.open_connection(GATEWAY_HOST, world.tls_port)
        tls, outgoing = await shaken_by_hand(reader, writer, trusting(authority))
        writer.write(outgoing.read())
        tls.write(heartbeat())
        writer.write(outgoing.read()[:sent])
        writer.write_eof()
        await asyncio.wait_for(reader.read(), 5)
        writer.close()

    await until(lambda: world.open_connections == 0)
    assert caplog.text.count(said) == 1
    assert warnings(caplog) == []


async def test_a_damaged_record_ends_its_connection_with_a_reason(
    worlds: Worlds, authority: Authority, server: ServerTls, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(tls=server)
    client = await world.connect_by_tls(trusting(authority))
    await client.ask(heartbeat())
    raw = client.writer.get_extra_info("socket")

    os.write(raw.fileno(), b"\x17\x03\x03\x00\x20" + b"?" * 32)

    await until(lambda: world.open_connections == 0)
    assert "what it has sent is damaged" in " ".join(warnings(caplog))


@pytest.mark.parametrize("version", [TLS_1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_damaged_record_behind_what_the_gateway_answers_ends_its_connection_too(
    worlds: Worlds,
    authority: Authority,
    server: ServerTls,
    caplog: pytest.LogCaptureFixture,
    version: ssl.TLSVersion,
) -> None:
    """Nothing can be encrypted any more when that answer is made."""
    world = await worlds(tls=server)
    context = trusting(authority)
    context.minimum_version = context.maximum_version = version
    reader, writer = await asyncio.open_connection(GATEWAY_HOST, world.tls_port)
    tls, outgoing = await shaken_by_hand(reader, writer, context)
    strange = bytearray(request(API_VERSIONS, 0))
    strange[7] = 99  # a version that the gateway itself answers
    tls.write(strange)

    writer.write(outgoing.read() + b"\x17\x03\x03\x00\x20" + b"?" * 32)

    await until(lambda: world.open_connections == 0)
    assert "what it has sent is damaged" in " ".join(warnings(caplog))
    assert [one.getMessage() for one in caplog.records if one.levelname == "ERROR"] == []
    writer.close()


# ------------------------------------------------------------------ one port for all nodes


async def test_a_name_says_which_node_is_called(
    worlds: Worlds, authority: Authority, server: ServerTls, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(tls=server, brokers=2, node_host="broker-{node}.kafka.example")
    bootstrap = await world.connect_by_tls(trusting(authority), "bootstrap.kafka.example")
    told = await bootstrap.ask(METADATA_REQUEST)
    assert b"broker-2.kafka.example" + struct.pack(">i", world.tls_port) in told

    second = await world.connect_by_tls(trusting(authority), "BROKER-2.kafka.example")
    await second.ask(produce(records=b"r" * 100))

    assert world.brokers[1].frames[-1] == produce(records=b"r" * 100)
    assert [row.memo.node_id for row in world.sink.rows] == [2]
    nobody = await world.connect_by_tls(trusting(authority), "broker-7.kafka.example")
    assert await nobody.rest() == b""
    assert "called broker-7.kafka.example, and gateway.node_ids has no such node" in " ".join(
        warnings(caplog)
    )


async def test_who_calls_one_node_too_often_is_held_back_there_and_not_at_others(
    worlds: Worlds,
    authority: Authority,
    server: ServerTls,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_ns = time.time_ns()  # no second passes, however long it takes to call
    monkeypatch.setattr("kvota.gateway.client_side.time_ns", lambda: now_ns)
    world = await worlds(tls=server, brokers=3, node_host="broker-{node}.kafka.example")
    world.store.quotas = ClientQuotas({QuotaEntity(ip=DEFAULT): {"connection_creation_rate": 1.0}})
    world.gateway.put_in_force(
        ConfiguredQuotas(),
        enforced=frozenset(),
        windows={},
        buckets={},
        # Five at once; whoever is over is kept for 5 s.
        connection_rates=ConnectionRateSettings(window=QuotaWindow(2, 5_000), is_enforced=True),
    )

    async def called(node_id: int) -> Client:
        name = f"broker-{node_id}.kafka.example"
        client = await world.connect_by_tls(trusting(authority), name)
        client.send(heartbeat(1))
        return client

    for node_id in (1, 2):
        clients = [await called(node_id) for _ in range(5)]
        assert [await client.frame() for client in clients] == [heartbeat_answer(1)] * 5
    held = await called(1)
    await until(lambda: "may begin 1 connections a second" in caplog.text)

    assert len(world.gateway._places) == 10  # who is held back has none
    world.gateway.look_again()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(held.reader.read(1), 0.2)
    assert await (await called(3)).frame() == heartbeat_answer(1)


# ------------------------------------------------------------------ to brokers


def brokers_context(
    authority: Authority, *hosts: str, wants_certificate: bool = False, is_expired: bool = False
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    issued = authority.issue("broker", hosts=hosts, is_expired=is_expired)
    context.load_cert_chain(issued.certificate, issued.key)
    if wants_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.certificate)
    return context


async def test_brokers_are_spoken_to_by_tls_with_a_certificate(
    worlds: Worlds, authority: Authority
) -> None:
    issued = authority.issue("kvota")
    world = await worlds(
        broker_tls=brokers_context(authority, BROKER_HOST, wants_certificate=True),
        upstream_tls=Tls(
            cafile=authority.certificate, certfile=issued.certificate, keyfile=issued.key
        ),
    )
    world.brokers[0].answer_bytes = LARGE
    client = await world.connect()

    assert await client.ask(fetch()) == fetch_answer(records=b"f" * LARGE)
    frame = produce(records=b"r" * LARGE)
    await client.ask(frame)

    assert world.brokers[0].frames[-1] == frame


@pytest.mark.parametrize(
    ("hosts", "trusted", "is_expired", "said"),
    [
        (["other.example"], True, False, "the broker's certificate is not for"),
        ([BROKER_HOST], False, False, "the broker's certificate is by nobody in"),
        ([BROKER_HOST], True, True, "has expired"),
    ],
)
async def test_a_broker_that_cannot_be_trusted_is_sent_nothing(  # noqa: PLR0917
    worlds: Worlds,
    authority: Authority,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    hosts: list[str],
    trusted: bool,
    is_expired: bool,
    said: str,
) -> None:
    trust = authority if trusted else Authority(tmp_path / "other", name="other")
    world = await worlds(
        broker_tls=brokers_context(authority, *hosts, is_expired=is_expired),
        upstream_tls=Tls(cafile=trust.certificate),
    )
    client = await world.connect()

    client.send(produce(records=b"secret"))

    assert await client.rest() == b""
    assert said in caplog.text
    assert world.brokers[0].frames == []


async def test_a_broker_that_speaks_no_tls_is_said(
    worlds: Worlds, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    limits = GatewayLimits(connect_ms=500, drain_ms=1_000)
    world = await worlds(upstream_tls=Tls(cafile=authority.certificate), limits=limits)
    client = await world.connect()

    client.send(heartbeat())

    assert await client.rest() == b""
    assert "cannot be reached" in caplog.text
    assert world.brokers[0].frames == []


async def test_a_broker_that_leaves_instead_of_shaking_hands_is_said_in_words(
    worlds: Worlds, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """As a broker does at a listener without TLS."""
    world = await worlds(upstream_tls=Tls(cafile=authority.certificate))

    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        writer.close()

    async with await asyncio.start_server(leave, BROKER_HOST, 0) as listening:
        address = listening.sockets[0].getsockname()
        world.gateway._dialler._servers = (address,)
        await world.gateway.look_upstream()

    (said,) = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    assert f":{address[1]} cannot be reached: it has closed in the middle of the TLS" in said


async def test_answers_that_are_due_arrive_after_the_client_has_sent_its_last(
    worlds: Worlds, authority: Authority
) -> None:
    """Half a connection is closed, on both sides by TLS."""
    world = await worlds(
        tls=None,
        broker_tls=brokers_context(authority, BROKER_HOST),
        upstream_tls=Tls(cafile=authority.certificate),
    )
    client = await world.connect()
    world.brokers[0].gate.clear()
    client.send(heartbeat(1))
    await until(lambda: world.drivers and world.drivers[0].upstream)

    client.writer.write_eof()
    await asyncio.sleep(0.05)
    world.brokers[0].gate.set()

    assert await client.rest() in {heartbeat_answer(1), b""}  # a broker may close at once
    await until(lambda: world.open_connections == 0)


# ------------------------------------------------------------------ other certificates


async def test_a_new_certificate_is_shown_to_the_next_and_a_bad_one_is_not(
    worlds: Worlds, authority: Authority, server: ServerTls, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(tls=server)
    (shown,) = [one for one in world.gateway.certificates if one is not None]
    before = await world.connect_by_tls(trusting(authority))

    renewed = authority.issue("renewed", hosts=["localhost"])
    server.certfile.write_bytes(renewed.certificate.read_bytes())
    with pytest.raises(TlsSettingError, match="its key is not that of the certificate"):
        shown.look()
    assert shown.look() == ""  # said once
    still = await world.connect_by_tls(trusting(authority))
    assert server.keyfile is not None
    server.keyfile.write_bytes(renewed.key.read_bytes())

    assert "shows the certificate" in shown.look()
    after = await world.connect_by_tls(trusting(authority))

    names = [subject_of(client) for client in (before, still, after)]
    assert names == ["gateway", "gateway", "renewed"]
    for client in (before, still, after):
        assert await client.ask(heartbeat(1)) == heartbeat_answer(1)


def subject_of(client: Client) -> str:
    certificate = client.writer.get_extra_info("peercert")
    return str(dict(part[0] for part in certificate["subject"])["commonName"])


class Odd:
    """Files that fail in a way nobody has thought of."""

    looks = 0

    def look(self) -> str:
        self.looks += 1
        raise RuntimeError(self.looks)


async def test_no_file_ends_the_watch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kvota.gateway.certificate_in_force._LOOK_S", 0.01)
    odd = Odd()
    watching = asyncio.get_running_loop().create_task(watch_certificates({"upstream.tls": odd}))

    await until(lambda: odd.looks > 1)

    watching.cancel()
    assert "upstream.tls: the certificate in force stays" in caplog.text


async def test_certificate_key_and_password_for_brokers_are_renewed_while_clients_stay(
    worlds: Worlds,
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("kvota.gateway.certificate_in_force._LOOK_S", 0.02)
    caplog.set_level("INFO")
    issued, secret = authority.issue("kvota", password="first-word"), tmp_path / "password"
    secret.write_text("first-word\n")
    tls = Tls(
        cafile=authority.certificate,
        certfile=issued.certificate,
        keyfile=issued.key,
        password=Secret(file=secret),
    )
    brokers = brokers_context(authority, BROKER_HOST, wants_certificate=True)
    world = await worlds(broker_tls=brokers, upstream_tls=tls)
    before = await world.connect()
    await before.ask(heartbeat(1))

    renewed = authority.issue("renewed", password="second-word")
    renewed.certificate.replace(issued.certificate)
    renewed.key.replace(issued.key)
    stays = "upstream.tls.password: the certificate in force stays: "
    await until(lambda: f"{stays}{issued.key}: the password does not open its key" in caplog.text)
    assert tls.look() == ""  # said once
    still = await world.connect()
    await still.ask(heartbeat(1))
    written = tmp_path / "next-password"  # it is looked at meanwhile, and never half written
    written.write_text("second-word\n")
    written.replace(secret)
    shows = f"upstream.tls: trusts {authority.certificate}, shows the certificate {issued.certificate}, which ends"
    await until(lambda: shows in caplog.text)
    after = await world.connect()

    for client in (before, still, after):
        assert await client.ask(heartbeat(2)) == heartbeat_answer(2)
    names = [dict(part[0] for part in one)["commonName"] for one in world.brokers[0].certificates]
    assert names == ["kvota", "kvota", "renewed"]
    assert caplog.text.count(stays) == 1
    for word in ("first-word", "second-word"):
        assert word not in caplog.text


async def test_with_a_quota_a_client_of_tls_is_muted_and_loses_nothing(
    worlds: Worlds, authority: Authority, server: ServerTls
) -> None:
    table = ConfiguredQuotas({QuotaEntity(user="CN=orders"): {QuotaType.PRODUCE: 130_000.0}})
    tls = replace(server, client_auth=ClientAuth.REQUIRED)
    world = await worlds(tls=tls, table=table)
    client = await world.connect_by_tls(trusting(authority, authority.issue("orders")))
    frame = produce(records=b"r" * 60_000)

    for _ in range(25):
        client.send(frame)
    for _ in range(25):
        await asyncio.wait_for(client.frame(), 20)

    assert max(row.throttle_ms for row in world.sink.rows) > 0
    assert world.brokers[0].frames == [frame] * 25


async def test_what_has_been_taken_from_the_socket_and_not_been_read_is_unread(
    worlds: Worlds, authority: Authority, server: ServerTls
) -> None:
    world = await worlds(tls=server)
    reader, writer = await asyncio.open_connection(GATEWAY_HOST, world.tls_port)
    context = trusting(authority)
    context.maximum_version = TLS_1_2
    tls, outgoing = await shaken_by_hand(reader, writer, context)
    tls.write(heartbeat(1))
    writer.write(outgoing.read())
    await until(lambda: world.brokers[0].frames == [heartbeat(1)])
    (side,) = [driver.client for driver in world.drivers]
    assert not has_unread(side)

    transport = cast("TlsTransport", side.transport)
    transport._join_turns()  # as behind many records
    side.pause()
    tls.write(heartbeat(2))
    transport.data_received(outgoing.read())
    await asyncio.sleep(0.05)

    assert has_unread(side)
    assert len(world.brokers[0].frames) == 1
    side.resume()
    await until(lambda: world.brokers[0].frames == [heartbeat(1), heartbeat(2)])
    assert not has_unread(side)
    writer.close()
