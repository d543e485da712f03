"""How topic mutations end in a cluster that exists in memory."""

import pytest
from kio.schema.errors import ErrorCode

from kvota.testing.frames import topic_id
from kvota.testing.scripted_cluster import ScriptedCluster, TopicChange, TopicOutcome

EXISTS = ErrorCode.topic_already_exists.value
INVALID_PARTITIONS = ErrorCode.invalid_partitions.value
INVALID_REQUEST = ErrorCode.invalid_request.value
UNKNOWN = ErrorCode.unknown_topic_or_partition.value
UNKNOWN_ID = ErrorCode.unknown_topic_id.value
POLICY = ErrorCode.policy_violation.value


def cluster() -> ScriptedCluster:
    return ScriptedCluster(topics={"old": 3}, refused={"bad": POLICY}, default_partitions=4)


@pytest.mark.parametrize(
    ("name", "asked", "expected"),
    [
        ("new", 5, ("new", 0, 5)),
        ("new", -1, ("new", 0, 4)),
        ("new", 0, ("new", INVALID_PARTITIONS, 0)),
        ("old", 5, ("old", EXISTS, 0)),
        ("bad", 5, ("bad", POLICY, 0)),
    ],
)
def test_a_topic_is_created_unless_something_speaks_against_it(
    name: str, asked: int, expected: tuple[str, int, int]
) -> None:
    there = cluster()

    assert there.create([TopicChange(name, asked)]) == [TopicOutcome(*expected)]

    created = {"new": expected[2]} if name == "new" and not expected[1] else {}
    assert there.topics == {"old": 3} | created


def test_a_validation_creates_and_grows_nothing() -> None:
    there = cluster()

    assert there.create([TopicChange("new", 5)], validate_only=True)[0].error_code == 0
    assert there.grow([TopicChange("old", 5)], validate_only=True)[0].error_code == 0

    assert there.topics == {"old": 3}


@pytest.mark.parametrize("identity", ["old", topic_id("old")])
def test_a_topic_is_deleted_by_name_and_by_id(identity: object) -> None:
    there = cluster()

    assert there.delete([TopicChange(identity, 0)]) == [("old", 0, 3)]  # type: ignore[arg-type]

    assert there.topics == {}


def test_what_is_not_there_cannot_be_deleted_or_grown() -> None:
    there = cluster()
    unknown = topic_id("unknown")

    assert there.delete([TopicChange("no", 0), TopicChange(unknown, 0)]) == [
        ("no", UNKNOWN, 0),
        (unknown, UNKNOWN_ID, 0),
    ]
    assert there.grow([TopicChange("no", 9)]) == [("no", UNKNOWN, 0)]


def test_a_topic_only_grows() -> None:
    there = cluster()

    assert there.grow([TopicChange("old", 3)]) == [("old", INVALID_PARTITIONS, 0)]
    assert there.grow([TopicChange("old", 8)]) == [("old", 0, 5)]

    assert there.topics == {"old": 8}


def test_a_topic_that_is_named_twice_is_refused_once_for_both() -> None:
    there = cluster()

    assert there.grow([TopicChange("old", 5), TopicChange("old", 8)]) == [
        ("old", INVALID_REQUEST, 0)
    ]
    assert there.delete([TopicChange(topic_id("old"), 0), TopicChange("old", 0)]) == [
        ("old", INVALID_REQUEST, 0)
    ]


def test_topics_are_described_by_name_by_id_or_all() -> None:
    there = cluster()
    unknown = topic_id("unknown")

    assert there.described(None) == [("old", 0, 3)]
    assert there.described(["no", topic_id("old"), unknown]) == [
        ("no", UNKNOWN, 0),
        ("old", 0, 3),
        (unknown, UNKNOWN_ID, 0),
    ]
