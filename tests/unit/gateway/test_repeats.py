"""What the log says of things that happen again and again."""

import logging

import pytest

from kvota.gateway.repeats import Repeats


def refuse(repeats: Repeats, host: str, now_s: float) -> None:
    repeats.say(
        f"a connection from {host} was refused",
        about=host,
        again=f"more connections from {host} were refused within a minute",
        now_s=now_s,
    )


@pytest.fixture(autouse=True)
def _from_info_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def test_a_line_is_said_once_a_minute_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    repeats = Repeats()

    for number in range(2_000):
        refuse(repeats, "192.0.2.1", number / 100)
    refuse(repeats, "192.0.2.2", 20)
    repeats.sweep(59)
    assert caplog.messages == [
        "a connection from 192.0.2.1 was refused",
        "a connection from 192.0.2.2 was refused",
    ]
    caplog.clear()

    repeats.sweep(90)
    refuse(repeats, "192.0.2.1", 91)

    assert caplog.messages == [
        "1999 more connections from 192.0.2.1 were refused within a minute",
        "a connection from 192.0.2.1 was refused",
    ]


def test_repeats_are_there_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    repeats = Repeats()

    for _ in range(3):
        refuse(repeats, "192.0.2.1", 0)

    assert [record.levelname for record in caplog.records] == ["WARNING", "DEBUG", "DEBUG"]


def test_what_was_not_said_yet_is_said_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    repeats = Repeats()
    for _ in range(3):
        refuse(repeats, "192.0.2.1", 0)

    repeats.finish()
    repeats.sweep(90)

    assert caplog.messages[1:] == ["2 more connections from 192.0.2.1 were refused within a minute"]


def test_many_addresses_fill_neither_the_log_nor_the_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    repeats = Repeats()

    for number in range(5_000):
        refuse(repeats, f"2001:db8::{number:x}", 0)
    repeats.sweep(1)

    assert len(caplog.messages) == 1_001
    assert caplog.messages[-1] == "and 4000 other lines of this kind within 2 s"
