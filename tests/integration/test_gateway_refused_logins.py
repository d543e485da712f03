"""Logins that a broker refuses: through the gateway they end in the same bytes, inside TLS as outside."""

import base64
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.integration.raw_client import RawClient
from tests.integration.sasl_frames import authenticate, handshake, raw, scram_final
from tests.integration.tapped_gateway import TappedGateway, plaintext_and_tls, tapped_gateway

from kvota.localkafka import LocalKafka
from kvota.testing.frames import SASL_AUTHENTICATE, decoded, produce

QUOTAS = """
[[quota]]
user_default = true
producer_byte_rate = "1GB/s"
"""
WRONG = "no-secret-of-alices"
NONE, FAILED = 0, 58
Converse = Callable[[RawClient], list[bytes]]


@pytest.fixture
def gateway(
    request: pytest.FixtureRequest, sasl_kafka: LocalKafka, tmp_path: Path
) -> Iterator[TappedGateway]:
    tls: bool = getattr(request, "param", False)
    with tapped_gateway(
        tmp_path, sasl_kafka, sasl=True, tls=tls, quotas=QUOTAS, log_level="debug"
    ) as tapped:
        yield tapped


def until_closed(client: RawClient) -> list[bytes]:
    """What still comes."""
    told = []
    try:
        while True:
            told.append(client.frame())
    except ConnectionError:
        return told


def said(*frames: bytes) -> Converse:
    """All at once."""

    def converse(client: RawClient) -> list[bytes]:
        client.send(b"".join(frames))
        return until_closed(client)

    return converse


def bytewise(*frames: bytes) -> Converse:
    """Each byte in a segment of its own, inside TLS in a record of its own."""

    def converse(client: RawClient) -> list[bytes]:
        for byte in b"".join(frames):
            client.send(bytes([byte]))
        return until_closed(client)

    return converse


def scram(digest: str, user: str, *, is_raw: bool = False) -> Converse:
    """With a wrong password (RFC 5802)."""
    mechanism = f"SCRAM-SHA-{digest.removeprefix('sha')}"
    wrapped = raw if is_raw else authenticate

    def converse(client: RawClient) -> list[bytes]:
        client.send(handshake(mechanism, 0 if is_raw else 1))
        told = [client.frame()]
        client.send(wrapped(f"n,,n={user},r=mine".encode()))
        try:
            told.append(client.frame())
            first = told[1][4:] if is_raw else decoded(told[1], SASL_AUTHENTICATE, 2).auth_bytes
            if first:
                bare = f"n={user},r=mine"
                client.send(wrapped(scram_final(digest, bare, first, WRONG)))
        except ConnectionError:
            return told
        # The broker's part of the nonce is random, and so is its length, which stands in two places before it.
        told[1] = re.sub(rb"(?s).?r=mine[^,]*", b"r=mine", told[1][4:])
        return told + until_closed(client)

    return converse


def bearer(token: str) -> bytes:
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


PLAIN = f"\0alice\0{WRONG}".encode()
# It ended in 1970.
EXPIRED = ".".join(
    base64.urlsafe_b64encode(part).rstrip(b"=").decode()
    for part in (b'{"alg":"none"}', b'{"sub":"alice","iat":0,"exp":1,"jti":"%s"}' % WRONG.encode())
)
CONVERSATIONS: dict[str, Converse] = {
    **{
        f"PLAIN, SaslAuthenticate v{v}": said(handshake("PLAIN"), authenticate(PLAIN, v))
        for v in range(3)
    },
    "PLAIN byte by byte": bytewise(handshake("PLAIN"), authenticate(PLAIN)),
    "PLAIN, nobody": said(handshake("PLAIN"), authenticate(f"\0nobody\0{WRONG}".encode())),
    "PLAIN, for another": said(handshake("PLAIN"), authenticate(b"bob\0alice\0alice-secret")),
    "PLAIN, no token": said(handshake("PLAIN"), authenticate(WRONG.encode())),
    "PLAIN, empty": said(handshake("PLAIN"), authenticate(b"")),
    "PLAIN, raw": said(handshake("PLAIN", 0), raw(PLAIN)),
    "PLAIN, raw, no token": said(handshake("PLAIN", 0), raw(WRONG.encode())),
    "SCRAM-SHA-256": scram("sha256", "alice"),
    "SCRAM-SHA-512": scram("sha512", "alice"),
    "SCRAM-SHA-256, nobody": scram("sha256", "nobody"),
    "SCRAM-SHA-256, raw": scram("sha256", "alice", is_raw=True),
    "OAUTHBEARER, ended": said(
        handshake("OAUTHBEARER"), authenticate(bearer(f"{EXPIRED}.")), authenticate(b"\x01")
    ),
    "OAUTHBEARER, no token": said(
        handshake("OAUTHBEARER"), authenticate(bearer(WRONG)), authenticate(b"\x01")
    ),
    **{
        f'mechanism "{name}", SaslHandshake v{v}': said(handshake(name, v))
        for name in ("GSSAPI", "NONSENSE", "scram-sha-256", "")
        for v in range(2)
    },
}


@plaintext_and_tls
def test_what_a_broker_refuses_ends_in_the_brokers_own_bytes(gateway: TappedGateway) -> None:
    def told_by(connect: Callable[[], RawClient], converse: Converse) -> list[bytes]:
        with connect() as client:
            return converse(client)

    # A broker lets who has failed wait a little: they wait side by side.
    with ThreadPoolExecutor(8) as pool:
        through_the_gateway, straight = (
            {name: pool.submit(told_by, connect, each) for name, each in CONVERSATIONS.items()}
            for connect in (gateway.raw_client, gateway.raw_client_of_a_broker)
        )
    for name, told in straight.items():
        assert through_the_gateway[name].result() == told.result(), name

    assert gateway.process.running
    assert gateway.recorded() == []
    secrets = [WRONG.encode(), base64.b64encode(WRONG.encode()), EXPIRED.split(".")[1].encode()]
    written = [path for path in gateway.process.folder.rglob("*") if path.is_file()]
    assert gateway.process.log_path in written
    for path in written:
        assert not any(secret in path.read_bytes() for secret in secrets), path


@plaintext_and_tls
def test_a_login_byte_by_byte_is_a_login(gateway: TappedGateway) -> None:
    right = handshake("PLAIN"), authenticate(b"\0alice\0alice-secret"), produce(9)
    with gateway.raw_client() as client:
        for byte in b"".join(right):
            client.send(bytes([byte]))
        client.frame()
        assert decoded(client.frame(), SASL_AUTHENTICATE, 2).error_code == NONE
        client.frame()

    assert [row["user"] for row in gateway.recorded()] == ["alice"]
    assert "alice-secret" not in gateway.log
