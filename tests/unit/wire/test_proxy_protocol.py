"""What a balancer says before a client's bytes."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvota.model.errors import ProtocolError
from kvota.wire.proxy_protocol import (
    ADDRESSES_BYTES_MAX,
    SIGNATURE,
    ProxyHead,
    proxy_head,
    read_proxy_head,
)


def head(command: int, family: int, rest: bytes) -> bytes:
    return SIGNATURE + bytes([command, family]) + len(rest).to_bytes(2, "big") + rest


def ports(source: int) -> bytes:
    return source.to_bytes(2, "big") + (9192).to_bytes(2, "big")


V4 = socket.inet_aton("192.0.2.7") + socket.inet_aton("10.0.0.1") + ports(51_000)
V6 = (
    socket.inet_pton(socket.AF_INET6, "2001:db8::7") + socket.inet_pton(socket.AF_INET6, "::1")
) + ports(51_001)
MAPPED = socket.inet_pton(socket.AF_INET6, "::ffff:192.0.2.7") + bytes(16) + ports(51_002)
TLV = b"\x04\0\x02ab"


@pytest.mark.parametrize(
    ("said", "client"),
    [
        (head(0x21, 0x11, V4), ("192.0.2.7", 51_000)),
        (head(0x21, 0x11, V4 + TLV), ("192.0.2.7", 51_000)),
        (head(0x21, 0x21, V6), ("2001:db8::7", 51_001)),
        (head(0x21, 0x21, MAPPED), ("192.0.2.7", 51_002)),
        (head(0x20, 0x11, V4), None),
        (head(0x20, 0x00, b""), None),
        (head(0x21, 0x00, b""), None),
        (head(0x21, 0x00, bytes(ADDRESSES_BYTES_MAX)), None),
    ],
)
def test_the_client_is_where_the_head_says(said: bytes, client: tuple[str, int] | None) -> None:
    for cut in range(0, len(said), 1 if len(said) < 100 else 97):
        assert read_proxy_head(said[:cut]) is None
    assert read_proxy_head(said) == ProxyHead(len(said), client)
    assert read_proxy_head(said + b"\0\0\0\x20") == ProxyHead(len(said), client)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"PROXY TCP4 192.0.2.7 10.0.0.1 51000 9192\r\n", "version 1 of it"),
        (b"\0\0\0\x20", "something else"),
        (b"\x16\x03\x01", "something else"),
        (SIGNATURE[:-1] + b"x", "something else"),
        (head(0x11, 0x11, V4), "version and command 0x11"),
        (head(0x22, 0x11, V4), "version and command 0x22"),
        (head(0x21, 0x12, V4), "kind 0x12"),
        (head(0x21, 0x31, bytes(216)), "kind 0x31"),
        (head(0x21, 0x11, V4[:-1]), "11 bytes"),
        (head(0x21, 0x21, V4), "12 bytes"),
        (SIGNATURE + b"\x21\x11\xff\xff", "at most 4096"),
    ],
)
def test_what_is_no_such_head_is_refused(said: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        read_proxy_head(said)


@pytest.mark.parametrize(
    ("client", "called"),
    [
        (("192.0.2.7", 51_000), ("10.0.0.1", 9192)),
        (("2001:db8::7", 51_000), ("::1", 9192)),
        (("192.0.2.7", 51_000), ("::1", 9192)),
        (("fe80::1", 1), ("10.0.0.1", 65_535)),
    ],
)
def test_what_is_said_is_read(client: tuple[str, int], called: tuple[str, int]) -> None:
    said = proxy_head(client, called)

    assert read_proxy_head(said) == ProxyHead(len(said), client)


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_a_head_half_of_one_or_none(data: bytes, begins: bool) -> None:
    said = SIGNATURE + data if begins else data
    try:
        found = read_proxy_head(said)
    except ProtocolError:
        return
    assert found is None or found.size_bytes <= len(said)
