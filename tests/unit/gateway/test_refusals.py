"""What the log says of refused connections."""

import pytest

from kvota.gateway.refusals import Refusals


def test_an_address_is_said_once_a_minute_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals()

    for number in range(2_000):
        refusals.add("192.0.2.1", "no place", number / 100)
    refusals.add("192.0.2.2", "no place", 20)
    refusals.sweep(59)
    assert caplog.messages == [
        "a connection from 192.0.2.1 was refused: no place",
        "a connection from 192.0.2.2 was refused: no place",
    ]
    caplog.clear()

    refusals.sweep(90)
    refusals.add("192.0.2.1", "no place", 91)

    assert caplog.messages == [
        "1999 more connections from 192.0.2.1 were refused within a minute: no place",
        "a connection from 192.0.2.1 was refused: no place",
    ]


def test_many_addresses_fill_neither_the_log_nor_the_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusals = Refusals()

    for number in range(5_000):
        refusals.add(f"2001:db8::{number:x}", "no place", 0)
    refusals.sweep(1)

    assert len(caplog.messages) == 1_001
    assert caplog.messages[-1] == "4000 connections from other addresses were refused, too"
