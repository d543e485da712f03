"""Topics described and listed, and the cluster itself: all of it by Metadata, which each broker has."""

from collections.abc import Iterable, Sequence

from kvota.admin.operation import Operation, Outcome
from kvota.admin.topics import ClusterDescription, TopicKey, TopicListing
from kvota.client import Answer, Broker, ClusterMetadata, Fields, Topic, UsageError
from kvota.wire.admin_requests import metadata_body
from kvota.wire.apis import METADATA
from kvota.wire.error_code import ErrorCode

_ASKED_BY_ID_FROM = 12
# A topic that has just been created, and has no leader yet.
_NOT_YET = frozenset({ErrorCode.LEADER_NOT_AVAILABLE})


def description_by_name() -> Operation[TopicKey, Topic]:
    """What is asked; nothing is created by it."""

    def content(version: int, names: Sequence[TopicKey], _left_ms: int) -> bytes:
        return metadata_body(version, [str(name) for name in names])

    def outcomes(answer: Answer) -> Iterable[Outcome[TopicKey, Topic]]:
        for topic in map(Topic.of, answer.topics):
            yield Outcome(topic.name, topic.error_code, None, topic)

    return Operation(
        api_key=METADATA,
        what=lambda name: f'topic "{name}" cannot be described',
        content=content,
        outcomes=outcomes,
        retriable=_NOT_YET,
    )


def description_by_id() -> Operation[TopicKey, Topic]:
    """The same by ids (Kafka 3.1)."""

    def content(version: int, ids: Sequence[TopicKey], _left_ms: int) -> Fields:
        if version < _ASKED_BY_ID_FROM:
            msg = "the brokers are too old to describe topics by id (Kafka 3.1): name them"
            raise UsageError(msg)
        return _request(version, [{"topic_id": topic_id, "name": None} for topic_id in ids])

    def outcomes(answer: Answer) -> Iterable[Outcome[TopicKey, Topic]]:
        for topic in map(Topic.of, answer.topics):
            if topic.topic_id is not None:
                yield Outcome(topic.topic_id, topic.error_code, None, topic)

    return Operation(
        api_key=METADATA,
        what=lambda topic_id: f"topic {topic_id} cannot be described",
        content=content,
        outcomes=outcomes,
        retriable=_NOT_YET,
    )


def listing() -> Operation[None, dict[str, TopicListing]]:
    """What is asked: all topics that the user may see."""

    def outcomes(answer: Answer) -> Iterable[Outcome[None, dict[str, TopicListing]]]:
        listings = {
            str(topic.name): TopicListing(
                name=str(topic.name),
                topic_id=getattr(topic, "topic_id", None),
                is_internal=bool(topic.is_internal),
            )
            for topic in answer.topics
            if topic.name is not None
        }
        yield Outcome(None, 0, None, listings)

    return Operation(
        api_key=METADATA,
        what=lambda _: "topics cannot be listed",
        content=lambda version, _keys, _left_ms: _request(version, None),
        outcomes=outcomes,
    )


def cluster_description() -> Operation[None, ClusterDescription]:
    """What is asked: the brokers, and no topic."""

    def outcomes(answer: Answer) -> Iterable[Outcome[None, ClusterDescription]]:
        found = ClusterMetadata.of(answer)
        nodes: tuple[Broker, ...] = tuple(found.brokers[each] for each in sorted(found.brokers))
        cluster = ClusterDescription(
            cluster_id=found.cluster_id, controller_id=found.controller_id, nodes=nodes
        )
        yield Outcome(None, 0, None, cluster)

    return Operation(
        api_key=METADATA,
        what=lambda _: "the cluster cannot be described",
        content=lambda version, _keys, _left_ms: _request(version, []),
        outcomes=outcomes,
    )


def _request(version: int, topics: Sequence[Fields] | None) -> Fields:
    content: dict[str, object] = {"topics": topics, "allow_auto_topic_creation": False}
    if 8 <= version <= 10:
        content["include_cluster_authorized_operations"] = False
    if version >= 8:
        content["include_topic_authorized_operations"] = False
    return content
