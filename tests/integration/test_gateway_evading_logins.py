"""Logins that try to be charged as somebody else, or as nobody: whom the gateway charges is always whom the broker sees.

The broker says whom it sees: it is asked for a delegation token, whose requester it names.
"""

import base64
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from tests.integration.raw_client import RawClient
from tests.integration.sasl_frames import authenticate, handshake, raw, scram_final
from tests.integration.tapped_gateway import TappedGateway, plaintext_and_tls, tapped_gateway

from kvota.localkafka import LocalKafka
from kvota.testing.frames import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    decoded,
    produce,
    request,
)

CREATE_DELEGATION_TOKEN = 38
QUOTAS = """
[[quota]]
user_default = true
producer_byte_rate = "1GB/s"
"""
ALICE, BOB = b"\0alice\0alice-secret", b"\0bob\0bob-secret"
LATER_S = 4_000_000_000
LAST = 4_711  # the correlation id of the question who one is
Trick = Callable[[RawClient], None]


@pytest.fixture
def gateway(
    request: pytest.FixtureRequest, sasl_kafka: LocalKafka, tmp_path: Path
) -> Iterator[TappedGateway]:
    tls: bool = request.param
    with tapped_gateway(tmp_path, sasl_kafka, sasl=True, tls=tls, quotas=QUOTAS) as tapped:
        yield tapped


def who_am_i() -> bytes:
    return request(
        CREATE_DELEGATION_TOKEN,
        3,
        correlation=LAST,
        owner_principal_type=None,
        owner_principal_name=None,
        renewers=(),
        max_lifetime=timedelta(hours=1),
    )


def said(*frames: bytes, answers: int | None = None) -> Trick:
    """All at once, in one segment; then so many answers."""

    def trick(client: RawClient) -> None:
        client.send(b"".join(frames))
        for _ in range(len(frames) if answers is None else answers):
            client.frame()

    return trick


def in_turn(*frames: bytes) -> Trick:
    """One after the other."""

    def trick(client: RawClient) -> None:
        for frame in frames:
            client.send(frame)
            client.frame()

    return trick


def bytewise(*frames: bytes) -> Trick:
    def trick(client: RawClient) -> None:
        for byte in b"".join(frames):
            client.send(bytes([byte]))
        for _ in frames:
            client.frame()

    return trick


def scram(user: str, *, header: str = "n,,", attributes: str = "", as_whom: str = "") -> Trick:
    """A login with the right password (RFC 5802)."""

    def trick(client: RawClient) -> None:
        bare = f"n={as_whom or user},r=mine{attributes}"
        in_turn(handshake("SCRAM-SHA-256"))(client)
        client.send(authenticate(f"{header}{bare}".encode()))
        first = decoded(client.frame(), SASL_AUTHENTICATE, 2).auth_bytes
        if not first:
            return  # refused
        last = scram_final("sha256", bare, first, f"{user}-secret", header=header)
        client.send(authenticate(last))
        client.frame()

    return trick


def part(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def token(claims: str, *, head: str = '{"alg":"none"}', end: str = "") -> str:
    return f"{part(head)}.{part(claims)}.{end}"


def claims(**of: object) -> str:
    return json.dumps({"iat": 1_000, "exp": LATER_S} | of)


def bearer(shown: str, *, header: str = "n,,", before: str = "", behind: str = "") -> Trick:
    message = f"{header}\x01{before}auth=Bearer {shown}\x01{behind}\x01"
    return in_turn(handshake("OAUTHBEARER"), authenticate(message.encode()))


def one_after_the_other(*tricks: Trick) -> Trick:
    def trick(client: RawClient) -> None:
        for each in tricks:
            each(client)

    return trick


PLAIN = in_turn(handshake("PLAIN"), authenticate(ALICE))
LIFE = f'"iat":1000,"exp":{LATER_S}'
TRICKS: dict[str, Trick] = {
    "PLAIN": PLAIN,
    "PLAIN in one segment": said(handshake("PLAIN"), authenticate(ALICE)),
    "PLAIN byte by byte": bytewise(handshake("PLAIN"), authenticate(ALICE)),
    "PLAIN on behalf of oneself": in_turn(handshake("PLAIN"), authenticate(b"alice" + ALICE)),
    "PLAIN on behalf of another": in_turn(handshake("PLAIN"), authenticate(b"bob" + ALICE)),
    "PLAIN with a part more": in_turn(handshake("PLAIN"), authenticate(ALICE + b"\0bob")),
    "PLAIN with an empty part before": in_turn(handshake("PLAIN"), authenticate(b"\0" + ALICE)),
    "PLAIN, two tokens at once": said(
        handshake("PLAIN"), authenticate(ALICE), authenticate(BOB), answers=2
    ),
    "PLAIN, two logins at once": said(
        handshake("PLAIN"), authenticate(ALICE), handshake("PLAIN"), authenticate(BOB)
    ),
    "PLAIN, logged in again": one_after_the_other(PLAIN, PLAIN),
    "PLAIN, again as another": one_after_the_other(
        PLAIN, in_turn(handshake("PLAIN"), authenticate(BOB))
    ),
    "PLAIN, then SCRAM": one_after_the_other(PLAIN, scram("alice")),
    "PLAIN, again with a wrong password": one_after_the_other(
        PLAIN, in_turn(handshake("PLAIN"), authenticate(b"\0alice\0wrong"))
    ),
    "PLAIN, wrong and then right": one_after_the_other(
        in_turn(handshake("PLAIN"), authenticate(b"\0bob\0wrong")), PLAIN
    ),
    "PLAIN, a handshake more behind it": one_after_the_other(PLAIN, in_turn(handshake("PLAIN"))),
    "PLAIN, raw": said(handshake("PLAIN", 0), raw(ALICE)),
    "PLAIN, raw byte by byte": bytewise(handshake("PLAIN", 0), raw(ALICE)),
    "PLAIN, SaslAuthenticate v0": in_turn(handshake("PLAIN"), authenticate(ALICE, 0)),
    "two handshakes": in_turn(handshake("SCRAM-SHA-256"), handshake("PLAIN"), authenticate(ALICE)),
    "two handshakes at once": said(
        handshake("OAUTHBEARER"), handshake("PLAIN"), authenticate(ALICE)
    ),
    "a mechanism that is not there, then PLAIN": in_turn(
        handshake("NONSENSE"), handshake("PLAIN"), authenticate(ALICE)
    ),
    "ApiVersions before it": one_after_the_other(in_turn(request(API_VERSIONS, 0)), PLAIN),
    "ApiVersions in the midst": in_turn(
        handshake("PLAIN"), request(API_VERSIONS, 0), authenticate(ALICE)
    ),
    "a Produce before it": one_after_the_other(in_turn(produce(9, client="before")), PLAIN),
    "no login at all": in_turn(request(API_VERSIONS, 0)),
    "SCRAM": scram("alice"),
    "SCRAM on behalf of oneself": scram("alice", header="n,a=alice,"),
    "SCRAM on behalf of another": scram("alice", header="n,a=bob,"),
    "SCRAM with an extension": scram("alice", attributes=",n=bob"),
    "SCRAM in another case": scram("alice", as_whom="ALICE"),
    "SCRAM with a blank": scram("alice", as_whom="alice "),
    "SCRAM with an escape that is none": scram("alice", as_whom="=61lice"),
    "bearer": bearer(token(claims(sub="alice"))),
    "bearer, sub twice": bearer(token(f'{{"sub":"bob",{LIFE},"sub":"alice"}}')),
    "bearer, text behind": bearer(token(claims(sub="alice") + " and more")),
    "bearer, claims behind claims": bearer(token(claims(sub="alice") + claims(sub="bob"))),
    "bearer, escaped key": bearer(token(f'{{"\\u0073ub":"alice",{LIFE}}}')),
    "bearer, escaped name": bearer(token(f'{{"sub":"\\u0061lice",{LIFE}}}')),
    "bearer, another claim's name": bearer(token(claims(sub="alice", user="bob", name="bob"))),
    "bearer, sub within another": bearer(token(claims(of={"sub": "bob"}, sub="alice"))),
    "bearer, no text": bearer(token(claims(sub=7))),
    "bearer, a list": bearer(token(claims(sub=["alice"]))),
    "bearer, blanks": bearer(token(claims(sub=" alice\t"))),
    "bearer, a mark before": bearer(token("\ufeff" + claims(sub="alice"))),
    "bearer, a long number": bearer(token(f'{{"n":{"1" * 900},"sub":"alice",{LIFE}}}')),
    "bearer, a surrogate": bearer(token(f'{{"sub":"al\\ud800ice",{LIFE}}}')),
    "bearer, on behalf of another": bearer(token(claims(sub="alice")), header="n,a=bob,"),
    "bearer, two of them": bearer(
        token(claims(sub="alice")), before=f"auth=Bearer {token(claims(sub='bob'))}\x01"
    ),
    "bearer, two of them, turned": bearer(
        token(claims(sub="bob")), behind=f"auth=Bearer {token(claims(sub='alice'))}\x01"
    ),
    "bearer, an extension": bearer(token(claims(sub="alice")), behind="user=bob\x01"),
    "bearer, ended": bearer(token(claims(sub="alice", exp=1_001))),
}


def seen_by_the_broker(gateway: TappedGateway, name: str, trick: Trick) -> str | None:
    """Who the broker says it is; None: it lets nobody of this kind in."""
    with gateway.raw_client() as client:
        try:
            trick(client)
            client.send(produce(9, client=name) + who_am_i())
            while (frame := client.frame())[4:8] != LAST.to_bytes(4, "big"):
                pass  # answers to what came before
            said_of_token = decoded(frame, CREATE_DELEGATION_TOKEN, 3)
        except ConnectionError:
            return None
    assert int(said_of_token.error_code) == 0
    return str(said_of_token.token_requester_principal_name)


@plaintext_and_tls
def test_who_is_charged_is_whom_the_broker_sees(gateway: TappedGateway) -> None:
    # A broker lets who has failed wait a little: they wait side by side.
    with ThreadPoolExecutor(8) as pool:
        ask = partial(seen_by_the_broker, gateway)
        seen = dict(zip(TRICKS, pool.map(ask, TRICKS, TRICKS.values()), strict=True))

    charged: dict[object, set[object]] = {}
    for row in gateway.recorded():
        charged.setdefault(row["client_id"], set()).add(row["user"])
    assert charged == {name: {user} for name, user in seen.items() if user is not None}
    assert {"alice", None} <= set(seen.values())
    assert sum(user is not None for user in seen.values()) > 20
