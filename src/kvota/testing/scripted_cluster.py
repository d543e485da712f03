"""A cluster that exists in memory: its brokers, its topics, and how topic mutations end there."""

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from kvota.testing.frames import topic_id

_NONE = ErrorCode.none.value
_UNKNOWN_TOPIC = ErrorCode.unknown_topic_or_partition.value
_UNKNOWN_ID = ErrorCode.unknown_topic_id.value
_EXISTS = ErrorCode.topic_already_exists.value
_INVALID_PARTITIONS = ErrorCode.invalid_partitions.value
_INVALID_REQUEST = ErrorCode.invalid_request.value


class TopicChange(NamedTuple):
    """One topic of a mutation request: ``partitions`` is what it asks for, -1 the default."""

    name: str | uuid.UUID
    partitions: int


class TopicOutcome(NamedTuple):
    """How the change of one topic ended; ``partitions`` were created, added or deleted."""

    name: str | uuid.UUID
    error_code: int
    partitions: int


@dataclass
class ScriptedCluster:
    """What the brokers of one cluster have in common.

    Attributes:
        brokers: addresses by node id.
        topics: partitions by name.
        refused: error codes by topic name: whatever is asked of these topics fails so.
        default_partitions: of a topic that is created with -1.
        tells_configs: false where DescribeConfigs is not allowed.
    """

    brokers: dict[int, tuple[str, int]] = field(
        default_factory=lambda: {1: ("broker-1.inside", 9092)}
    )
    topics: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    default_partitions: int = 1
    tells_configs: bool = True

    # ------------------------------------------------------------------ what there is

    @property
    def nodes(self) -> list[tuple[int, str, int]]:
        """Node id, host and port of every broker."""
        return [(node_id, *address) for node_id, address in self.brokers.items()]

    def name_of(self, identity: uuid.UUID) -> str | None:
        """The topic with this id; None: there is none."""
        return next((name for name in self.topics if topic_id(name) == identity), None)

    def described(
        self, asked: Iterable[str | uuid.UUID] | None
    ) -> list[tuple[str | uuid.UUID, int, int]]:
        """Topics as (name, error code, partitions); None asks for all there are."""
        if asked is None:
            return [(name, _NONE, partitions) for name, partitions in self.topics.items()]
        return [self._described(one) for one in asked]

    def _described(self, asked: str | uuid.UUID) -> tuple[str | uuid.UUID, int, int]:
        name = self._resolved(asked)
        if isinstance(name, uuid.UUID):
            return name, _UNKNOWN_ID, 0
        if name not in self.topics:
            return name, _UNKNOWN_TOPIC, 0
        return name, _NONE, self.topics[name]

    # ------------------------------------------------------------------ what changes

    def create(
        self, changes: Sequence[TopicChange], *, validate_only: bool = False
    ) -> list[TopicOutcome]:
        """Create topics, those that can be."""

        def one(name: str, asked: int) -> tuple[int, int]:
            if name in self.topics:
                return _EXISTS, 0
            if asked == 0 or asked < -1:
                return _INVALID_PARTITIONS, 0
            partitions = self.default_partitions if asked == -1 else asked
            if not validate_only:
                self.topics[name] = partitions
            return _NONE, partitions

        return self._change(changes, one)

    def delete(self, changes: Sequence[TopicChange]) -> list[TopicOutcome]:
        """Delete topics, those that there are."""
        return self._change(
            changes, lambda name, _asked: (_NONE, self.topics.pop(name)), of_known=True
        )

    def grow(
        self, changes: Sequence[TopicChange], *, validate_only: bool = False
    ) -> list[TopicOutcome]:
        """Give topics more partitions: ``partitions`` is how many there shall be."""

        def one(name: str, asked: int) -> tuple[int, int]:
            more = asked - self.topics[name]
            if more <= 0:
                return _INVALID_PARTITIONS, 0
            if not validate_only:
                self.topics[name] = asked
            return _NONE, more

        return self._change(changes, one, of_known=True)

    def _change(
        self,
        changes: Sequence[TopicChange],
        one: Callable[[str, int], tuple[int, int]],
        *,
        of_known: bool = False,
    ) -> list[TopicOutcome]:
        """One outcome for each topic; who is named twice, be it by name and by id, is refused."""
        asked_of: dict[str | uuid.UUID, list[int]] = {}
        for change in changes:
            asked_of.setdefault(self._resolved(change.name), []).append(change.partitions)
        outcomes = []
        for name, asked in asked_of.items():
            if len(asked) > 1:
                outcomes.append(TopicOutcome(name, _INVALID_REQUEST, 0))
            elif isinstance(name, uuid.UUID):
                outcomes.append(TopicOutcome(name, _UNKNOWN_ID, 0))
            elif name in self.refused:
                outcomes.append(TopicOutcome(name, self.refused[name], 0))
            elif of_known and name not in self.topics:
                outcomes.append(TopicOutcome(name, _UNKNOWN_TOPIC, 0))
            else:
                outcomes.append(TopicOutcome(name, *one(name, asked[0])))
        return outcomes

    def _resolved(self, identity: str | uuid.UUID) -> str | uuid.UUID:
        """A topic's name where there is one; an id that is not known stays."""
        name = self.name_of(identity) if isinstance(identity, uuid.UUID) else identity
        return identity if name is None else name
