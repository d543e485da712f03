"""Garbage, slow and greedy callers: each has an end, and others are answered meanwhile."""

import os
import random
import socket
import time

import pytest
from tests.unit.metrics.conftest import memo
from tests.unit.web.conftest import Told

from kvota.web import guarded_protocol
from kvota.web.guarded_protocol import CONNECTIONS_MAX, HEAD_BYTES_MAX
from kvota.web.server import HttpServer


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=15)


def all_of(caller: socket.socket) -> bytes:
    got = b""
    try:
        while part := caller.recv(65_536):
            got += part
    except ConnectionResetError:
        pass
    return got


def answered(caller: socket.socket) -> bytes:
    got = b""
    while not got.endswith(b"turns\n"):
        got += caller.recv(65_536)
    return got


GARBAGE = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),  # TLS
    b"\x00\x00\x00\x10\x00\x12\x00\x03" + bytes(12),  # Kafka
    b"GET /metrics\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",  # no Host
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nbad header\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\r\n" * 10_000,
    b"GET /" + b"a" * (2 * HEAD_BYTES_MAX) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * HEAD_BYTES_MAX + b"\r\n",
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_is_refused_and_closed(garbage: bytes, port: int, get, told: Told) -> None:
    with connected(port) as caller:
        caller.sendall(garbage)
        caller.shutdown(socket.SHUT_WR)
        answer = all_of(caller)

    assert not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 3"))
    assert told.asked == []
    assert get("/livez")[0] == 200


def test_random_bytes_never_reach_a_page(port: int, get, told: Told) -> None:
    draw = random.Random(5)
    for _ in range(100):
        with connected(port) as caller:
            caller.sendall(draw.randbytes(draw.randrange(1, 2000)))
            caller.shutdown(socket.SHUT_WR)
            all_of(caller)

    assert told.asked == []
    assert get("/livez")[0] == 200


def test_a_request_that_drips_is_closed(
    port: int, server: HttpServer, get, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarded_protocol, "REQUEST_S", 0.5)
    with connected(port) as caller:
        try:
            for byte in b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 1000:
                caller.sendall(bytes([byte]))
                time.sleep(0.02)
            ended = False
        except (BrokenPipeError, ConnectionResetError):
            ended = True

    assert ended
    assert server.doorkeeper.closed["late"] == 1
    assert get("/livez")[0] == 200


def test_one_that_asks_and_does_not_read_is_closed(
    port: int, server: HttpServer, told: Told, get, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarded_protocol, "REQUEST_S", 1.0)
    told.rows.add(*[(memo(f"user-{n}" + "x" * 900), n, 1) for n in range(900)])
    caller = socket.socket()
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    caller.connect(("127.0.0.1", port))
    with caller:
        caller.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
        end = time.monotonic() + 20
        while not server.doorkeeper.closed["late"] and time.monotonic() < end:
            time.sleep(0.05)

    assert server.doorkeeper.closed["late"] == 1
    assert get("/livez")[0] == 200


def test_a_thousand_connections_keep_nobody_out(port: int, server: HttpServer, get) -> None:
    crowd = [connected(port) for _ in range(1000)]
    try:
        for _ in range(5):
            assert get("/livez")[0] == 200
        assert len(server.doorkeeper.open) <= CONNECTIONS_MAX
        assert server.doorkeeper.closed["crowded"] >= 1000 - CONNECTIONS_MAX
    finally:
        for one in crowd:
            one.close()


def test_kept_connections_are_served_again_and_go_when_they_are_idle(
    port: int, server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarded_protocol, "REQUEST_S", 0.5)
    with connected(port) as caller:
        for _ in range(3):
            caller.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert answered(caller).startswith(b"HTTP/1.1 200")
            time.sleep(0.4)
        time.sleep(0.8)  # idle for longer than a request may take
        caller.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answered(caller).startswith(b"HTTP/1.1 200")

    assert server.doorkeeper.closed["late"] == 0


def test_a_body_is_not_taken(port: int, get) -> None:
    with connected(port) as caller:
        caller.sendall(
            b"GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n"
        )
        assert caller.recv(65_536).startswith(b"HTTP/1.1 200")
        try:
            for _ in range(100):
                caller.sendall(os.urandom(100_000))
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            pass

    assert get("/livez")[0] == 200
