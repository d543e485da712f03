"""Addresses in the error texts of AlterConfigs and IncrementalAlterConfigs answers, in every version."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvota.testing.kafka_messages import (
    RandomMessages,
    from_frame,
    part_type,
    payload_type,
    to_frame,
    versions,
)
from kvota.wire.error_texts import KEYS, hide_addresses

BROKERS = (("broker-1.inside", 9092), ("10.1.2.3", 9093), ("fd00::7", 9092))
KEYS_AND_VERSIONS = [(key, version) for key in sorted(KEYS) for version in versions(key)]
ADDRESSED = st.sampled_from(KEYS_AND_VERSIONS)
HIDDEN = {
    "no route to broker-1.inside:9092": "no route to hidden",
    "broker-1.inside:9092,10.1.2.3:9093": "hidden,hidden",
    "[fd00::7]:9092 is one": "hidden is one",
    "'[PLAINTEXT://127.0.0.2:30852, CONTROLLER://127.0.0.2:22259]': No security protocol": (
        "'[PLAINTEXT://hidden, CONTROLLER://hidden]': No security protocol"
    ),
    "A://[::1]:9092,B://:9093,C://0.0.0.0:1": "A://hidden,B://hidden,C://hidden",
    "voters 1@controller-1:9093,2@[::1]:9093": "voters 1@hidden,2@hidden",
}
KEPT = (
    None,
    "",
    "Invalid value x for configuration retention.ms: Not a number of type LONG",
    "CLIENT:SSL",
    "0:1,1:2",
    "my-broker-1.inside:9092",
    "broker-1.inside:90921",
    "see https://kafka.apache.org/documentation",
    "someone@example.com",
    "größe",
)


def answer_of(key: int, version: int, texts: list[str | None], seed: int = 1) -> Any:
    """An answer with one resource for each text."""
    messages = RandomMessages(Random(seed))
    kind = payload_type(key, version, "response")
    part = part_type(kind, "AlterConfigsResourceResponse")
    return messages.entity(
        kind, responses=tuple(messages.entity(part, error_message=text) for text in texts)
    )


@pytest.mark.parametrize(("key", "version"), KEYS_AND_VERSIONS)
@pytest.mark.parametrize(("text", "told"), HIDDEN.items())
def test_addresses_are_hidden(key: int, version: int, text: str, told: str) -> None:
    payload = answer_of(key, version, [text])

    answer = hide_addresses(to_frame(payload), key, version, BROKERS)

    (response,) = from_frame(answer, key, version, "response").responses
    assert response == replace(payload.responses[0], error_message=told)


@pytest.mark.parametrize(("key", "version"), KEYS_AND_VERSIONS)
@pytest.mark.parametrize("text", KEPT)
def test_other_texts_stay(key: int, version: int, text: str | None) -> None:
    frame = to_frame(answer_of(key, version, [text]))

    assert hide_addresses(frame, key, version, BROKERS) == frame


@given(
    key_version=ADDRESSED,
    texts=st.lists(st.sampled_from([*HIDDEN, *KEPT]), max_size=6),
    seed=st.integers(0, 2**32),
)
@settings(deadline=None, max_examples=300)
def test_only_these_texts_change(
    key_version: tuple[int, int], texts: list[str | None], seed: int
) -> None:
    told = [HIDDEN.get(text or "", text) for text in texts]

    answer = hide_addresses(to_frame(answer_of(*key_version, texts, seed)), *key_version, BROKERS)

    assert answer == to_frame(answer_of(*key_version, told, seed))


@pytest.mark.parametrize(("key", "version"), KEYS_AND_VERSIONS)
@pytest.mark.parametrize("part", ["a://b:1 ", "@ü:1", "://" * 5_000 + "a:1 ", "@" + ":" * 20_000])
def test_the_longest_texts_stay_within_what_a_string_may_have(
    key: int, version: int, part: str
) -> None:
    text = (part * 40_000).encode()[:32_767].decode(errors="ignore")
    payload = answer_of(key, version, [text, "A://b:1", None])

    answer = hide_addresses(to_frame(payload), key, version, BROKERS)

    told = [
        response.error_message
        for response in from_frame(answer, key, version, "response").responses
    ]
    assert len(told[0].encode()) <= 32_767
    assert told[1:] == ["A://hidden", None]


def test_no_broker_need_be_known() -> None:
    frame = to_frame(answer_of(44, 1, ["A://b:1 broker-1.inside:9092"]))

    answer = hide_addresses(frame, 44, 1, ())

    (response,) = from_frame(answer, 44, 1, "response").responses
    assert response.error_message == "A://hidden broker-1.inside:9092"
