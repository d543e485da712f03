"""Where bodies begin, against kio's encoding of headers."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvota.model.errors import ProtocolError
from kvota.testing.kafka_messages import RandomMessages, body_offset, versions
from kvota.wire.apis import APIS
from kvota.wire.headers import (
    HEADER_TAGS_BYTES_MAX,
    REQUEST_HEAD,
    answer_body_offset,
    encode_answer,
    encode_request,
    read_answer_head,
    request_body_offset,
    request_header_version,
    with_size,
)

KEYS_AND_VERSIONS = st.sampled_from([(key, version) for key in APIS for version in versions(key)])
SEEDS = st.integers(0, 2**32)


def request(
    tags: bytes, *, client_id: bytes | None = b"client", key: int = 1, version: int = 18
) -> bytes:
    length = -1 if client_id is None else len(client_id)
    body = (client_id or b"") + tags + b"body"
    return REQUEST_HEAD.pack(10 + len(body), key, version, 7, length) + body


@given(key_version=KEYS_AND_VERSIONS, seed=SEEDS)
@settings(deadline=None)
def test_a_requests_body_begins_where_kio_says(key_version: tuple[int, int], seed: int) -> None:
    frame = RandomMessages(Random(seed)).frame(*key_version, "request")
    client_id_bytes = REQUEST_HEAD.unpack_from(frame)[4]

    at = request_body_offset(
        frame, 0, len(frame), client_id_bytes, request_header_version(*key_version)
    )

    assert at == body_offset(frame, *key_version, "request")


@given(key_version=KEYS_AND_VERSIONS, seed=SEEDS)
@settings(deadline=None)
def test_an_answers_body_begins_where_kio_says(key_version: tuple[int, int], seed: int) -> None:
    frame = RandomMessages(Random(seed)).frame(*key_version, "response")

    head = read_answer_head(frame, *key_version)

    assert head.body_at == body_offset(frame, *key_version, "response")
    assert head.size_bytes == len(frame) - 4
    assert head.correlation_id == int.from_bytes(frame[4:8], "big", signed=True)


@pytest.mark.parametrize("tags", [b"\0", b"\x01\x05\x03abc", b"\x02\x00\x00\x81\x01\x01x"])
def test_tagged_fields_of_a_header_are_stepped_over(tags: bytes) -> None:
    frame = request(tags)

    assert request_body_offset(frame, 0, len(frame), 6, 2) == len(frame) - 4


@pytest.mark.parametrize("here_bytes", range(14, 25))
def test_a_header_that_is_not_all_here_asks_for_more(here_bytes: int) -> None:
    frame = request(b"\x01\x05\x03abc")

    assert request_body_offset(frame[:here_bytes], 0, len(frame), 6, 2) is None


def test_positions_count_from_the_chunk_not_from_the_frame() -> None:
    frame = request(b"\x01\x05\x03abc")
    chunk = b"earlier" + frame + b"later"

    assert request_body_offset(chunk, 7, 7 + len(frame), 6, 2) == 7 + len(frame) - 4


def test_a_null_client_id_takes_no_bytes() -> None:
    frame = request(b"", client_id=None, version=11)

    assert request_body_offset(frame, 0, len(frame), -1, 1) == 14


@pytest.mark.parametrize(
    ("frame", "client_id_bytes"),
    [
        (request(b"\0"), -2),
        (request(b"\0"), 30_000),
        (request(b"\xff\xff\xff\xff\x0f"), 6),
        (request(b"\x01\x05\xff\xff\xff\x7f"), 6),
    ],
)
def test_a_header_longer_than_its_request_is_refused(frame: bytes, client_id_bytes: int) -> None:
    with pytest.raises(ProtocolError, match="header"):
        request_body_offset(frame, 0, len(frame), client_id_bytes, 2)


def test_a_client_id_that_reaches_beyond_an_old_request_is_refused() -> None:
    frame = request(b"", version=11)

    with pytest.raises(ProtocolError, match="client id of 11 bytes reaches beyond"):
        request_body_offset(frame, 0, len(frame), 11, 1)


def test_header_tags_without_end_are_refused_before_they_are_awaited() -> None:
    tags = b"\x01\x05\xff\xff\x3f" + bytes(HEADER_TAGS_BYTES_MAX)
    frame = request(tags + bytes(2_000_000))

    with pytest.raises(ProtocolError, match="1024 bytes"):
        request_body_offset(frame[:2000], 0, len(frame), 6, 2)


def test_an_answer_of_api_versions_never_has_header_tags() -> None:
    frame = encode_answer(18, 3, 5, b"body")

    assert frame == b"\0\0\0\x08\0\0\0\x05body"


def test_an_answer_head_that_is_not_all_here_asks_for_more() -> None:
    assert answer_body_offset(b"\0\0\0\x20\0\0\0\x01", 0, 36, 1) is None


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        (b"", "0 bytes are too few"),
        (b"\0\0\0", "3 bytes are too few"),
        (b"\0\0\0\x09\0\0\0\x01", "announces 9 bytes, has 4"),
        (b"\0\0\0\x05\0\0\0\x01\x80", "its tagged fields end neither"),
    ],
)
def test_an_answer_that_is_no_frame_is_refused(frame: bytes, problem: str) -> None:
    with pytest.raises(ProtocolError, match=problem):
        read_answer_head(frame, 1, 12)


def test_own_requests_have_a_head_that_we_read_back() -> None:
    frame = encode_request(3, 12, 99, b"body", client_id="kvota")

    assert REQUEST_HEAD.unpack_from(frame) == (len(frame) - 4, 3, 12, 99, 5)
    assert request_body_offset(frame, 0, len(frame), 5, 2) == len(frame) - 4


def test_the_size_of_joined_parts_is_corrected() -> None:
    assert with_size([b"\0\0\0\0abc", b"de"]) == b"\0\0\0\x05abcde"
