"""Topics as they are wanted, and as they are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from kvota.client import Broker

# A topic by its name, or by its id, of which each is one topic for ever.
TopicKey = str | UUID


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created.

    Attributes:
        name: of it.
        num_partitions: -1: the cluster's default (Kafka 2.4).
        replication_factor: -1: the cluster's default (Kafka 2.4).
        replica_assignments: in place of both numbers, the brokers of each partition, the preferred leader first.
        configs: its settings, where they are not the cluster's.
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """A topic that has just been created; None: the broker is too old to tell (before 2.4, the id: 2.8).

    Attributes:
        topic_id: of it; None, too, where it was only validated.
        num_partitions: that it has.
        replication_factor: that it has.
        configs: all its settings; None, too, where the user may not read them.
    """

    topic_id: UUID | None
    num_partitions: int | None
    replication_factor: int | None
    configs: Mapping[str, str | None] | None


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """How many partitions a topic is to have.

    Attributes:
        total_count: old and new ones.
        new_assignments: the brokers of each new one; empty: the cluster chooses.
    """

    total_count: int
    new_assignments: Sequence[Sequence[int]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicListing:
    """A topic as a list has it; ``topic_id`` is None where the broker is too old to tell (before 2.8)."""

    name: str
    topic_id: UUID | None
    is_internal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """Brokers that are alive; ``controller_id`` is None while there is none, in KRaft mode it is any broker."""

    cluster_id: str | None
    controller_id: int | None
    nodes: tuple[Broker, ...]
