"""What the log says of things that happen again and again."""

import logging

import pytest

from kvota.gateway.repeats import KEYS_OF_ONE_MAX, Repeats


def refuse(repeats: Repeats, host: str, now_s: float) -> None:
    repeats.say(
        f"a connection from {host} was refused",
        about=host,
        whose=host,
        again=f"more connections from {host} were refused within a minute",
        now_s=now_s,
    )


@pytest.fixture(autouse=True)
def _from_info_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def test_a_line_is_said_once_a_minute_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    repeats = Repeats("refused connections")

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
    repeats = Repeats("refused connections")

    for _ in range(3):
        refuse(repeats, "192.0.2.1", 0)

    assert [record.levelname for record in caplog.records] == ["WARNING", "DEBUG", "DEBUG"]


def test_what_was_not_said_yet_is_said_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    repeats = Repeats("refused connections")
    for _ in range(3):
        refuse(repeats, "192.0.2.1", 0)

    repeats.finish()
    repeats.sweep(90)

    assert caplog.messages[1:] == ["2 more connections from 192.0.2.1 were refused within a minute"]


def test_many_addresses_fill_neither_the_log_nor_the_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    repeats = Repeats("refused connections")

    for number in range(5_000):
        refuse(repeats, f"2001:db8::{number:x}", 0)
    repeats.sweep(1)

    assert len(caplog.messages) == 1_001
    assert caplog.messages[-1] == "and 4000 other lines about refused connections within 2 s"


def test_one_that_changes_its_name_each_time_hides_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    repeats = Repeats("refused logins")

    def refuse_login(user: str, host: str, now_s: float) -> None:
        repeats.say(
            f"{user} from {host}", about=(user, host), whose=host, again="more", now_s=now_s
        )

    for number in range(5_000):
        refuse_login(f"u{number}", "192.0.2.1", 0)
    refuse_login("alice", "192.0.2.2", 1)
    repeats.sweep(2)

    assert len(caplog.messages) == KEYS_OF_ONE_MAX + 2
    assert caplog.messages[-2:] == [
        "alice from 192.0.2.2",
        f"and {5_000 - KEYS_OF_ONE_MAX} other lines about refused logins within 2 s",
    ]
    caplog.clear()

    repeats.sweep(62)  # a minute later it has its part again
    refuse_login("u0", "192.0.2.1", 62)
    assert caplog.messages == ["u0 from 192.0.2.1"]


def test_what_was_only_counted_is_said_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    repeats = Repeats("refused connections")
    for number in range(1_005):
        refuse(repeats, f"2001:db8:{number:x}::1", 0)

    repeats.finish()

    assert caplog.messages[-1] == "and 5 other lines about refused connections within 2 s"
