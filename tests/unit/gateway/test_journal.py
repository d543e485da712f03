"""What the log says of connections that end, and of logins: no news at info, wrong passwords once."""

import asyncio
import logging

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.gateway.world import Broker, Client, Worlds, heartbeat, silent, until

from kvota.gateway.journal import Journal, printable
from kvota.session.principal import ANONYMOUS, Login, LoginRefusal
from kvota.testing.frames import METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE, answer, request

SAID = "Authentication failed: Invalid username or password"


async def refusing(broker: Broker, frame: bytes) -> bytes:
    """A listener with logins and no users."""
    key, correlation = frame[5], int.from_bytes(frame[8:12], "big")
    if key == SASL_HANDSHAKE:
        return answer(
            SASL_HANDSHAKE, 1, correlation=correlation, throttle_ms=None, error_code=ErrorCode.none
        )
    refused = answer(
        SASL_AUTHENTICATE,
        2,
        correlation=correlation,
        throttle_ms=None,
        error_code=ErrorCode.sasl_authentication_failed,
        error_message=SAID,
    )
    asyncio.get_running_loop().call_later(0.01, broker.hang_up)
    return refused


async def log_in(client: Client, user: str) -> None:
    await client.ask(request(SASL_HANDSHAKE, 1, mechanism="PLAIN"))
    await client.ask(
        request(SASL_AUTHENTICATE, 2, auth_bytes=f"\0{user}\0secret".encode(), correlation=2)
    )
    assert await client.rest() == b""


def said(caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= level]


@pytest.fixture(autouse=True)
def _all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="kvota")


@pytest.mark.parametrize("at_once", [True, False], ids=["closes", "closes-its-half"])
async def test_a_client_that_closes_is_no_news(
    worlds: Worlds, caplog: pytest.LogCaptureFixture, *, at_once: bool
) -> None:
    world = await worlds()
    client = await world.connect()
    await client.ask(heartbeat())
    caplog.clear()

    if at_once:
        client.writer.transport.abort()
    else:
        client.writer.write_eof()
        assert await client.rest() == b""

    await until(lambda: world.open_connections == 0)
    assert said(caplog) == []


async def test_a_wrong_password_is_said_once_with_user_and_address(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(behaviour=refusing)

    for _ in range(20):
        await log_in(await world.connect(), "alice")
    await log_in(await world.connect(), "bob")

    at_first = said(caplog)
    await world.stop()
    assert at_first == [
        f'a login as "alice" with "PLAIN" from 127.0.0.1 was refused: {SAID}',
        f'a login as "bob" with "PLAIN" from 127.0.0.1 was refused: {SAID}',
    ]
    assert '19 more logins as "alice" from 127.0.0.1 were refused within a minute' in said(caplog)
    assert "secret" not in caplog.text


async def test_a_bare_token_that_a_broker_answers_by_closing_was_refused(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    async def closing(broker: Broker, frame: bytes) -> bytes:
        if frame[4:8] == bytes((0, SASL_HANDSHAKE, 0, 0)):
            return answer(SASL_HANDSHAKE, 0, throttle_ms=None, error_code=ErrorCode.none)
        broker.hang_up()
        return b""

    world = await worlds(behaviour=closing)
    client = await world.connect()
    await client.ask(request(SASL_HANDSHAKE, 0, mechanism="PLAIN"))

    client.send(len(b"\0eve\0secret").to_bytes(4, "big") + b"\0eve\0secret")

    assert await client.rest() == b""
    assert said(caplog) == [
        'a login as "eve" with "PLAIN" from 127.0.0.1 was refused: the broker has closed the connection'
    ]


async def test_who_does_not_log_in_where_it_has_to_is_said_once_with_a_hint(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    async def closing(broker: Broker, frame: bytes) -> bytes:
        broker.hang_up()
        return b""

    world = await worlds(behaviour=closing)
    for _ in range(5):
        client = await world.connect()
        client.send(request(METADATA, 12))
        assert await client.rest() == b""

    (line,) = said(caplog)
    assert "1 answer was due, the client will send that request again. Nobody had logged in" in line


async def test_a_broker_that_dies_is_said_once_for_all_connections_of_an_address(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(behaviour=silent)
    clients = [await world.connect() for _ in range(10)]
    for client in clients:
        client.send(heartbeat())
    await until(lambda: len(world.brokers[0].frames) == 10)

    await world.brokers[0].stop()

    for client in clients:
        assert await client.rest() == b""
    assert len([line for line in said(caplog) if "answer was due" in line]) == 1


# ------------------------------------------------------------------ lines


def test_reasons_that_differ_in_numbers_only_are_one(caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal(lambda: 0.0)

    for number in range(5):
        journal.closed(number, f"10.0.0.1:{number}", f"no whole request in {number} ms")
    journal.closed(6, "10.0.0.2:1", "no whole request in 1 ms")
    journal.finish()

    assert said(caplog, logging.WARNING) == [
        "connection 0 from 10.0.0.1:0 closed: no whole request in 0 ms",
        "connection 6 from 10.0.0.2:1 closed: no whole request in 1 ms",
        "4 more connections from 10.0.0.1 were closed within a minute for such a reason: no whole request in 0 ms",
    ]


def test_a_name_cannot_write_lines_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    refusal = LoginRefusal("eve\n2026 ERROR all is lost\x1b[2J", "PLAIN", "no\r\nway")

    Journal(lambda: 0.0).warn(1, "10.0.0.1:1", refusal)

    (line,) = said(caplog)
    assert line.isprintable()


def test_a_long_name_is_cut() -> None:
    assert len(printable("x" * 10_000)) == 100


def test_nothing_is_remembered_of_a_name_beyond_what_is_shown() -> None:
    login = Login("PLAIN" * 1_000)
    login.claimed = "x" * 500_000

    refusal = login.refusal("y" * 500_000)

    assert max(map(len, (refusal.user or "", refusal.mechanism, refusal.why))) == 200


def test_who_gives_way_is_said_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "kvota.gateway.repeats")
    now_s = 0.0
    journal = Journal(lambda: now_s)

    for _ in range(3):
        journal.gave_way(("mal\nlory", ""), "192.0.2.1", of=1_990, places=2_000)
    journal.gave_way((ANONYMOUS, "192.0.2.1"), "192.0.2.1", of=12, places=2_000)
    journal.gave_way(None, "192.0.2.1", of=300, places=2_000)
    first = list(caplog.messages)
    now_s = 61.0
    journal.sweep()

    begin = "all 2000 connections are in use (limits.connections_max): of the"
    end = "one has given way to a newcomer"
    assert first == [
        f'{begin} 1990 of user "mal\N{REPLACEMENT CHARACTER}lory" {end}',
        f"{begin} 12 from 192.0.2.1 {end}",
        f"{begin} 300 from 192.0.2.1 that have not logged in or asked anything yet {end}",
    ]
    assert caplog.messages[3:] == [
        '2 more connections of user "mal\N{REPLACEMENT CHARACTER}lory" have given way to newcomers within a minute'
    ]
