"""What is known of a cluster: brokers, topics, and who leads their partitions.

Source: KIP-257's ``Cluster``; KIP-516 (topic ids), KIP-36 (racks).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from uuid import UUID

from kvota.model.address import Address

# The leader of a partition that has none.
NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class BrokerView:
    """A broker where it advertises itself, and the rack it stands in (None: it tells none)."""

    node_id: int
    address: Address
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic and, by partition, the node id of its leader (``NO_LEADER``: none at the moment).

    Attributes:
        name: of the topic.
        leaders: by number of the partition.
        id_bytes: the topic's id; empty where the brokers are too old to have one (before 2.8).
        is_internal: Kafka's own, e.g. ``__consumer_offsets``.
    """

    name: str
    leaders: Sequence[int]
    id_bytes: bytes = b""
    is_internal: bool = False

    @property
    def topic_id(self) -> UUID | None:
        """The topic's id; None where the brokers are too old to have one."""
        return UUID(bytes=self.id_bytes) if self.id_bytes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The cluster at one moment; never changed, another one takes its place.

    Attributes:
        cluster_id: as the cluster calls itself; None: it has not said.
        brokers: those that are alive, by node id.
        topics: by name.
        is_stale: the cluster could not be asked for a while; this is what was known last.
    """

    cluster_id: str | None = None
    brokers: Mapping[int, BrokerView] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicView] = field(default_factory=lambda: MappingProxyType({}))
    is_stale: bool = False
