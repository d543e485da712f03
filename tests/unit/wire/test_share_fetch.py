"""ShareFetch: a request's limits, an answer's end however it is cut, and endpoints that nobody reads, against kio."""

from dataclasses import replace
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
from kvota.wire import share_fetch
from kvota.wire.node_endpoints import blank_endpoint_array
from kvota.wire.share_fetch_walker import ShareFetchAnswerWalker
from kvota.wire.steps import STEP_UNITS

SHARE_FETCH = 78
VERSIONS = st.sampled_from([1, 2])
SEEDS = st.integers(0, 2**32)
SECRET = "the-brokers-own-host.example"


def limits_at(frame: bytes, version: int) -> int:
    body = body_offset(frame, SHARE_FETCH, version, "request")
    return share_fetch.min_bytes_offset(frame, body, len(frame), version)


@given(version=VERSIONS, seed=SEEDS, most=st.integers(0, 2**31 - 1))
@settings(deadline=None, max_examples=300)
def test_a_lowered_request_asks_for_no_more_and_all_else_stays(
    version: int, seed: int, most: int
) -> None:
    payload = RandomMessages(Random(seed)).payload(SHARE_FETCH, version, "request")
    frame = to_frame(payload)
    at = limits_at(frame, version)

    lowered = bytes(share_fetch.lowered(frame, at, most_bytes=most, wait_ms=2**31 - 1))

    asked = min(payload.max_bytes, most)
    expected = replace(payload, max_bytes=asked, min_bytes=min(payload.min_bytes, asked))
    assert from_frame(lowered, SHARE_FETCH, version, "request") == expected
    assert share_fetch.max_bytes(frame, at) == payload.max_bytes
    names_topics = share_fetch.names_topics(frame, at, len(frame), version)
    assert names_topics == bool(payload.topics)


@given(version=VERSIONS, seed=SEEDS)
@settings(deadline=None, max_examples=50)
def test_a_request_cut_before_its_limits_is_refused_at_each_byte(version: int, seed: int) -> None:
    frame = RandomMessages(Random(seed)).frame(SHARE_FETCH, version, "request")
    body = body_offset(frame, SHARE_FETCH, version, "request")
    at = limits_at(frame, version)

    for end in range(body, at + 8):
        with pytest.raises(ProtocolError):
            share_fetch.min_bytes_offset(frame, body, end, version)


def answer_with(endpoints: int, seed: int, version: int) -> bytes:
    messages = RandomMessages(Random(seed))
    endpoint = part_type(payload_type(SHARE_FETCH, version, "response"), "NodeEndpoint")
    given_endpoints = tuple(
        messages.entity(endpoint, host=SECRET, port=54_321) for _ in range(endpoints)
    )
    payload = messages.payload(SHARE_FETCH, version, "response", node_endpoints=given_endpoints)
    return to_frame(payload)


def without_endpoints(frame: bytes, version: int) -> bytes:
    payload = from_frame(frame, SHARE_FETCH, version, "response")
    return to_frame(replace(payload, node_endpoints=()))


@given(version=VERSIONS, seed=SEEDS, endpoints=st.integers(0, 3), data=st.data())
@settings(deadline=None, max_examples=300)
def test_any_cuts_lead_to_the_endpoints(
    version: int, seed: int, endpoints: int, data: st.DataObject
) -> None:
    frame = answer_with(endpoints, seed, version)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(frame)), max_size=30)))

    walker, found = ShareFetchAnswerWalker(version), -1
    for at, stop in zip([0, *cuts], [*cuts, len(frame)], strict=True):
        if found < 0:
            found = walker.feed(frame, at, stop)

    # Behind them stand an empty array and no tags.
    assert found == len(without_endpoints(frame, version)) - 2


@given(version=VERSIONS, seed=SEEDS, endpoints=st.integers(0, 3))
@settings(deadline=None, max_examples=40)
def test_byte_by_byte_leads_there_too(version: int, seed: int, endpoints: int) -> None:
    frame = answer_with(endpoints, seed, version)

    walker, found = ShareFetchAnswerWalker(version), -1
    for at in range(len(frame)):
        if found < 0:
            found = walker.feed(frame, at, at + 1)

    assert found == share_fetch.endpoints_offset(frame, version)


@given(version=VERSIONS, seed=SEEDS, endpoints=st.integers(0, 3))
@settings(deadline=None, max_examples=50)
def test_an_answer_that_ends_too_early_is_refused_at_each_byte(
    version: int, seed: int, endpoints: int
) -> None:
    frame = answer_with(endpoints, seed, version)

    for end in range(8, share_fetch.endpoints_offset(frame, version) + 1):
        cut = (end - 4).to_bytes(4, "big") + frame[4:end]
        with pytest.raises(ProtocolError):
            share_fetch.endpoints_offset(cut, version)


def test_many_acquired_records_take_several_steps() -> None:
    messages = RandomMessages(Random(1))
    answer = payload_type(SHARE_FETCH, 2, "response")
    acquired = messages.entity(part_type(answer, "AcquiredRecords"))
    partition = messages.entity(
        part_type(answer, "PartitionData"), acquired_records=(acquired,) * 3 * STEP_UNITS
    )
    topic = messages.entity(
        part_type(answer, "ShareFetchableTopicResponse"), partitions=(partition,)
    )
    frame = to_frame(
        messages.payload(SHARE_FETCH, 2, "response", responses=(topic,), node_endpoints=())
    )

    steps = list(share_fetch.endpoints_offset_in_steps(frame, 2))

    assert len(steps) >= 5


@given(seed=SEEDS, endpoints=st.integers(1, 40), tags=st.sampled_from([0, 1, 126, 127, 130]))
@settings(deadline=None, max_examples=100)
def test_blanked_endpoints_keep_their_length_and_tell_nothing(
    seed: int, endpoints: int, tags: int
) -> None:
    frame = answer_with(endpoints, seed, 2)
    at = share_fetch.endpoints_offset(frame, 2)
    count = tags.to_bytes(1, "big") if tags < 128 else bytes((tags & 127 | 128, tags >> 7))
    numbers = [
        bytes((n,)) if n < 128 else bytes((n & 127 | 128, n >> 7)) for n in range(1, tags + 1)
    ]
    section = frame[at:-1] + count + b"".join(number + b"\x01t" for number in numbers)

    blanked = blank_endpoint_array(section, what="answer")

    assert len(blanked) == len(section)
    assert SECRET.encode() not in blanked
    assert blanked[0] == 1
    assert all(number + b"\x01t" in blanked for number in numbers)
    # Whoever reads it steps over one more tag; nothing is left over.
    assert blank_endpoint_array(blanked, what="answer") == blanked


def test_without_endpoints_nothing_is_blanked() -> None:
    section = b"\x01\x01\x05\x02ab"

    assert blank_endpoint_array(section, what="answer") == section


def test_a_blanked_answer_is_read_by_kafkas_rules() -> None:
    frame = answer_with(3, 5, 2)
    at = share_fetch.endpoints_offset(frame, 2)
    blanked = frame[:at] + blank_endpoint_array(frame[at:], what="answer")

    # kio refuses tags that it does not know, so they are taken off.
    read = from_frame(
        (at - 4 + 2).to_bytes(4, "big") + blanked[4 : at + 1] + b"\0", SHARE_FETCH, 2, "response"
    )
    assert read == from_frame(without_endpoints(frame, 2), SHARE_FETCH, 2, "response")
