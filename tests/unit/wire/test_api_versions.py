"""ApiVersions answers, clamped to what the gateway knows."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode

from kvota.model.errors import ProtocolError
from kvota.testing.kafka_messages import (
    RandomMessages,
    from_frame,
    part_type,
    payload_type,
    to_frame,
)
from kvota.wire import api_versions
from kvota.wire.apis import APIS, SHARE_FETCH, SHARE_GROUPS

SEEDS = st.integers(0, 2**32)


def answer_payload(version: int, seed: int, offered: dict[int, tuple[int, int]]) -> Any:
    messages = RandomMessages(Random(seed))
    entry = part_type(payload_type(18, version, "response"), "ApiVersion")
    entries = tuple(
        entry(api_key=key, min_version=low, max_version=high)
        for key, (low, high) in offered.items()
    )
    return messages.payload(18, version, "response", api_keys=entries, error_code=KioErrorCode.none)


# DescribeClientQuotas and AlterClientQuotas: the gateway answers them itself.
OWN = [(48, 0, 1), (49, 0, 1)]
OFFERS = st.dictionaries(
    st.integers(0, 100).filter(lambda key: key != SHARE_FETCH),
    st.tuples(st.integers(0, 25), st.integers(0, 25)).filter(lambda pair: pair[0] <= pair[1]),
)


@given(version=st.integers(0, 4), seed=SEEDS, offered=OFFERS)
@settings(deadline=None)
def test_only_what_both_know_is_offered_and_all_else_survives(
    version: int, seed: int, offered: dict[int, tuple[int, int]]
) -> None:
    payload = answer_payload(version, seed, offered)
    entry = part_type(type(payload), "ApiVersion")
    common = tuple(
        entry(
            api_key=key,
            min_version=max(low, APIS[key].version_min),
            max_version=min(high, APIS[key].version_max),
        )
        for key, (low, high) in offered.items()
        if key in APIS and APIS[key].version_min <= high and low <= APIS[key].version_max
        if key not in SHARE_GROUPS  # they have a test of their own
    )

    own = tuple(
        entry(api_key=key, min_version=0, max_version=1) for key in (48, 49) if key not in offered
    )

    clamped, upstream = api_versions.clamp(to_frame(payload), version)

    assert clamped == to_frame(replace(payload, api_keys=common + own))
    assert upstream == offered


def test_what_the_gateway_answers_itself_is_offered_in_the_brokers_versions_if_it_has_them() -> (
    None
):
    payload = answer_payload(3, 1, {18: (0, 4), 48: (0, 0)})

    clamped, upstream = api_versions.clamp(to_frame(payload), 3)

    kept = from_frame(clamped, 18, 3, "response").api_keys
    assert [(e.api_key, e.max_version) for e in kept] == [(18, 4), (48, 0), (49, 1)]
    assert 49 not in upstream


def test_what_kafka_4_3_offers_a_client_keeps_produce_from_0() -> None:
    payload = answer_payload(4, 1, {0: (0, 13), 1: (4, 18), 18: (0, 4), 78: (1, 2), 76: (1, 1)})

    clamped, _upstream = api_versions.clamp(to_frame(payload), 4)

    kept = from_frame(clamped, 18, 4, "response").api_keys
    assert [(e.api_key, e.min_version, e.max_version) for e in kept] == [
        (0, 0, 13),
        (1, 4, 18),
        (18, 0, 4),
        *OWN,
    ]


KAFKA_4_3 = {76: (1, 1), 77: (1, 1), 78: (1, 2), 79: (1, 2)}


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        (KAFKA_4_3, KAFKA_4_3),
        (KAFKA_4_3 | {78: (1, 3)}, KAFKA_4_3),
        (KAFKA_4_3 | {78: (1, 1)}, {}),
        (KAFKA_4_3 | {79: (3, 4)}, {}),
        *(({k: v for k, v in KAFKA_4_3.items() if k != key}, {}) for key in KAFKA_4_3),
        ({}, {}),
    ],
)
def test_share_groups_are_offered_with_all_their_apis_or_not_at_all(
    offered: dict[int, tuple[int, int]], expected: dict[int, tuple[int, int]]
) -> None:
    payload = answer_payload(4, 1, {18: (0, 4), **offered, 80: (0, 0)})

    clamped, upstream = api_versions.clamp(to_frame(payload), 4)

    kept = from_frame(clamped, 18, 4, "response").api_keys
    of_share_groups = {
        e.api_key: (e.min_version, e.max_version) for e in kept if e.api_key in SHARE_GROUPS
    }
    assert of_share_groups == expected
    assert {18, 80} <= {e.api_key for e in kept}
    assert offered.items() <= upstream.items()


def test_a_newer_broker_is_clamped_to_the_versions_we_know() -> None:
    payload = answer_payload(3, 1, {18: (0, 5), 3: (0, 14), 93: (0, 0)})

    clamped, upstream = api_versions.clamp(to_frame(payload), 3)

    kept = from_frame(clamped, 18, 3, "response").api_keys
    assert [(e.api_key, e.max_version) for e in kept] == [(18, 4), (3, 13), (48, 1), (49, 1)]
    assert upstream[93] == (0, 0)


@pytest.mark.parametrize("asked", [0, 2, 3, 4, 5])
@pytest.mark.parametrize("entries", [b"\0\0\0\0", b"\0\0\0\x01" + b"\0\x12\0\0\0\x05"])
def test_error_35_is_read_in_the_layout_of_v0_whatever_was_asked(
    asked: int, entries: bytes
) -> None:
    body = b"\0\0\0\x07" + b"\0\x23" + entries
    frame = len(body).to_bytes(4, "big") + body

    clamped, upstream = api_versions.clamp(frame, asked)

    assert len(clamped) == len(frame)
    assert upstream == ({18: (0, 5)} if len(entries) > 4 else {})
    assert clamped == frame.replace(b"\0\x12\0\0\0\x05", b"\0\x12\0\0\0\x04")


def test_our_own_error_35_says_which_versions_are_taken() -> None:
    frame = api_versions.unsupported(77)

    answer = from_frame(frame, 18, 0, "response")
    assert answer.error_code is KioErrorCode.unsupported_version
    assert [(e.api_key, e.min_version, e.max_version) for e in answer.api_keys] == [(18, 0, 4)]
    assert frame[4:8] == b"\0\0\0\x4d"


def test_tags_of_an_entry_survive() -> None:
    entry = b"\0\x03\0\0\0\x0e"
    body = b"\0\0\0\x01" + b"\0\0" + b"\x02" + entry + b"\x01\x09\x02zz" + bytes(4) + b"\0"
    frame = len(body).to_bytes(4, "big") + body

    clamped, _upstream = api_versions.clamp(frame, 3)

    assert b"\0\x03\0\0\0\x0d" + b"\x01\x09\x02zz" in clamped


@pytest.mark.parametrize("frame", [b"\0\0\0\x04\0\0\0\x01", b"\0\0\0\x07\0\0\0\x01\0\0\x7f"])
def test_an_answer_that_is_none_is_refused(frame: bytes) -> None:
    with pytest.raises(ProtocolError, match="ApiVersions v3 answer"):
        api_versions.clamp(frame, 3)
