"""Whose a bearer token is, as a broker reads it."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvota.model.errors import ProtocolError
from kvota.wire.bearer_token import CLAIMS_CHARACTERS_MAX, BearerName, bearer_name

SECRET = "c2VjcmV0"


def encoded(claims: object) -> str:
    text = claims if isinstance(claims, str) else json.dumps(claims)
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def unsecured(claims: object) -> str:
    return f"{encoded({'alg': 'none'})}.{encoded(claims)}."


def signed(claims: object) -> str:
    return f"{encoded({'alg': 'RS256'})}.{encoded(claims)}.{SECRET}"


def first(token: str, *, before: str = "n,,\x01", behind: str = "\x01\x01") -> bytes:
    return f"{before}auth=Bearer {token}{behind}".encode()


@pytest.mark.parametrize("name", ["alice", "a", "Jörg", "a,b=c", "日本", "x" * 300, 'quo"te'])
@pytest.mark.parametrize("make", [unsecured, signed])
def test_the_name_is_that_of_the_claim(name: str, make: type) -> None:
    assert bearer_name(first(make({"sub": name, "exp": 1})), "sub") == BearerName(name)


def test_another_claim_may_be_the_name() -> None:
    token = unsecured({"sub": "0b1c", "preferred_username": "alice"})

    assert bearer_name(first(token), "preferred_username").name == "alice"


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        ("n,,\x01", "\x01\x01"),
        ("n,a=alice,\x01", "\x01\x01"),
        ("n,a=a=2Cb\x01,\x01", "\x01\x01"),
        ("n,,\x01traceId=12\x01", "\x01\x01"),
        ("n,,\x01", "\x01traceId=1=2 3\x01\x01"),
        # Of two the last counts.
        (f"n,,\x01auth=Bearer {unsecured({'sub': 'bob'})}\x01", "\x01\x01"),
    ],
)
def test_what_else_stands_in_the_message_changes_nothing(before: str, behind: str) -> None:
    message = first(unsecured({"sub": "alice"}), before=before, behind=behind)

    assert bearer_name(message, "sub").name == "alice"


@pytest.mark.parametrize("scheme", ["bearer", "BEARER ", "Bearer   "])
def test_the_scheme_is_written_as_a_broker_takes_it(scheme: str) -> None:
    message = f"n,,\x01auth={scheme} {unsecured({'sub': 'alice'})}\x01\x01".encode()

    assert bearer_name(message, "sub").name == "alice"


def test_blanks_around_a_name_are_taken_away_where_there_is_a_signature() -> None:
    assert bearer_name(first(signed({"sub": " alice\t"})), "sub").name == "alice"
    assert bearer_name(first(unsecured({"sub": " alice\t"})), "sub").name == " alice\t"


def test_of_two_claims_of_one_name_the_last_counts() -> None:
    assert bearer_name(first(unsecured('{"sub":"bob","sub":"alice"}')), "sub").name == "alice"


@pytest.mark.parametrize(
    "text",
    [
        '{"sub":"alice"} and more',
        '{"sub":"alice"}{"sub":"bob"}',
        '{"sub":"alice"}]',
        '\ufeff \r\n{"sub":"alice"}',
        '{"\\u0073ub":"alice"}',
        '{"sub":"\\u0061lice"}',
        '{"iat":' + "1" * 5_000 + ',"sub":"alice"}',
        '{"of":{"sub":"bob"},"sub":"alice"}',
    ],
)
def test_claims_are_read_as_far_as_a_broker_reads_them(text: str) -> None:
    assert bearer_name(first(unsecured(text)), "sub").name == "alice"


def test_bytes_that_are_no_utf_8_are_replaced_as_java_replaces_them() -> None:
    part = base64.urlsafe_b64encode(b'{"sub":"al\xffice"}').rstrip(b"=").decode()

    assert bearer_name(first(f"{encoded({'alg': 'none'})}.{part}."), "sub").name == "al\ufffdice"


def test_half_of_a_surrogate_pair_is_a_name_that_can_be_stored() -> None:
    found = bearer_name(first(unsecured('{"sub":"al\\ud800ice"}')), "sub")

    assert found.name == "al?ice"


@pytest.mark.parametrize("claims", [{}, {"sub": 7}, {"sub": None}, {"sub": ""}, {"sub": "  "}, {"sub": ["a"]}])  # fmt: skip
def test_a_token_without_the_claim_says_which_is_missing(claims: object) -> None:
    found = bearer_name(first(unsecured(claims)), "sub")

    assert found.name is None
    assert 'claim "sub" (sasl.oauthbearer.sub.claim.name)' in found.why


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (f"{SECRET}.{SECRET}.{SECRET}.{SECRET}.{SECRET}", "encrypted"),
        (SECRET, "no JSON Web Token"),
        ("a.b", "no JSON Web Token"),
        (f"{SECRET}.{SECRET}.{SECRET}", "no JSON Web Token"),
        (unsecured("[1]"), "no JSON Web Token"),
        (unsecured('{"sub":'), "no JSON Web Token"),
        ("a.b.c.d", "no JSON Web Token"),
    ],
)
def test_what_cannot_be_read_names_nobody_and_shows_nothing(token: str, why: str) -> None:
    found = bearer_name(first(token), "sub")

    assert found.name is None
    assert why in found.why
    assert SECRET not in found.why


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,\x01\x01",
        b"\x01",
        b"y,,\x01auth=Bearer a.b.c\x01\x01",
        b"n,,\x01auth=Bearer a.b.c\x01",
        b"n,,\x01auth=Basic a.b.c\x01\x01",
        b"n,,\x01Auth=Bearer a.b.c\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer c2VjcmV0\xff\x01\x01",
        b"n,a=x,y,\x01auth=Bearer a.b.c\x01\x01",
    ],
)
def test_what_is_no_such_message_is_refused_and_not_repeated(message: bytes) -> None:
    with pytest.raises(ProtocolError) as raised:
        bearer_name(message, "sub")

    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None


def test_claims_that_are_too_large_or_too_deep_are_not_read() -> None:
    large = unsecured({"sub": "alice", "groups": "g" * CLAIMS_CHARACTERS_MAX})
    deep = unsecured("[" * 40_000)

    for token, words in ((large, "more than 65536 characters"), (deep, "nested too deeply")):
        with pytest.raises(ProtocolError, match=words):
            bearer_name(first(token), "sub")


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_any_bytes_are_a_name_none_or_no_message(claims: bytes, around: bytes) -> None:
    part = base64.urlsafe_b64encode(claims)
    for message in (claims, first("x") + around, b"n,,\x01auth=Bearer x." + part + b".y\x01\x01"):
        try:
            found = bearer_name(message, "sub")
        except ProtocolError:
            continue
        assert found.name is None or found.name.encode()
