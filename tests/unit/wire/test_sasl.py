"""SASL messages against kio's encoding, and the names in tokens."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvota.model.errors import ProtocolError
from kvota.testing.kafka_messages import RandomMessages, to_frame
from kvota.wire import sasl
from kvota.wire.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE

SEEDS = st.integers(0, 2**32)


@given(version=st.integers(0, 1), seed=SEEDS)
@settings(deadline=None)
def test_the_mechanism_is_what_kio_wrote(version: int, seed: int) -> None:
    payload = RandomMessages(Random(seed)).payload(SASL_HANDSHAKE, version, "request")

    assert sasl.mechanism(to_frame(payload)) == payload.mechanism


@given(version=st.integers(0, 1), seed=SEEDS)
@settings(deadline=None)
def test_the_answer_to_a_handshake_is_what_kio_wrote(version: int, seed: int) -> None:
    payload = RandomMessages(Random(seed)).payload(SASL_HANDSHAKE, version, "response")

    assert sasl.handshake_answer(to_frame(payload)) == (
        payload.error_code.value,
        list(payload.mechanisms),
    )


@given(version=st.integers(0, 2), seed=SEEDS)
@settings(deadline=None)
def test_the_token_is_what_kio_wrote(version: int, seed: int) -> None:
    payload = RandomMessages(Random(seed)).payload(SASL_AUTHENTICATE, version, "request")

    assert sasl.auth_bytes(to_frame(payload, client_id=None)) == payload.auth_bytes


@given(version=st.integers(0, 2), seed=SEEDS)
@settings(deadline=None)
def test_the_answer_to_a_token_is_what_kio_wrote(version: int, seed: int) -> None:
    payload = RandomMessages(Random(seed)).payload(SASL_AUTHENTICATE, version, "response")

    answer = sasl.authenticate_answer(to_frame(payload), version)

    lifetime = getattr(payload, "session_lifetime", None)
    assert answer == sasl.AuthenticateAnswer(
        error_code=payload.error_code.value,
        error_message=payload.error_message,
        auth_bytes=payload.auth_bytes,
        session_lifetime_ms=0 if lifetime is None else round(lifetime.total_seconds() * 1000),
    )


@pytest.mark.parametrize(
    ("token", "names"),
    [
        (b"\0alice\0alice-secret", ("", "alice")),
        (b"alice\0alice\0s", ("alice", "alice")),
        ("\0müller\0geheim".encode(), ("", "müller")),
        (b"\0alice\0", ("", "alice")),
    ],
)
def test_a_plain_token_names_its_user(token: bytes, names: tuple[str, str]) -> None:
    assert sasl.plain_names(token) == names


@pytest.mark.parametrize(
    "token", [b"", b"alice", b"\0alice", b"\0\0secret", b"\0a\0sec\0ret", b"\0\xff\0secret"]
)
def test_what_is_no_plain_token_is_refused_without_repeating_it(token: bytes) -> None:
    with pytest.raises(ProtocolError, match="SASL PLAIN: ") as caught:
        sasl.plain_names(token)

    assert "sec" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("token", "found"),
    [
        (b"n,,n=alice,r=nonce", ("alice", False)),
        (b"y,,n=alice,r=nonce", ("alice", False)),
        (b"p=tls-server-end-point,,n=alice,r=nonce", ("alice", False)),
        (b"n,a=alice,n=alice,r=nonce", ("alice", False)),
        (b"n,,n=a=2Cb=3Dc,r=nonce", ("a,b=c", False)),
        (b"n,,n=token-id,r=nonce,tokenauth=true", ("token-id", True)),
        (b"n,,n=alice,r=nonce,tokenauth=false", ("alice", False)),
        # As Kafka reads them: a reserved field is passed over, names of extensions are as they are written, and
        # the last of two counts.
        (b"n,,m=n=bob,n=alice,r=nonce", ("alice", False)),
        (b"n,a=alice,m=x,n=alice,r=nonce,x=y", ("alice", False)),
        (b"n,,n=alice,r=nonce,TOKENAUTH=true", ("alice", False)),
        (b"n,,n=alice,r=nonce,x=tokenauth=true", ("alice", False)),
        (b"n,,n=alice,r=nonce,tokenauth=true,tokenauth=false", ("alice", False)),
        (b"n,,n=token-id,r=nonce,tokenauth=false,x=y,tokenauth=TRUE", ("token-id", True)),
    ],
)
def test_a_first_scram_message_names_its_user(token: bytes, found: tuple[str, bool]) -> None:
    assert sasl.scram_name(token) == found


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"n,,n=alice",
        b"c=biws,r=nonce,p=proof,x",
        b"n,,r=nonce,n=alice",
        b"n,,n=a=2,r=x",
        b"n,,n=a=4Eb,r=x",
        b"n,,n=\xff,r=x",
        b"n,,m=x,m=y,n=alice,r=x",
        b"n,,n=alice,r=x,y",
        b"n,,n=alice,r=x,",
    ],
)
def test_what_is_no_first_scram_message_is_refused(token: bytes) -> None:
    with pytest.raises(ProtocolError, match="SCRAM client-first"):
        sasl.scram_name(token)


def test_the_last_scram_message_of_the_broker_differs_from_the_first() -> None:
    assert sasl.is_server_final(b"v=cmF0aGVyIGxvbmc=")
    assert not sasl.is_server_final(b"r=nonce,s=salt,i=4096")
    assert not sasl.is_server_final(b"e=other-error")


@pytest.mark.parametrize(
    "frame",
    [
        b"\0\0\0\x04abcd",
        b"\0\0\0\x0a" + b"\0\x24\0\0" + bytes(4) + b"\xff\xff",
        b"\0\0\0\x0e" + b"\0\x24\0\0" + bytes(4) + b"\xff\xff" + b"\x7f\xff\xff\xff",
        b"\0\0\0\x0e" + b"\0\x24\0\0" + bytes(4) + b"\xff\xff" + b"\xff\xff\xff\xff",
    ],
)
def test_what_is_no_token_request_is_refused(frame: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"SaslAuthenticate.* request: "):
        sasl.auth_bytes(frame)
