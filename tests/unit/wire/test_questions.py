"""The gateway's own questions, against kio's encoding."""

from dataclasses import replace
from random import Random
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvota.model.errors import ProtocolError
from kvota.testing.kafka_messages import (
    RandomMessages,
    from_frame,
    part_type,
    payload_type,
    to_frame,
)
from kvota.wire import questions
from kvota.wire.apis import DESCRIBE_CONFIGS, METADATA

SEEDS = st.integers(0, 2**32)
IDS = [bytes(range(16)), bytes(range(16, 32))]


def test_topics_are_asked_for_by_name_without_creating_them() -> None:
    frame = questions.metadata_by_name(3, ["orders", "müller"])

    question = from_frame(frame, METADATA, questions.METADATA_NAMES_VERSION, "request")

    assert [topic.name for topic in question.topics] == ["orders", "müller"]
    assert question.allow_auto_topic_creation is False
    assert frame[8:12] == b"\0\0\0\x03"


def test_without_names_only_brokers_are_asked_for() -> None:
    question = from_frame(questions.metadata_by_name(3, []), METADATA, 4, "request")

    assert question.topics == ()


@pytest.mark.parametrize("broker_max", [12, 13])
def test_topics_are_asked_for_by_id_where_the_broker_can(broker_max: int) -> None:
    frame = questions.metadata_by_id(3, IDS, broker_max)

    question = from_frame(frame, METADATA, 12, "request")

    assert questions.metadata_id_version(broker_max) == 12
    assert [(t.topic_id, t.name) for t in question.topics] == [(UUID(bytes=i), None) for i in IDS]
    assert question.allow_auto_topic_creation is False


@pytest.mark.parametrize("broker_max", [10, 11])
def test_an_older_broker_is_asked_for_all_topics(broker_max: int) -> None:
    frame = questions.metadata_by_id(3, IDS, broker_max)

    question = from_frame(frame, METADATA, 10, "request")

    assert questions.metadata_id_version(broker_max) == 10
    assert question.topics is None
    assert question.include_cluster_authorized_operations is False


@given(version=st.integers(0, 13), seed=SEEDS)
@settings(deadline=None, max_examples=200)
def test_a_metadata_answer_says_what_kio_wrote(version: int, seed: int) -> None:
    payload = RandomMessages(Random(seed)).payload(METADATA, version, "response")

    answer = questions.scan_metadata(to_frame(payload), version)

    assert list(answer.brokers) == [(b.node_id, b.host, b.port) for b in payload.brokers]
    by_name = {t.name: (t.error_code.value, len(t.partitions)) for t in payload.topics}
    assert {
        name: (topic.error_code, topic.partitions)
        for name, topic in answer.topics.items()
        if isinstance(name, str)
    } == {name: facts for name, facts in by_name.items() if name is not None}
    ids = {t.topic_id.bytes for t in payload.topics if getattr(t, "topic_id", None)}
    assert {key for key in answer.topics if isinstance(key, bytes)} >= ids


def test_a_brokers_settings_are_asked_for() -> None:
    frame = questions.describe_broker_configs(4, "2", ["num.partitions"])

    (resource,) = from_frame(frame, DESCRIBE_CONFIGS, 1, "request").resources

    assert (resource.resource_type, resource.resource_name) == (4, "2")
    assert resource.configuration_keys == ("num.partitions",)


@given(seed=SEEDS)
@settings(deadline=None)
def test_a_brokers_settings_are_what_kio_wrote(seed: int) -> None:
    messages = RandomMessages(Random(seed))
    kind = part_type(payload_type(DESCRIBE_CONFIGS, 1, "response"), "DescribeConfigsResult")
    first = messages.entity(kind)
    payload = messages.payload(DESCRIBE_CONFIGS, 1, "response")
    payload = replace(payload, results=(first, *payload.results))

    answer = questions.scan_configs(to_frame(payload))

    assert answer.error_code == first.error_code.value
    assert answer.values == {config.name: config.value for config in first.configs}


@pytest.mark.parametrize("body", [b"", bytes(8), b"\0\0\0\0\x7f\xff\xff\xff"])
def test_what_is_no_answer_about_settings_is_refused(body: bytes) -> None:
    frame = (4 + len(body)).to_bytes(4, "big") + b"\0\0\0\x01" + body

    with pytest.raises(ProtocolError, match="DescribeConfigs v1 answer"):
        questions.scan_configs(frame)
