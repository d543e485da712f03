"""Answers to mutations, merged with refusals, against kio's encoding."""

from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode

from kvota.model.errors import ProtocolError
from kvota.testing.kafka_messages import (
    RandomMessages,
    from_frame,
    throttle,
    to_frame,
    versions,
)
from kvota.wire import mutations
from kvota.wire.apis import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from kvota.wire.error_code import ErrorCode

SEEDS = st.integers(0, 2**32)
ALL = [
    (key, version)
    for key in (CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS)
    for version in versions(key)
]
ANY = st.sampled_from(ALL)
SOME_ID = bytes(range(16))
REFUSALS = [
    mutations.Refusal(
        name="storm-1",
        topic_id=SOME_ID,
        error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        message="The throttling quota has been exceeded.",
    ),
    mutations.Refusal(name="storm-2", error_code=ErrorCode.POLICY_VIOLATION),
]


def topics_of(payload: Any) -> Any:
    names = [n for n in ("topics", "responses", "results") if hasattr(payload, n)]
    return getattr(payload, names[0])


@given(key_version=ANY, seed=SEEDS)
@settings(deadline=None, max_examples=200)
def test_an_answer_is_what_kio_wrote(key_version: tuple[int, int], seed: int) -> None:
    payload = RandomMessages(Random(seed)).payload(*key_version, "response")
    frame = to_frame(payload, correlation_id=9)

    answer = mutations.scan_answer(frame, *key_version)

    topics = topics_of(payload)
    assert [t.name for t in answer.topics] == [t.name for t in topics]
    assert [t.error_code for t in answer.topics] == [t.error_code.value for t in topics]
    assert [t.error_message for t in answer.topics] == [
        getattr(t, "error_message", None) for t in topics
    ]
    assert [t.partitions for t in answer.topics] == [
        getattr(t, "num_partitions", -1) for t in topics
    ]
    assert answer.throttle_ms == round(payload.throttle_time.total_seconds() * 1000)


@given(key_version=ANY, seed=SEEDS, throttle_ms=st.sampled_from((0, 1000, 2**31 - 1)))
@settings(deadline=None, max_examples=200)
def test_refusals_stand_behind_what_the_broker_answered(
    key_version: tuple[int, int], seed: int, throttle_ms: int
) -> None:
    payload = RandomMessages(Random(seed)).payload(
        *key_version, "response", throttle_time=throttle(1000)
    )
    frame = to_frame(payload, correlation_id=9)

    merged = mutations.merge(frame, *key_version, REFUSALS, throttle_ms)

    answer = from_frame(merged, *key_version, "response")
    theirs, ours = topics_of(answer)[:-2], topics_of(answer)[-2:]
    assert theirs == topics_of(payload)
    assert [t.name for t in ours] == ["storm-1", "storm-2"]
    assert [t.error_code.value for t in ours] == [89, 44]
    assert answer.throttle_time == throttle(max(1000, throttle_ms))
    assert merged[4:8] == frame[4:8]


@given(key_version=ANY, seed=SEEDS)
@settings(deadline=None)
def test_nothing_refused_leaves_the_answer_as_it_was(
    key_version: tuple[int, int], seed: int
) -> None:
    frame = RandomMessages(Random(seed)).frame(*key_version, "response")

    assert mutations.merge(frame, *key_version, [], 0) == frame


@pytest.mark.parametrize(("key", "version"), ALL)
def test_an_answer_of_our_own_is_what_kio_reads(key: int, version: int) -> None:
    frame = mutations.answer(31, key, version, REFUSALS, 1500)

    answer = from_frame(frame, key, version, "response")
    assert answer.throttle_time == throttle(1500)
    assert [(t.name, t.error_code.value) for t in topics_of(answer)] == [
        ("storm-1", 89),
        ("storm-2", 44),
    ]
    assert frame[4:8] == b"\0\0\0\x1f"
    assert frame == to_frame(answer, correlation_id=31)


@pytest.mark.parametrize(("key", "version"), [(CREATE_TOPICS, 7), (DELETE_TOPICS, 6)])
def test_ids_are_answered_where_the_version_has_them(key: int, version: int) -> None:
    answer = from_frame(mutations.answer(1, key, version, REFUSALS, 0), key, version, "response")

    assert [t.topic_id for t in topics_of(answer)] == [UUID(bytes=SOME_ID), None]


def test_a_deletion_by_id_is_refused_without_a_name() -> None:
    refusal = mutations.Refusal(name=None, topic_id=SOME_ID, error_code=89, message="later")

    answer = from_frame(mutations.answer(1, DELETE_TOPICS, 6, [refusal], 0), 20, 6, "response")

    (topic,) = answer.responses
    assert (topic.name, topic.error_message) == (None, "later")


@pytest.mark.parametrize(
    ("key", "version"), [(CREATE_TOPICS, 0), (CREATE_TOPICS, 1), (DELETE_TOPICS, 0)]
)
def test_the_first_versions_have_no_throttle_time(key: int, version: int) -> None:
    frame = mutations.answer(1, key, version, REFUSALS, 1500)

    scanned = mutations.scan_answer(frame, key, version)

    assert (scanned.throttle_at, scanned.throttle_ms) == (-1, 0)
    assert [t.name for t in scanned.topics] == ["storm-1", "storm-2"]
    assert mutations.merge(frame, key, version, [], 2000) == frame


def test_an_error_code_and_tags_that_nobody_knows_survive() -> None:
    topic = b"\x02t" + bytes(16) + b"\x00\xf0" + b"\0" + b"\x01\x07\x02zz"
    head = b"\0\0\0\x05" + b"\0" + bytes(4)
    tail = b"\x01\x63\x01y"
    frame = sized(head + b"\x02" + topic + tail)

    merged = mutations.merge(frame, DELETE_TOPICS, 6, REFUSALS[1:], 7)

    refused = b"\x08storm-2" + bytes(16) + b"\x00\x2c" + b"\0" + b"\0"
    raised = b"\0\0\0\x05" + b"\0" + b"\0\0\0\x07"
    assert merged == sized(raised + b"\x03" + topic + refused + tail)
    assert mutations.scan_answer(frame, DELETE_TOPICS, 6).topics[0].error_code == 240


def sized(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("rest", [b"", b"\x7f\xff\xff\xff", b"\0\0\0\x01\0\x05ab", b"\0\0\0\0x"])
def test_what_is_no_answer_is_refused(rest: bytes) -> None:
    frame = sized(b"\0\0\0\x05" + bytes(4) + rest)

    with pytest.raises(ProtocolError, match="DeleteTopics v3 answer"):
        mutations.merge(frame, DELETE_TOPICS, 3, REFUSALS, 0)


def test_error_codes_are_kafkas() -> None:
    ours = {code.name.lower(): code.value for code in ErrorCode}
    kios = {code.name: code.value for code in KioErrorCode}

    assert {name: number for name, number in ours.items() if kios.get(name) != number} == {}


def test_a_topic_of_the_answer_can_be_cut_out_by_its_place() -> None:
    payload = RandomMessages(Random(4)).payload(CREATE_TOPICS, 7, "response")
    frame = to_frame(payload)
    scanned = mutations.scan_answer(frame, CREATE_TOPICS, 7)
    first = scanned.topics[0]

    cut_out = frame[4 : scanned.topics_at] + b"\x02" + frame[first.at : first.end]

    assert len(payload.topics) > 1
    assert sized(cut_out + frame[scanned.topics_end :]) == to_frame(
        replace(payload, topics=payload.topics[:1])
    )
