"""AlterClientQuotas and DescribeClientQuotas, against kio's encoding."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.quota_api.written import ALTER, DESCRIBE, alteration, description

from kvota.model.errors import ProtocolError
from kvota.testing.frames import decoded, resized
from kvota.testing.kafka_messages import RandomMessages, to_frame
from kvota.wire import client_quotas as wire
from kvota.wire.client_quotas import AlterResult, Part
from kvota.wire.headers import is_flexible
from kvota.wire.scanner import TEXT_BYTES_MAX
from kvota.wire.steps import STEP_PARTS, at_once

SEEDS = st.integers(0, 2**32)
VERSIONS = st.sampled_from([0, 1])
NAMES = st.none() | st.text(max_size=20)
PARTS = st.lists(st.builds(Part, st.text(max_size=20), NAMES), max_size=3).map(tuple)
VALUES = st.lists(st.tuples(st.text(max_size=20), st.floats(allow_nan=False)), max_size=4)


def random_request(key: int, version: int, seed: int) -> tuple[Any, bytes]:
    payload = RandomMessages(Random(seed)).payload(key, version, "request")
    return payload, to_frame(payload, correlation_id=seed % 1000, client_id="kafka-configs")


@given(version=VERSIONS, seed=SEEDS)
@settings(deadline=None)
def test_alterations_are_what_kio_wrote(version: int, seed: int) -> None:
    payload, frame = random_request(ALTER, version, seed)

    request = at_once(wire.scan_alteration(frame))

    assert [
        ([tuple(part) for part in entry.parts], [tuple(each) for each in entry.operations])
        for entry in request.entries
    ] == [
        (
            [(part.entity_type, part.entity_name) for part in entry.entity],
            [(op.key, None if op.remove else op.value) for op in entry.ops],
        )
        for entry in payload.entries
    ]
    assert request.validate_only == payload.validate_only


@given(version=VERSIONS, seed=SEEDS)
@settings(deadline=None)
def test_filters_are_what_kio_wrote(version: int, seed: int) -> None:
    payload, frame = random_request(DESCRIBE, version, seed)

    asked = wire.scan_filter(frame)

    assert [tuple(component) for component in asked.components] == [
        (each.entity_type, each.match_type, each.match) for each in payload.components
    ]
    assert asked.strict == payload.strict


@given(
    version=VERSIONS,
    results=st.lists(
        st.builds(AlterResult, PARTS, st.sampled_from([0, 31, 42, 44, -1]), NAMES), max_size=5
    ),
    throttle_ms=st.integers(0, 2**31 - 1),
)
@settings(deadline=None)
def test_kio_reads_the_answer_to_an_alteration(
    version: int, results: list[AlterResult], throttle_ms: int
) -> None:
    frame = at_once(wire.alteration_answer(7, version, results, throttle_ms=throttle_ms))

    answer = decoded(frame, ALTER, version)
    assert [
        (
            tuple(Part(part.entity_type, part.entity_name) for part in entry.entity),
            int(entry.error_code),
            entry.error_message,
        )
        for entry in answer.entries
    ] == results
    assert answer.throttle_time.total_seconds() == throttle_ms / 1000


@given(
    version=VERSIONS,
    found=st.lists(st.tuples(PARTS, VALUES.map(tuple)), max_size=5),
)
@settings(deadline=None)
def test_kio_reads_a_description(
    version: int, found: list[tuple[tuple[Part, ...], tuple[tuple[str, float], ...]]]
) -> None:
    flexible = is_flexible(DESCRIBE, version)
    entries = [wire.encode_described(*each, flexible=flexible) for each in found]
    frame = wire.description_answer(7, version, entries, throttle_ms=3)

    answer = decoded(frame, DESCRIBE, version)
    assert [
        (
            tuple(Part(part.entity_type, part.entity_name) for part in entry.entity),
            tuple((value.key, value.value) for value in entry.values),
        )
        for entry in answer.entries
    ] == found
    assert (int(answer.error_code), answer.error_message) == (0, "")


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("message", [None, "no"])
def test_kio_reads_the_refusal_of_a_description(version: int, message: str | None) -> None:
    frame = wire.description_refusal(7, version, 42, message, throttle_ms=5)

    answer = decoded(frame, DESCRIBE, version)
    assert (int(answer.error_code), answer.error_message, answer.entries) == (42, message, None)


@pytest.mark.parametrize("version", [0, 1])
def test_words_that_repeat_a_long_name_are_cut(version: int) -> None:
    result = AlterResult((), 42, "ü" * 40_000)

    frame = at_once(wire.alteration_answer(7, version, [result], throttle_ms=0))

    (entry,) = decoded(frame, ALTER, version).entries
    assert entry.error_message == "ü" * (TEXT_BYTES_MAX // 2)


# ------------------------------------------------------------------ bytes that are no such request


@given(version=VERSIONS, seed=SEEDS, data=st.data())
@settings(deadline=None)
def test_a_request_that_is_cut_or_changed_is_read_or_refused(
    version: int, seed: int, data: st.DataObject
) -> None:
    _payload, frame = random_request(ALTER, version, seed)
    at = data.draw(st.integers(14, len(frame) - 1))
    byte = data.draw(st.integers(0, 255))
    for broken in (resized(frame[:at]), resized(frame[:at] + bytes((byte,)) + frame[at + 1 :])):
        try:
            at_once(wire.scan_alteration(broken))
        except ProtocolError:
            continue


def test_bytes_behind_a_request_are_refused() -> None:
    with pytest.raises(ProtocolError, match="1 bytes behind the last field"):
        at_once(wire.scan_alteration(resized(alteration(({"user": "a"}, {"x": 1.0})) + b"\0")))
    with pytest.raises(ProtocolError, match="1 bytes behind the last field"):
        wire.scan_filter(resized(description() + b"\0"))


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (wire.ENTRIES_MAX + 1, "20001 entities in one request"),
        (2**31 - 1, "an array of 2147483647 items"),
        (-2, "an array of -2 items"),
        (-1, "-1 entities in one request"),
    ],
)
def test_a_count_that_cannot_be_is_refused_before_anything_is_allocated(
    count: int, words: str
) -> None:
    filling = bytes(2 * wire.ENTRIES_MAX + 10)
    head = alteration(version=0)[:17]
    frame = resized(head + count.to_bytes(4, "big", signed=True) + filling)

    with pytest.raises(ProtocolError, match=words):
        at_once(wire.scan_alteration(frame))


def test_values_without_number_are_bounded_over_all_entities() -> None:
    many = [({"user": f"u{number}"}, [("k", 1.0)] * 1_000) for number in range(101)]

    with pytest.raises(ProtocolError, match="more items than one message may have"):
        at_once(wire.scan_alteration(alteration(*many)))


def test_a_filter_of_endless_conditions_is_refused() -> None:
    with pytest.raises(ProtocolError, match="more items than one message may have"):
        wire.scan_filter(description(*[("user", 0, "a")] * 1_001))


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("client", [None, "", "kafka-configs"])
def test_the_announced_entities_are_counted_from_the_head(version: int, client: str | None) -> None:
    frame = alteration(
        *[({"user": f"u{number}"}, {"k": 1.0}) for number in range(300)],
        version=version,
        client=client,
    )

    assert wire.announced_entries(frame[:100]) == 300


def test_a_large_request_is_read_in_steps() -> None:
    many = [({"user": f"u{number}"}, {"k": 1.0, "l": None}) for number in range(STEP_PARTS)]

    steps = list(wire.scan_alteration(alteration(*many)))

    assert len(steps) == 2
