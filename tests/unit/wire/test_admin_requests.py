"""Requests that are encoded here are those that an independent codec makes."""

import pytest
from kio.index import load_request_schema

from kvota.client.messages import encode, known_versions
from kvota.wire.admin_requests import alteration_body, metadata_body
from kvota.wire.apis import ALTER_CLIENT_QUOTAS, METADATA
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
