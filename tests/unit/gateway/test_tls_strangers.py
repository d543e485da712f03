"""Clients that TLS does not take, or that do what TLS allows and few do: closed with a reason, or served all the same."""

import asyncio
import contextlib
import shutil
import ssl
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.gateway.test_tls import TLS_1_2, client_hello, shaken_by_hand, trusting, warnings
from tests.unit.gateway.world import (
    BROKER_HOST,
    GATEWAY_HOST,
    Client,
    Worlds,
    heartbeat,
    heartbeat_answer,
    until,
)

from kvota.gateway.settings import GatewayLimits
from kvota.localkafka.cluster.certificates import Authority
from kvota.model.bucket_settings import BucketSettings
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.testing.frames import produce
from kvota.tls.client_tls import Tls
from kvota.tls.server_tls import ClientAuth, ServerTls

OPENSSL = shutil.which("openssl")
needs_openssl = pytest.mark.skipif(OPENSSL is None, reason="no openssl on this machine")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def server(authority: Authority) -> ServerTls:
    issued = authority.issue("gateway", hosts=["localhost"])
    return ServerTls(
        certfile=issued.certificate, keyfile=issued.key, client_cafile=authority.certificate
    )


# ------------------------------------------------------------------ certificates that are revoked


async def test_a_certificate_that_is_revoked_is_taken_until_the_list_says_so(
    worlds: Worlds, authority: Authority, server: ServerTls, caplog: pytest.LogCaptureFixture
) -> None:
    orders, stolen = authority.issue("orders"), authority.issue("stolen")
    tls = replace(server, client_auth=ClientAuth.REQUIRED, client_crlfile=authority.revoke())
    world = await worlds(tls=tls)
    (in_force,) = [one for one in world.gateway.certificates if one is not None]
    before = await world.connect_by_tls(trusting(authority, stolen))
    await before.ask(produce(records=b"r"))

    authority.revoke(stolen)
    assert "shows the certificate" in in_force.look()

    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        after = await world.connect_by_tls(trusting(authority, stolen))
        await after.ask(heartbeat())
        pytest.fail("it was let in")
    other = await world.connect_by_tls(trusting(authority, orders))
    assert await other.ask(heartbeat(1)) == heartbeat_answer(1)
    assert "its certificate is not taken: certificate revoked" in " ".join(warnings(caplog))
    assert [row.memo.user for row in world.sink.rows] == ["CN=stolen"]


@pytest.mark.parametrize(
    ("listed", "said"),
    [("outdated", "CRL has expired"), ("of another", "unable to get certificate CRL")],
)
async def test_without_a_list_that_is_good_nobody_is_taken(  # noqa: PLR0917
    worlds: Worlds,
    authority: Authority,
    server: ServerTls,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    listed: str,
    said: str,
) -> None:
    other = Authority(tmp_path / "other", name="other")
    crlfile = authority.revoke(is_outdated=True) if listed == "outdated" else other.revoke()
    tls = replace(server, client_auth=ClientAuth.REQUIRED, client_crlfile=crlfile)
    world = await worlds(tls=tls)

    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        client = await world.connect_by_tls(trusting(authority, authority.issue("orders")))
        await client.ask(heartbeat())
        pytest.fail("it was let in")

    await until(lambda: world.open_connections == 0)
    assert said in " ".join(warnings(caplog))


async def test_a_broker_whose_certificate_is_revoked_is_sent_nothing(
    worlds: Worlds, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    issued = authority.issue("broker", hosts=[BROKER_HOST])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    upstream = Tls(cafile=authority.certificate, crlfile=authority.revoke(issued))
    world = await worlds(broker_tls=context, upstream_tls=upstream)
    client = await world.connect()

    client.send(produce(records=b"secret"))

    assert await client.rest() == b""
    assert "certificate revoked" in caplog.text
    assert world.brokers[0].frames == []


# ------------------------------------------------------------------ clients that do not take the gateway


@pytest.mark.parametrize(
    ("name", "trusts", "said"),
    [
        ("localhost", False, "it does not trust the gateway's certificate"),
        ("elsewhere.example", True, "it does not take the gateway's certificate"),
    ],
)
async def test_a_client_that_does_not_take_the_gateways_certificate_is_said(  # noqa: PLR0917
    worlds: Worlds,
    authority: Authority,
    server: ServerTls,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
    trusts: bool,
    said: str,
) -> None:
    trusted = authority if trusts else Authority(tmp_path / "other", name="other")
    world = await worlds(tls=server)
    reader, writer = await asyncio.open_connection(GATEWAY_HOST, world.tls_port)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    shaking = trusting(trusted).wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        shaking.do_handshake()
    writer.write(outgoing.read())
    incoming.write(await reader.read(65_536))

    with pytest.raises(ssl.SSLCertVerificationError):
        shaking.do_handshake()
    writer.write(outgoing.read())  # it says why, as asyncio's own clients do not

    await until(lambda: world.open_connections == 0)
    assert said in " ".join(warnings(caplog))
    writer.close()


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ({"version_min": ssl.TLSVersion.TLSv1_3}, "versions of TLS that are not taken here"),
        ({"ciphers": "ECDHE-ECDSA-AES256-GCM-SHA384"}, "it knows no cipher that is taken here"),
    ],
)
async def test_a_client_that_knows_too_little_is_told_in_the_log(
    worlds: Worlds,
    authority: Authority,
    server: ServerTls,
    caplog: pytest.LogCaptureFixture,
    limit: dict[str, object],
    said: str,
) -> None:
    world = await worlds(tls=replace(server, **limit))  # type: ignore[arg-type]
    context = trusting(authority)
    context.maximum_version = TLS_1_2
    context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")

    with pytest.raises(OSError):  # noqa: PT011 - OpenSSL's words differ
        await world.connect_by_tls(context)

    await until(lambda: said in " ".join(warnings(caplog)))
    await until(lambda: world.open_connections == 0)


# ------------------------------------------------------------------ slowly, and in the middle of it


async def test_a_handshake_that_comes_byte_by_byte_has_no_more_time(
    worlds: Worlds, authority: Authority, server: ServerTls, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(tls=server, limits=GatewayLimits(tls_handshake_ms=300, drain_ms=1_000))
    reader, writer = await asyncio.open_connection(GATEWAY_HOST, world.tls_port)

    with contextlib.suppress(ConnectionError):
        for byte in client_hello(trusting(authority))[:-1]:
            if reader.at_eof() or writer.is_closing():  # uvloop raises RuntimeError for the second
                break
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.02)

    assert await Client(reader, writer).rest() == b""
    assert "no TLS handshake in 0.3 s (limits.tls_handshake_time)" in " ".join(warnings(caplog))
    writer.close()


async def openssl_client(port: int, *options: str) -> asyncio.subprocess.Process:
    """OpenSSL's own client: a line ``R`` has it negotiate anew, ``K`` change its key and ask for another one."""
    assert OPENSSL is not None
    return await asyncio.create_subprocess_exec(
        OPENSSL,
        "s_client",
        *("-connect", f"{GATEWAY_HOST}:{port}", *options),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def heard(client: asyncio.subprocess.Process, text: bytes) -> bytes:
    """All that it says until it has said this."""
    assert client.stdout is not None
    said = b""
    async with asyncio.timeout(15):
        while text not in said:
            more = await client.stdout.read(65_536)
            assert more, said
            said += more
    return said


@needs_openssl
async def test_nobody_negotiates_anew(worlds: Worlds, server: ServerTls) -> None:
    world = await worlds(tls=server)
    client = await openssl_client(world.tls_port, "-tls1_2")
    assert client.stdin is not None
    await heard(client, b"Verify return code")

    client.stdin.write(b"R\n")

    await heard(client, b"no renegotiation")
    client.stdin.close()
    await client.wait()
    await until(lambda: world.open_connections == 0)


@needs_openssl
async def test_a_client_may_change_its_key_and_ask_for_another_one(
    worlds: Worlds, server: ServerTls
) -> None:
    world = await worlds(tls=server)
    client = await openssl_client(world.tls_port, "-tls1_3")
    assert client.stdin is not None
    await heard(client, b"Verify return code")

    for number in range(1, 4):
        client.stdin.write(b"K\n")
        await heard(client, b"KEYUPDATE")
        client.stdin.write(heartbeat(number))
        await heard(client, heartbeat_answer(number))

    client.stdin.close()
    await client.wait()
    assert world.brokers[0].frames == [heartbeat(number) for number in range(1, 4)]


async def test_what_waits_is_forwarded_although_its_client_has_ended_in_the_same_breath(
    worlds: Worlds, authority: Authority, server: ServerTls
) -> None:
    """A record without acks is in line when its client says, in the next record, that it sends no more."""
    table = ConfiguredQuotas({QuotaEntity(user=DEFAULT): {QuotaType.PRODUCE: 50_000.0}})
    world = await worlds(tls=server, table=table)
    world.engine.replace_countings(
        {}, {QuotaType.PRODUCE: BucketSettings(burst_ms=1_000, debt_max_ms=100)}
    )
    other = await world.connect()
    await other.ask(produce(records=b"r" * 70_000))
    reader, writer = await asyncio.open_connection(GATEWAY_HOST, world.tls_port)
    tls, outgoing = await shaken_by_hand(reader, writer, trusting(authority))
    frame = produce(acks=0, records=b"last")
    writer.write(outgoing.read())
    tls.write(frame)
    with contextlib.suppress(ssl.SSLError):
        tls.unwrap()
    writer.write(outgoing.read())
    writer.write_eof()

    await until(lambda: frame in world.brokers[0].frames)

    await until(lambda: world.open_connections == 1)
    writer.close()
