"""Every read stops at the end of the message."""

from collections.abc import Callable
from contextlib import nullcontext

import pytest

from kvota.model.errors import ProtocolError
from kvota.wire.scanner import Scanner

READS: dict[str, Callable[[Scanner], object]] = {
    "skip": lambda scanner: scanner.skip(1),
    "take": lambda scanner: scanner.take(3),
    "int8": Scanner.int8,
    "int16": Scanner.int16,
    "int32": Scanner.int32,
    "int64": Scanner.int64,
    "boolean": Scanner.boolean,
    "uvarint": Scanner.uvarint,
    "blob": Scanner.blob,
    "text": Scanner.text,
    "skip_text": Scanner.skip_text,
    "count": lambda scanner: scanner.count(1),
    "skip_tags": Scanner.skip_tags,
}


def scanner(data: bytes, *, flexible: bool = True) -> Scanner:
    return Scanner(data, 0, len(data), flexible=flexible, what="Some v1 request")


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_reading_behind_the_last_byte_is_refused(read: Callable[[Scanner], object]) -> None:
    with pytest.raises(ProtocolError, match=r"Some v1 request: at byte 0: a (field|varint)"):
        read(scanner(b""))


@pytest.mark.parametrize("flexible", [True, False])
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_an_end_before_the_last_byte_is_kept(
    read: Callable[[Scanner], object], flexible: bool
) -> None:
    inside = Scanner(bytes(64), 10, 10, flexible=flexible, what="inside")

    # Messages without tag buffers have nothing to step over.
    is_nothing = read is READS["skip_tags"] and not flexible

    with nullcontext() if is_nothing else pytest.raises(ProtocolError, match="inside: at byte 10"):
        read(inside)
    assert inside.at == 10


@pytest.mark.parametrize(
    ("data", "flexible"),
    [(b"\xff\xff\xff\xff\x0f", True), (b"\x7f\xff\xff\xff", False), (b"\xff\xff\xff\xfe", False)],
)
def test_a_count_for_which_the_message_is_too_short_is_refused_at_once(
    data: bytes, flexible: bool
) -> None:
    with pytest.raises(ProtocolError, match="an array of"):
        scanner(data + bytes(100), flexible=flexible).count(2)


def test_as_many_tagged_fields_as_nobody_sends_are_refused_at_once() -> None:
    with pytest.raises(ProtocolError, match="tagged fields"):
        scanner(b"\xff\xff\xff\xff\x0f" + bytes(100)).skip_tags()


def test_a_null_array_counts_minus_one() -> None:
    assert (scanner(b"\0").count(1), scanner(b"\xff" * 4, flexible=False).count(1)) == (-1, -1)


def test_null_and_empty_texts_differ() -> None:
    both = scanner(b"\x00\x01")

    assert (both.text(), both.text()) == (None, "")


@pytest.mark.parametrize("data", [b"\xff\xfeabc", b"\x00\x05abc"])
def test_a_text_of_impossible_length_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"a field of (-2|5) bytes, 3 are left"):
        scanner(data, flexible=False).text()


def test_a_text_that_is_not_utf_8_is_refused_with_its_place() -> None:
    with pytest.raises(ProtocolError, match=r"Some v1 request: at byte 3: .*UTF-8"):
        scanner(b"\x03\xff\xfe").text()


def test_null_where_a_name_is_required_is_refused() -> None:
    with pytest.raises(ProtocolError, match="null where a string is required"):
        scanner(b"\x00").name()


def test_bytes_behind_the_last_field_are_refused() -> None:
    rest = scanner(b"\x01\x02")
    rest.skip(1)

    with pytest.raises(ProtocolError, match="1 bytes behind the last field"):
        rest.finish()


def test_signed_numbers_are_read_as_such() -> None:
    numbers = scanner(b"\xff" * 15)

    assert [numbers.int8(), numbers.int16(), numbers.int32(), numbers.int64()] == [-1, -1, -1, -1]
