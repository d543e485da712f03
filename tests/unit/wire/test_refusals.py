"""What a broker says of a refused request names its connections; clients are not told where they end."""

import pytest

from kvota.wire.refusals import hide_connections
from kvota.wire.steps import STEP_BYTES

TEXT = (
    b"Request Request(processor=1, connectionId=10.0.0.7:9093-10.0.0.8:48002-1-4, "
    b"envelope=Some(Request(processor=0, connectionId=[fe80::1]:9092-[::1]:50000-0-5, envelope=None))) needs ALTER permission."
)


def test_all_ends_of_connections_are_hidden_and_lengths_stay() -> None:
    told = hide_connections(TEXT)

    assert len(told) == len(TEXT)
    assert told.count(b"connectionId=hidden.") == 2
    assert not any(end in told for end in (b"10.0.0.", b"9093", b"48002", b"fe80", b"::1"))
    assert told.startswith(b"Request Request(processor=1, connectionId=")
    assert told.endswith(b"envelope=None))) needs ALTER permission.")


def test_an_answer_without_connections_is_the_same_object() -> None:
    answer = b"connectionId" + b"x" * 2 * STEP_BYTES

    assert hide_connections(answer) is answer


@pytest.mark.parametrize("before", range(STEP_BYTES - 30, STEP_BYTES + 3, 3))
def test_a_connection_on_the_border_of_two_steps_is_hidden(before: int) -> None:
    told = hide_connections(b" " * before + TEXT)

    assert told[:before].isspace()
    assert told[before:] == hide_connections(TEXT)


def test_a_name_shorter_than_its_stand_in_keeps_its_length() -> None:
    assert hide_connections(b"connectionId=a:1,") == b"connectionId=hid,"


def test_nothing_behind_the_sign_is_nothing_to_hide() -> None:
    assert hide_connections(b"connectionId=, connectionId=") == b"connectionId=, connectionId="
