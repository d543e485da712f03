"""Limits of a Fetch request, and the walk over an answer, against kio's encoding."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvota.model.errors import ProtocolError
from kvota.testing.kafka_messages import (
    RandomMessages,
    body_offset,
    from_frame,
    part_type,
    payload_type,
    to_frame,
)
from kvota.wire import fetch
from kvota.wire.fetch_walker import FetchAnswerWalker
from kvota.wire.node_endpoints import blank_endpoints

SEEDS = st.integers(0, 2**32)


@pytest.mark.parametrize("version", range(4, 19))
def test_the_limits_of_a_request_stand_where_they_are_looked_for(version: int) -> None:
    messages = RandomMessages(Random(version))
    payload = messages.payload(1, version, "request", min_bytes=0x01020304, max_bytes=0x05060708)
    frame = to_frame(payload)
    body_at = body_offset(frame, 1, version, "request")

    limits = frame[body_at + fetch.limits_offset(version) :][:12]

    assert limits[4:] == bytes(range(1, 9))
    assert limits[:4] == int(payload.max_wait.total_seconds() * 1000).to_bytes(4, "big")
    assert fetch.max_bytes_offset(version) == fetch.limits_offset(version) + 8


def test_old_requests_have_no_limit_in_bytes() -> None:
    assert [fetch.max_bytes_offset(version) for version in range(4)] == [-1, -1, -1, 12]


def with_endpoints(version: int, seed: int, endpoints: int) -> tuple[bytes, bytes]:
    """An answer, and the same without node endpoints."""
    messages = RandomMessages(Random(seed))
    answer = payload_type(1, version, "response")
    endpoint = part_type(answer, "NodeEndpoint")
    given_endpoints = tuple(messages.entity(endpoint) for _ in range(endpoints))
    full = messages.payload(1, version, "response", node_endpoints=given_endpoints)
    bare = type(full)(
        **{name: getattr(full, name) for name in full.__slots__ if name != "node_endpoints"}
    )
    return to_frame(full), to_frame(bare)


@given(version=st.integers(16, 18), seed=SEEDS, endpoints=st.integers(0, 4))
@settings(deadline=None, max_examples=400)
def test_the_last_tags_begin_where_the_walk_ends(version: int, seed: int, endpoints: int) -> None:
    frame, bare = with_endpoints(version, seed, endpoints)

    at = fetch.tags_offset(frame, version)

    assert at == len(bare) - 1
    assert frame[4:at] == bare[4:-1]


@given(version=st.integers(16, 18), seed=SEEDS, endpoints=st.integers(1, 4))
@settings(deadline=None, max_examples=400)
def test_a_tail_with_endpoints_is_never_judged_free_of_them(
    version: int, seed: int, endpoints: int
) -> None:
    frame, _bare = with_endpoints(version, seed, endpoints)

    assert not fetch.tail_has_no_endpoints(frame[-fetch.TAIL_BYTES :])


@pytest.mark.parametrize("rack", [None, "", "a", "zone-b", "x" * 200])
@pytest.mark.parametrize("port", [1, 255, 256, 512, 9092, 9216, 65_280, 65_535])
@pytest.mark.parametrize("host", ["", "h", "broker.example"])
def test_no_address_and_no_rack_hides_endpoints_from_the_tail(
    host: str, port: int, rack: str | None
) -> None:
    answer = payload_type(1, 17, "response")
    endpoint = part_type(answer, "NodeEndpoint")(node_id=0, host=host, port=port, rack=rack)
    messages = RandomMessages(Random(port))

    frame = messages.frame(1, 17, "response", node_endpoints=(endpoint,))

    assert not fetch.tail_has_no_endpoints(frame)


@pytest.mark.parametrize(
    "records",
    [
        b"a batch that ends in its last record's value and no headers, \x07\x01\0",
        b"a batch whose last value is a long of zero and more" + bytes(8),
    ],
)
def test_the_tail_of_ordinary_records_needs_no_walk(records: bytes) -> None:
    frame = plain_answer(records)

    assert fetch.tail_has_no_endpoints(frame[-fetch.TAIL_BYTES :])
    assert fetch.tail_has_no_endpoints(memoryview(frame)[-fetch.TAIL_BYTES :])


def plain_answer(records: bytes, partitions: int = 1) -> bytes:
    answer = payload_type(1, 17, "response")
    messages = RandomMessages(Random(1))
    kind = part_type(answer, "PartitionData")
    plain = {name: part_type(answer, kind_)() for name, kind_ in TAGGED_PARTS.items()}
    partition = messages.entity(kind, records=records, aborted_transactions=None, **plain)
    topic = messages.entity(
        part_type(answer, "FetchableTopicResponse"), partitions=(partition,) * partitions
    )
    return messages.frame(1, 17, "response", responses=(topic,), node_endpoints=())


TAGGED_PARTS = {
    "diverging_epoch": "EpochEndOffset",
    "current_leader": "LeaderIdAndEpoch",
    "snapshot_id": "SnapshotId",
}


def test_many_plain_partitions_are_walked() -> None:
    frame = plain_answer(bytes(1000), partitions=300)

    assert fetch.tags_offset(frame, 17) == len(frame) - 1


def test_a_walker_keeps_only_a_few_bytes_of_a_large_answer() -> None:
    frame = plain_answer(bytes(300_000))
    walker = FetchAnswerWalker(17)

    found = [walker.feed(frame[at : at + 100_000]) for at in range(0, 300_000, 100_000)]

    assert found == [-1, -1, -1]
    assert len(walker._pending) < 64


def test_once_found_all_that_follows_belongs_to_the_last_tags() -> None:
    frame, bare = with_endpoints(17, 3, 2)
    walker = FetchAnswerWalker(17)

    assert walker.feed(frame, 0, len(bare)) == len(bare) - 1
    assert walker.feed(frame, len(bare), len(frame)) == len(bare)


def test_last_tags_that_begin_a_chunk_are_found_at_the_end_of_the_one_before() -> None:
    frame, bare = with_endpoints(17, 3, 2)
    walker = FetchAnswerWalker(17)

    assert walker.feed(frame[: len(bare) - 1]) == len(bare) - 1
    assert walker.feed(frame[len(bare) - 1 :]) == 0


def test_records_longer_than_their_answer_are_refused_when_they_begin() -> None:
    frame = bytearray(plain_answer(bytes(300_000)))
    frame[3] ^= 0x80  # some bytes shorter or longer than it is
    announced = int.from_bytes(frame[:4], "big") - 100_000
    frame[0:4] = announced.to_bytes(4, "big")

    with pytest.raises(ProtocolError, match="its last tags are yet to come"):
        FetchAnswerWalker(17).feed(bytes(frame[:1000]))


@pytest.mark.parametrize("size_bytes", [-1, 0, 5])
def test_an_impossible_size_is_refused(size_bytes: int) -> None:
    with pytest.raises(ProtocolError, match="too few"):
        FetchAnswerWalker(17).feed(size_bytes.to_bytes(4, "big", signed=True) + bytes(30))


def test_an_answer_that_ends_within_its_topics_is_refused() -> None:
    frame = bytearray(plain_answer(b"abc")[:-6])
    frame[0:4] = (len(frame) - 4).to_bytes(4, "big")

    with pytest.raises(ProtocolError, match="its last tags are yet to come"):
        fetch.tags_offset(bytes(frame), 17)


def test_a_frame_that_is_not_whole_is_refused() -> None:
    with pytest.raises(ProtocolError, match="its last tags are yet to come"):
        fetch.tags_offset(plain_answer(bytes(1000))[:500], 17)


@given(version=st.integers(16, 18), seed=SEEDS, endpoints=st.integers(0, 4))
@settings(deadline=None, max_examples=200)
def test_blanking_hides_every_endpoint_and_keeps_every_length(
    version: int, seed: int, endpoints: int
) -> None:
    frame, bare = with_endpoints(version, seed, endpoints)
    at = fetch.tags_offset(frame, version)

    blanked = blank_endpoints(frame[at:])

    assert len(blanked) == len(frame) - at
    assert set(blanked[4:]) <= {0}
    assert (blanked == frame[at:]) == (endpoints == 0)
    assert from_frame(bare, 1, version, "response").node_endpoints == ()


@pytest.mark.parametrize(
    ("section", "blanked"),
    [
        (b"\0", b"\0"),
        (b"\x01\x00\x03abc", b"\x01\x7f\x03\0\0\0"),
        (b"\x02\x00\x03abc\x05\x01z", b"\x02\x05\x01z\x7f\x03\0\0\0"),
        (b"\x02\x00\x01a\x7f\x01z", b"\x02\x7e\x01\0\x7f\x01z"),
        (b"\x01\x05\x01z", b"\x01\x05\x01z"),
        # The same number in a longer encoding than need be.
        (b"\x01\x80\x00\x01a", b"\x01\xff\x00\x01\0"),
        (b"\x02\x00\x01a\x00\x01b", b"\x02\x7e\x01\0\x7f\x01\0"),
    ],
)
def test_blanking_changes_only_tag_zero(section: bytes, blanked: bytes) -> None:
    assert blank_endpoints(section) == blanked


@pytest.mark.parametrize(
    "section", [b"", b"\x01", b"\x01\x00\x05ab", b"\0\0", b"\xff\xff\xff\xff\x0f"]
)
def test_last_tags_that_do_not_fill_the_answer_are_refused(section: bytes) -> None:
    with pytest.raises(ProtocolError, match="last tags"):
        blank_endpoints(section)


@pytest.mark.parametrize("version", [16, 17, 18])
def test_an_empty_answer_is_known_without_a_walk(version: int) -> None:
    empty = fetch.empty_answer(7, version, throttle_ms=0, error_code=0)

    assert fetch.has_no_topics(empty)
    assert not fetch.has_no_topics(plain_answer(b"abc"))


@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 16_382, 16_383, 16_384, 2_097_151])
def test_records_of_any_length_are_stepped_over(length: int) -> None:
    frame = plain_answer(bytes(length), partitions=3)

    assert fetch.tags_offset(frame, 17) == len(frame) - 1


@pytest.mark.parametrize("version", range(4, 19))
def test_an_empty_answer_is_what_kio_reads(version: int) -> None:
    frame = fetch.empty_answer(7, version, throttle_ms=1500, error_code=0)

    answer = from_frame(frame, 1, version, "response")

    assert answer.throttle_time.total_seconds() == 1.5
    assert answer.responses == ()
