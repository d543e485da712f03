"""Requests and answers about client quotas, as tests write them: encoded and decoded by kio."""

from collections.abc import Mapping, Sequence
from typing import Any

from kvota.testing.frames import decoded, parts, request

DESCRIBE, ALTER = 48, 49

# {"user": "alice"}; a name of None is the default.
Entity = Mapping[str, str | None] | Sequence[tuple[str, str | None]]
# {"producer_byte_rate": 1000.0}; a value of None removes the key.
Values = Mapping[str, float | None] | Sequence[tuple[str, float | None]]


def pairs(given: Any) -> list[tuple[str, Any]]:
    return list(given.items() if isinstance(given, Mapping) else given)


def alteration(
    *entries: tuple[Entity, Values],
    version: int = 1,
    validate_only: bool = False,
    correlation: int = 1,
    client: str | None = "app",
) -> bytes:
    """An AlterClientQuotas request frame."""
    rows = [
        {
            "entity": parts(
                ALTER,
                version,
                "request",
                "EntityData",
                *({"entity_type": kind, "entity_name": name} for kind, name in pairs(entity)),
            ),
            "ops": parts(
                ALTER,
                version,
                "request",
                "OpData",
                *(
                    {"key": key, "value": 0.0 if value is None else value, "remove": value is None}
                    for key, value in pairs(values)
                ),
            ),
        }
        for entity, values in entries
    ]
    return request(
        ALTER,
        version,
        correlation=correlation,
        client=client,
        entries=parts(ALTER, version, "request", "EntryData", *rows),
        validate_only=validate_only,
    )


def description(
    *components: tuple[str, int, str | None],
    strict: bool = True,
    version: int = 1,
    correlation: int = 1,
) -> bytes:
    """A DescribeClientQuotas request frame; components are (type, how to match, name)."""
    rows = (
        {"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components
    )
    return request(
        DESCRIBE,
        version,
        correlation=correlation,
        components=parts(DESCRIBE, version, "request", "ComponentData", *rows),
        strict=strict,
    )


def altered(frame: bytes, version: int = 1) -> list[tuple[dict[str, str | None], int, str | None]]:
    """An AlterClientQuotas answer: entity, error code, message."""
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            int(entry.error_code),
            entry.error_message,
        )
        for entry in decoded(frame, ALTER, version).entries
    ]


def described(
    frame: bytes, version: int = 1
) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    """A DescribeClientQuotas answer without an error: values by entity."""
    answer = decoded(frame, DESCRIBE, version)
    assert (int(answer.error_code), answer.error_message) == (0, "")
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries
    }
