"""SCRAM against the example of RFC 7677, and brokers that are not what they say."""

import pytest

from kvota.client.scram import Scram
from kvota.model.errors import ProtocolError

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.fixture
def login() -> Scram:
    return Scram("SCRAM-SHA-256", "user", "pencil", nonce=NONCE)


def test_the_example_of_rfc_7677(login: Scram) -> None:
    assert login.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert login.final(SERVER_FIRST) == CLIENT_FINAL
    login.check(SERVER_FINAL)


def test_commas_and_equals_signs_in_a_name_are_escaped() -> None:
    assert Scram("SCRAM-SHA-512", "a,b=c", "x", nonce="n").first() == b"n,,n=a=2Cb=3Dc,r=n"


def test_a_delegation_token_says_that_it_is_one_in_what_is_signed() -> None:
    login = Scram("SCRAM-SHA-256", "user", "pencil", nonce=NONCE, is_delegation_token=True)

    assert login.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO,tokenauth=true"
    assert login.final(SERVER_FIRST) != CLIENT_FINAL
    with pytest.raises(ProtocolError):
        login.check(SERVER_FINAL)


@pytest.mark.parametrize(
    ("server_first", "said"),
    [
        (SERVER_FIRST.replace(b"rOpr", b"xOpr"), "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (SERVER_FIRST.replace(b"4096", b"1"), '"1" iterations'),
        (SERVER_FIRST.replace(b"4096", b"9" * 5_000), "iterations"),
        (SERVER_FIRST.replace(b"4096", b""), "iterations"),
        (SERVER_FIRST.replace(b"W22", b"!!!"), "base64"),
        (b"\xff\xfe", "UTF-8"),
        (b"", "nonce"),
    ],
)
def test_a_challenge_that_is_none_is_refused(login: Scram, server_first: bytes, said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        login.final(server_first)


@pytest.mark.parametrize("server_final", [b"v=AAAA", b"e=invalid-proof", b"", b"v=?"])
def test_a_broker_without_the_password_is_not_believed(login: Scram, server_final: bytes) -> None:
    login.final(SERVER_FIRST)

    with pytest.raises(ProtocolError):
        login.check(server_final)
