"""Answers of real brokers: Kafka 4.3.1 (two nodes) and 3.9.2 (one), recorded byte for byte.

Each line of the files is one answer; the first names the brokers, which were on 127.0.0.2. Requests
were made with kio, those of versions it lacks by hand; "not leader" asks the wrong one of two nodes.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from kvota.testing.kafka_messages import from_frame, throttle, versions
from kvota.wire import (
    addresses,
    api_versions,
    fetch,
    mutations,
    produce,
    questions,
)
from kvota.wire.apis import APIS, name_of
from kvota.wire.error_code import ErrorCode
from kvota.wire.node_endpoints import blank_endpoints

FOLDER = Path(__file__).parent
HOST = b"127.0.0.2"


@dataclass(frozen=True, slots=True)
class Recorded:
    """One answer of a broker."""

    kafka: str
    key: int
    version: int
    what: str
    answer: bytes
    ports: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.kafka}-{name_of(self.key)}-v{self.version}-{self.what.replace(' ', '_')}"


def recorded(kafka: str) -> list[Recorded]:
    about, *lines = (FOLDER / f"answers-{kafka}.jsonl").read_text(encoding="utf-8").splitlines()
    ports = tuple(port for _node_id, _host, port in json.loads(about)["brokers"])
    return [
        Recorded(
            kafka, line["key"], line["version"], line["what"], bytes.fromhex(line["answer"]), ports
        )
        for line in map(json.loads, lines)
    ]


ALL = [*recorded("4.3.1"), *recorded("3.9.2")]


def some(key: int, what: str, version_min: int = 0) -> list[Recorded]:
    return [
        one for one in ALL if one.key == key and one.what == what and one.version >= version_min
    ]


def learnt(one: Recorded) -> tuple[bytes, list[tuple[int, str, int]]]:
    seen: list[tuple[int, str, int]] = []

    def address_of(node_id: int, host: str, port: int) -> tuple[str, int]:
        seen.append((node_id, host, port))
        return "127.0.0.1", 19_092 + node_id

    return addresses.rewrite(one.answer, one.key, one.version, address_of), seen


@pytest.mark.parametrize("one", ALL, ids=str)
def test_no_address_of_a_broker_is_left(one: Recorded) -> None:
    answer, _seen = learnt(one)

    assert HOST not in answer
    assert [port for port in one.ports if port.to_bytes(4, "big") in answer] == []


ADDRESSED = [
    *some(3, "topic orders"),
    *some(10, "group g"),
    *some(60, "cluster"),
    *some(0, "not leader", 10),
    *some(1, "not leader", 16),
]


@pytest.mark.parametrize("one", ADDRESSED, ids=str)
def test_the_brokers_of_an_answer_are_learnt(one: Recorded) -> None:
    answer, seen = learnt(one)

    assert {(host.encode(), port) for _node, host, port in seen} <= {
        (HOST, port) for port in one.ports
    }
    assert seen
    assert answer != one.answer
    from_frame(answer, one.key, one.version, "response")


PRODUCED = [one for one in ALL if one.key == 0 and one.version in versions(0)[1:]]
MUTATED = [
    one for one in ALL if one.key in {19, 20, 37} and one.version >= APIS[one.key].throttle_from
]


@pytest.mark.parametrize("one", PRODUCED, ids=str)
def test_the_throttle_time_of_a_real_produce_answer_is_found(one: Recorded) -> None:
    before = from_frame(one.answer, 0, one.version, "response")
    at = produce.throttle_offset(one.answer, one.version)

    raised = one.answer[:at] + (777).to_bytes(4, "big") + one.answer[at + 4 :]

    after = from_frame(raised, 0, one.version, "response")
    assert after == replace(before, throttle_time=throttle(777))


@pytest.mark.parametrize("one", MUTATED, ids=str)
def test_the_throttle_time_of_a_real_mutation_is_raised(one: Recorded) -> None:
    before = from_frame(one.answer, one.key, one.version, "response")

    raised = mutations.merge(one.answer, one.key, one.version, [], 777)

    after = from_frame(raised, one.key, one.version, "response")
    assert after == replace(before, throttle_time=throttle(777))


@pytest.mark.parametrize("one", some(0, "written", 9), ids=str)
def test_a_broker_answers_what_was_written_with_the_plain_tail(one: Recorded) -> None:
    assert one.answer.endswith(produce.PLAIN_TAIL)


@pytest.mark.parametrize("one", some(1, "records", 16), ids=str)
def test_the_tail_of_real_records_rules_out_endpoints(one: Recorded) -> None:
    assert fetch.tail_has_no_endpoints(one.answer)


@pytest.mark.parametrize("one", some(1, "not leader", 16), ids=str)
def test_the_tail_of_real_endpoints_does_not(one: Recorded) -> None:
    assert not fetch.tail_has_no_endpoints(one.answer)


@pytest.mark.parametrize("one", some(1, "nothing new", 16), ids=str)
def test_a_long_poll_that_found_nothing_is_known_by_its_length(one: Recorded) -> None:
    assert fetch.has_no_topics(one.answer)


@pytest.mark.parametrize("one", some(1, "not leader", 16), ids=str)
def test_real_endpoints_of_a_streamed_answer_are_blanked(one: Recorded) -> None:
    tags_at = fetch.tags_offset(one.answer, one.version)

    blanked = blank_endpoints(one.answer[tags_at:])

    assert len(blanked) == len(one.answer) - tags_at
    assert HOST not in blanked


@pytest.mark.parametrize("one", some(18, "all"), ids=str)
def test_what_a_real_broker_offers_is_clamped(one: Recorded) -> None:
    clamped, offered = api_versions.clamp(one.answer, one.version)

    kept = from_frame(clamped, 18, one.version, "response").api_keys
    assert {entry.api_key for entry in kept} == set(offered) & set(APIS)
    # Kafka 4 offers Produce v0 to 2 in name, for old librdkafka (KAFKA-18659).
    assert [entry.min_version for entry in kept if entry.api_key == 0] == [0]


@pytest.mark.parametrize("one", some(18, "newer than known"), ids=str)
def test_a_real_broker_answers_a_version_it_does_not_know_as_we_do(one: Recorded) -> None:
    clamped, offered = api_versions.clamp(one.answer, one.version)

    assert set(offered) == {18}
    assert clamped == api_versions.unsupported(1)


@pytest.mark.parametrize("one", some(3, "own question by name"), ids=str)
def test_topics_asked_for_by_name_are_found(one: Recorded) -> None:
    answer = questions.scan_metadata(one.answer, one.version)

    assert {n: (t.error_code, t.partitions) for n, t in answer.topics.items()} == {
        "orders": (ErrorCode.NONE, 4),
        "nothing-there": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
    }
    assert [port for _node_id, _host, port in answer.brokers] == list(one.ports)


@pytest.mark.parametrize("one", some(3, "own question by id"), ids=str)
def test_topics_asked_for_by_id_are_found(one: Recorded) -> None:
    topics = questions.scan_metadata(one.answer, one.version).topics

    unknown = topics[b"\x07" * 16]
    assert (unknown.name, unknown.error_code) == (None, KioErrorCode.unknown_topic_id.value)
    assert topics["orders"].partitions == 4


@pytest.mark.parametrize("one", some(3, "own question for all"), ids=str)
def test_all_topics_are_answered_with_their_ids(one: Recorded) -> None:
    topics = questions.scan_metadata(one.answer, one.version).topics

    orders = topics["orders"]
    assert orders.topic_id is not None
    assert topics[orders.topic_id] is orders


@pytest.mark.parametrize("one", some(32, "own question for settings"), ids=str)
def test_a_brokers_own_settings_are_read(one: Recorded) -> None:
    answer = questions.scan_configs(one.answer)

    assert (answer.error_code, answer.values) == (0, {"num.partitions": "1"})


@pytest.mark.parametrize("one", some(19, "one new, one that exists"), ids=str)
def test_real_creations_are_read(one: Recorded) -> None:
    topics = {t.name: t for t in mutations.scan_answer(one.answer, 19, one.version).topics}

    made, refused = topics[f"new-{one.version}"], topics["orders"]
    assert (made.error_code, refused.error_code) == (0, KioErrorCode.topic_already_exists.value)
    assert made.partitions == (3 if one.version >= 5 else -1)


@pytest.mark.parametrize(
    "one",
    [
        *some(19, "one that exists"),
        *some(19, "one new, one that exists"),
        *some(20, "one that is not there"),
        *some(20, "one that is there, one that is not"),
        *some(37, "more, and fewer than there are"),
    ],
    ids=str,
)
def test_a_refusal_joins_a_real_answer(one: Recorded) -> None:
    refusal = mutations.Refusal(name="storm", error_code=89)
    before = mutations.scan_answer(one.answer, one.key, one.version)

    merged = mutations.merge(one.answer, one.key, one.version, [refusal], 0)

    after = mutations.scan_answer(merged, one.key, one.version)
    assert [(t.name, t.error_code) for t in after.topics] == [
        *((t.name, t.error_code) for t in before.topics),
        ("storm", 89),
    ]
    assert any(topic.error_code for topic in before.topics)
