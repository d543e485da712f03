"""Requests that are encoded here are those that an independent codec makes."""

from datetime import timedelta

import pytest
from kio.index import load_request_schema

from kvota.client.messages import encode, known_versions
from kvota.wire.admin_requests import Creation, alteration_body, creation_body, metadata_body
from kvota.wire.apis import ALTER_CLIENT_QUOTAS, CREATE_TOPICS, METADATA
from kvota.wire.client_quotas import Entry, Operation, Part

NAMES = ["a", "naïve-ツ", "long" * 60]


@pytest.mark.parametrize("version", range(4, known_versions(METADATA)[1] + 1))
def test_metadata_by_name(version: int) -> None:
    named = [{"topic_id": None, "name": n} if version >= 10 else {"name": n} for n in NAMES]
    content: dict[str, object] = {"topics": named, "allow_auto_topic_creation": False}
    known = load_request_schema(METADATA, version).__dataclass_fields__
    content |= {name: False for name in known if name.startswith("include_")}

    said = encode(METADATA, version, content, correlation=7, client_id="me")
    made = metadata_body(version, NAMES)
    assert encode(METADATA, version, made, correlation=7, client_id="me") == said


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("validate_only", [False, True])
def test_alterations(version: int, validate_only: bool) -> None:
    entries = [
        Entry((Part("user", "naïve-ツ"), Part("client-id", None)), (Operation("a", 1.5),)),
        Entry((Part("ip", "10.0.0.1"),), (Operation("a", None), Operation("b", float("inf")))),
        Entry((), ()),
    ]
    content = {
        "entries": [
            {
                "entity": [{"entity_type": t, "entity_name": name} for t, name in parts],
                "ops": [
                    {"key": key, "value": value or 0.0, "remove": value is None}
                    for key, value in operations
                ],
            }
            for parts, operations in entries
        ],
        "validate_only": validate_only,
    }

    said = encode(ALTER_CLIENT_QUOTAS, version, content, correlation=7, client_id="me")
    made = alteration_body(version, entries, validate_only=validate_only)
    assert encode(ALTER_CLIENT_QUOTAS, version, made, correlation=7, client_id="me") == said


TOPICS = [
    Creation("a", 3, 2, {}, {}),
    Creation("naïve-ツ", -1, -1, {0: [1, 2], 1: [], 7: [3]}, {"retention.ms": "7", "x": None}),
    Creation("long" * 60, 2**31 - 1, 1, {}, {"y": "", "z": "v" * 300}),
]


@pytest.mark.parametrize(
    "version", range(known_versions(CREATE_TOPICS)[0], known_versions(CREATE_TOPICS)[1] + 1)
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_creations(version: int, validate_only: bool) -> None:
    content: dict[str, object] = {
        "topics": [
            {
                "name": topic.name,
                "num_partitions": topic.num_partitions,
                "replication_factor": topic.replication_factor,
                "assignments": [
                    {"partition_index": partition, "broker_ids": tuple(brokers)}
                    for partition, brokers in topic.assignments.items()
                ],
                "configs": [
                    {"name": name, "value": value} for name, value in topic.configs.items()
                ],
            }
            for topic in TOPICS
        ],
        "timeout": timedelta(milliseconds=30_000),
        "validate_only": validate_only,
    }

    said = encode(CREATE_TOPICS, version, content, correlation=7, client_id="me")
    made = creation_body(version, TOPICS, timeout_ms=30_000, validate_only=validate_only)
    assert encode(CREATE_TOPICS, version, made, correlation=7, client_id="me") == said
