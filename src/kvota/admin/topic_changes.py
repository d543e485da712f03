"""Topics created, deleted and grown: requests, and what answers say of each topic."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta

from kvota.admin.created_topics import CreationAnswer, read_creation
from kvota.admin.operation import Operation, Outcome
from kvota.admin.topics import CreatedTopic, NewPartitions, NewTopic, TopicKey
from kvota.client import CONTROLLER, Answer, Fields, UsageError
from kvota.wire.admin_requests import Creation, creation_body
from kvota.wire.apis import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from kvota.wire.error_code import ErrorCode

_DELETED_BY_ID_FROM = 6


def creation(
    topics: Iterable[NewTopic], *, validate_only: bool
) -> tuple[Sequence[str], Operation[str, CreatedTopic]]:
    """Which topics, and what is asked.

    Raises:
        UsageError: a topic is named twice, or by something that is no text.
    """
    new: dict[str, NewTopic] = {}
    for topic in topics:
        if topic.name in new:
            msg = f'topic "{topic.name}" is to be created twice'
            raise UsageError(msg)
        if not isinstance(topic.name, str):
            # Callers need not check their types.
            msg = f"{topic.name!r} is no name of a topic: write a text"  # type: ignore[unreachable]
            raise UsageError(msg)
        new[topic.name] = topic

    def content(version: int, names: Sequence[str], left_ms: int) -> bytes:
        wanted = (_new_topic(new[name]) for name in names)
        try:
            return creation_body(version, wanted, timeout_ms=left_ms, validate_only=validate_only)
        except AttributeError as error:  # of a value that is of another type
            raise TypeError(str(error)) from error

    return list(new), Operation(
        api_key=CREATE_TOPICS,
        what=lambda name: f'topic "{name}" cannot be created',
        content=content,
        outcomes=_created,
        read=read_creation,
        to=CONTROLLER,
        changes=not validate_only,
        doubtful=frozenset({ErrorCode.TOPIC_ALREADY_EXISTS}),
    )


def _new_topic(topic: NewTopic) -> Creation:
    counts = (
        (-1, -1) if topic.replica_assignments else (topic.num_partitions, topic.replication_factor)
    )
    return Creation(topic.name, *counts, topic.replica_assignments, topic.configs)


def _created(answer: CreationAnswer) -> Iterable[Outcome[str, CreatedTopic]]:
    for row in answer.rows:
        made = CreatedTopic(
            topic_id=row.topic_id,
            num_partitions=row.num_partitions if row.num_partitions >= 0 else None,
            replication_factor=row.replication_factor if row.replication_factor >= 0 else None,
            configs=row.settings,
        )
        yield Outcome(row.name, row.error_code, row.error_message, made)


def deletion_by_name() -> Operation[TopicKey, None]:
    """What is asked.

    It is not sent again after an answer was lost: somebody may have created another topic of that name meanwhile.
    """

    def content(version: int, names: Sequence[TopicKey], left_ms: int) -> Fields:
        timeout = timedelta(milliseconds=left_ms)
        if version >= _DELETED_BY_ID_FROM:
            topics = [{"name": name, "topic_id": None} for name in names]
            return {"topics": topics, "timeout": timeout}
        return {"topic_names": list(names), "timeout": timeout}

    return Operation(
        api_key=DELETE_TOPICS,
        what=lambda name: f'topic "{name}" cannot be deleted',
        content=content,
        outcomes=lambda answer: _deleted(answer, lambda topic: str(topic.name)),
        to=CONTROLLER,
        changes=True,
        is_repeatable=False,
    )


def deletion_by_id() -> Operation[TopicKey, None]:
    """The same by ids (Kafka 2.8), of which each is one topic for ever."""

    def content(version: int, ids: Sequence[TopicKey], left_ms: int) -> Fields:
        if version < _DELETED_BY_ID_FROM:
            msg = "the brokers are too old to delete topics by id (Kafka 2.8): name them"
            raise UsageError(msg)
        topics = [{"name": None, "topic_id": topic_id} for topic_id in ids]
        return {"topics": topics, "timeout": timedelta(milliseconds=left_ms)}

    return Operation(
        api_key=DELETE_TOPICS,
        what=lambda topic_id: f"topic {topic_id} cannot be deleted",
        content=content,
        outcomes=lambda answer: _deleted(answer, lambda topic: topic.topic_id),
        to=CONTROLLER,
        changes=True,
        doubtful=frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
    )


def _deleted(
    answer: Answer, key_of: Callable[[Answer], TopicKey]
) -> Iterable[Outcome[TopicKey, None]]:
    for topic in answer.responses:
        message = getattr(topic, "error_message", None)
        yield Outcome(key_of(topic), int(topic.error_code), message, None)


def growth(partitions: Mapping[str, NewPartitions], *, validate_only: bool) -> Operation[str, None]:
    """What is asked; partitions that are there already are the first of the total."""

    def content(_version: int, names: Sequence[str], left_ms: int) -> Fields:
        return {
            "topics": [_grown_topic(name, partitions[name]) for name in names],
            "timeout": timedelta(milliseconds=left_ms),
            "validate_only": validate_only,
        }

    return Operation(
        api_key=CREATE_PARTITIONS,
        what=lambda name: f'topic "{name}" cannot get more partitions',
        content=content,
        outcomes=_grown,
        to=CONTROLLER,
        changes=not validate_only,
        doubtful=frozenset({ErrorCode.INVALID_PARTITIONS}),
    )


def _grown_topic(name: str, wanted: NewPartitions) -> Fields:
    assignments = [{"broker_ids": tuple(brokers)} for brokers in wanted.new_assignments]
    return {"name": name, "count": wanted.total_count, "assignments": assignments or None}


def _grown(answer: Answer) -> Iterable[Outcome[str, None]]:
    for topic in answer.results:
        yield Outcome(str(topic.name), int(topic.error_code), topic.error_message, None)
