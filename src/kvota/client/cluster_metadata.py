"""What a cluster says of itself: brokers, controller, topics with their partitions."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any
from uuid import UUID

from kvota.client.messages import Fields
from kvota.wire.cluster_brokers import ClusterBrokers


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker as it advertises itself."""

    node_id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition; ``leader`` is None while it has none."""

    index: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    error_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic, or why nothing can be said of it (``error_code``, 0: none).

    ``topic_id`` is None where the broker is too old to have one (before 2.8).
    """

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: tuple[Partition, ...]
    error_code: int

    @classmethod
    def of(cls, topic: Any) -> "Topic":
        """Read a topic of a Metadata answer of any version; one asked for by an unknown id has no name."""
        partitions = [_partition(each) for each in topic.partitions]
        if len(partitions) > 1:
            partitions.sort(key=_INDEX)
        return cls(
            name=topic.name or "",
            topic_id=getattr(topic, "topic_id", None),
            is_internal=getattr(topic, "is_internal", False),
            partitions=tuple(partitions),
            error_code=int(topic.error_code),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """One answer; ``controller_id`` is None while there is none.

    A broker in KRaft mode names any broker as the controller: each of them knows the way.
    """

    cluster_id: str | None
    controller_id: int | None
    brokers: dict[int, Broker]
    topics: dict[str, Topic]

    @classmethod
    def without_topics(cls, told: ClusterBrokers) -> "ClusterMetadata":
        """Of an answer to a question about no topics."""
        brokers = {
            one.node_id: Broker(
                node_id=one.node_id, host=one.address[0], port=one.address[1], rack=one.rack
            )
            for one in told.brokers
        }
        return cls(
            cluster_id=told.cluster_id,
            controller_id=None if told.controller_id < 0 else told.controller_id,
            brokers=brokers,
            topics={},
        )

    @classmethod
    def of(cls, answer: Any) -> "ClusterMetadata":
        """Read a Metadata answer of any version."""
        controller_id = int(getattr(answer, "controller_id", -1))
        return cls(
            cluster_id=getattr(answer, "cluster_id", None),
            controller_id=None if controller_id < 0 else controller_id,
            brokers={
                int(broker.node_id): Broker(
                    node_id=int(broker.node_id),
                    host=str(broker.host),
                    port=int(broker.port),
                    rack=getattr(broker, "rack", None),
                )
                for broker in answer.brokers
            },
            topics={
                str(topic.name): Topic.of(topic)
                for topic in answer.topics
                if topic.name is not None
            },
        )


def _partition(partition: Any) -> Partition:
    leader = partition.leader_id
    return Partition(
        index=partition.partition_index,
        leader=None if leader < 0 else leader,
        replicas=partition.replica_nodes,
        in_sync=partition.isr_nodes,
        error_code=int(partition.error_code),
    )


_INDEX = attrgetter("index")


def metadata_fields(version: int, topics: Sequence[Fields] | None) -> Fields:
    """Return the fields of a Metadata request; None: about all topics. It creates none, from v4 on."""
    content: dict[str, object] = {"topics": topics}
    if version >= 4:
        content["allow_auto_topic_creation"] = False
    if 8 <= version <= 10:
        content["include_cluster_authorized_operations"] = False
    if version >= 8:
        content["include_topic_authorized_operations"] = False
    return content
