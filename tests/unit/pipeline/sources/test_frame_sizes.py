"""Rebuilt sizes equal the frames that an independent codec, made from Kafka's own message definitions, writes."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.pipeline.sources.log_text import logged, produced

from kvota.pipeline.sources.frame_sizes import fetch_bytes, produce_bytes, varint_bytes
from kvota.testing.kafka_messages import RandomMessages, to_frame, versions

_LENGTH_BYTES = 4
_FLEXIBLE_FETCH = 12
_HAS_ENDPOINTS = 16

client_ids = st.none() | st.sampled_from(["", "app", "<script>", "müller", "x" * 200])


@pytest.mark.parametrize("version", versions(0))
@given(seed=st.integers(0, 2**32), client_id=client_ids)
def test_a_produce_has_the_size_of_its_frame(
    version: int, seed: int, client_id: str | None
) -> None:
    message = RandomMessages(Random(seed)).payload(0, version, "request")

    frame = to_frame(message, client_id=client_id)

    assert produce_bytes(version, client_id, logged(message)) == len(frame) - _LENGTH_BYTES


@pytest.mark.parametrize("version", versions(1))
@given(seed=st.integers(0, 2**32))
def test_a_fetch_has_the_size_of_its_answer(version: int, seed: int) -> None:
    messages = RandomMessages(Random(seed))
    given_ = {"node_endpoints": ()} if version >= _HAS_ENDPOINTS else {}
    message = messages.payload(1, version, "response", **given_)

    frame = to_frame(message)

    tags_of_header = int(version >= _FLEXIBLE_FETCH)
    assert fetch_bytes(version, logged(message)) == len(frame) - _LENGTH_BYTES - tags_of_header


def test_endpoints_of_other_brokers_are_not_charged() -> None:
    answer = {"responses": [], "nodeEndpoints": [{"nodeId": 1, "host": "a", "port": 1}]}

    assert fetch_bytes(16, answer) == 16


def test_an_empty_answer_of_a_fetch() -> None:
    partition = {"partitionIndex": 0, "abortedTransactions": None, "recordsSizeInBytes": 0}
    answer = {"responses": [{"topicId": "x", "partitions": [partition]}]}

    assert fetch_bytes(16, answer) == 16 + 18 + 36 + 1


def test_kafka_2_8_has_older_names_of_an_answers_parts() -> None:
    now = {"partition": 0, "abortedTransactions": [], "recordsSizeInBytes": 500}
    old = {"partition": 0, "abortedTransactions": [], "recordSetSizeInBytes": 500}

    new = {"responses": [{"topic": "orders", "partitions": [now]}]}
    before = {"responses": [{"topic": "orders", "partitionResponses": [old]}]}

    assert [fetch_bytes(version, new) for version in (11, 12)] == [
        fetch_bytes(version, before) for version in (11, 12)
    ]


def test_a_produce_that_a_real_broker_has_logged() -> None:
    assert produce_bytes(10, "app <script>", produced(24277)) == 24326


@given(number=st.integers(0, 2**31))
def test_a_varint_has_seven_bits_a_byte(number: int) -> None:
    length = 1
    while number >> (7 * length):
        length += 1

    assert varint_bytes(number) == length
