"""Unsigned varints, against kio's."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial.writers import write_unsigned_varint

from kvota.model.errors import ProtocolError
from kvota.wire.varint import read_uvarint, try_uvarint, uvarint

NUMBERS = st.integers(0, 2**35 - 1)


@given(number=NUMBERS)
def test_numbers_are_encoded_as_kio_does(number: int) -> None:
    buffer = io.BytesIO()
    write_unsigned_varint(buffer, number)

    assert uvarint(number) == buffer.getvalue()


@given(number=NUMBERS, before=st.binary(max_size=3), behind=st.binary(max_size=3))
def test_reading_gives_the_number_and_the_place_behind_it(
    number: int, before: bytes, behind: bytes
) -> None:
    data = before + uvarint(number) + behind

    assert read_uvarint(data, len(before), len(data)) == (number, len(data) - len(behind))


@given(number=NUMBERS.filter(lambda number: number > 127))
def test_a_number_that_is_cut_is_refused_or_awaited(number: int) -> None:
    cut = uvarint(number)[:-1]

    assert try_uvarint(cut, 0, len(cut)) is None
    with pytest.raises(ProtocolError):
        read_uvarint(cut, 0, len(cut))


def test_a_number_of_six_bytes_is_refused_at_once() -> None:
    with pytest.raises(ProtocolError, match="5 bytes"):
        try_uvarint(b"\x80" * 6, 0, 6)
