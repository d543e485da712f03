"""Answers to CreateTopics, read as an independent codec reads them, and refused where they are damaged."""

import uuid
from random import Random

import pytest
from kio.schema.errors import ErrorCode

from kvota.admin.created_topics import read_creation
from kvota.client import ProtocolError
from kvota.testing.frames import CREATE_TOPICS, answer, parts

ALIKE = [("retention.ms", "1000"), ("cleanup.policy", "delete"), ("secret", None)]
OTHER = [("retention.ms", "2000"), ("cleanup.policy", "delete"), ("secret", None)]


def made(version: int) -> bytes:
    """Topics alike, one that differs, one that is refused, one whose settings are not told."""
    rows = []
    cases = [("a", ALIKE, 0, 0), ("b", ALIKE, 0, 0), ("c", OTHER, 0, 0), ("d", ALIKE, 0, 0)]
    for name, settings, error, untold in [*cases, ("e", [], 36, 0), ("f", [], 0, 29)]:
        row: dict[str, object] = {
            "name": name,
            "error_code": ErrorCode(error),
            "error_message": "words" if error else None,
        }
        if version >= 5:
            configs = ({"name": key, "value": value} for key, value in settings)
            row |= {
                "num_partitions": -1 if error else 3,
                "replication_factor": -1 if error else 2,
                "topic_config_error_code": untold,
                "configs": parts(
                    CREATE_TOPICS, version, "response", "CreatableTopicConfigs", *configs
                ),
            }
        if version >= 7:
            row["topic_id"] = None if error else uuid.UUID(int=ord(name))
        rows.append(row)
    topics = parts(CREATE_TOPICS, version, "response", "CreatableTopicResult", *rows)
    return answer(CREATE_TOPICS, version, throttle_ms=1234, topics=topics)[4:]


@pytest.mark.parametrize("version", range(2, 8))
def test_each_version_is_read(version: int) -> None:
    found = read_creation(version, made(version))

    assert found.throttle_time.total_seconds() == 1.234
    assert [row.name for row in found.rows] == list("abcdef")
    assert [row.error_code for row in found.rows] == [0, 0, 0, 0, 36, 0]
    assert found.rows[4].error_message == "words"
    if version >= 5:
        told = [dict(row.settings) if row.settings is not None else None for row in found.rows]
        assert told == [dict(ALIKE), dict(ALIKE), dict(OTHER), dict(ALIKE), None, None]
        assert {(row.num_partitions, row.replication_factor) for row in found.rows} == {(3, 2), (-1, -1)}  # fmt: skip
    if version >= 7:
        assert [row.topic_id for row in found.rows[:2]] == [uuid.UUID(int=97), uuid.UUID(int=98)]
        assert found.rows[4].topic_id is None


@pytest.mark.parametrize("version", [5, 7])
def test_what_is_damaged_is_refused_or_read_and_nothing_else(version: int) -> None:
    frame, chance = made(version), Random(7)
    for end in range(len(frame)):
        with pytest.raises(ProtocolError):
            read_creation(version, frame[:end])
    for _ in range(2_000):
        damaged = bytearray(frame)
        damaged[chance.randrange(len(frame))] = chance.randrange(256)
        try:
            read_creation(version, bytes(damaged))
        except ProtocolError:
            continue
