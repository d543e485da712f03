"""A client of a Kafka cluster: one asyncio connection a broker, and the way to the broker that is meant.

    async with Cluster(["127.0.0.1:9092"], security=Security.scram("alice", "secret")) as cluster:
        metadata = await cluster.metadata()
        answer = await cluster.ask(DESCRIBE_CLIENT_QUOTAS, {...}, to=CONTROLLER)

Messages are encoded and decoded by kio; what a request holds is a mapping of the schema's field names. The page
docs/client.md shows it at work; names that are not here are nobody's to rely on.
"""

from kvota.client.broker_error import BrokerError, UnsupportedVersionError
from kvota.client.cluster import ANY, CONTROLLER, Cluster, Destination
from kvota.client.cluster_looks import ClusterLooks
from kvota.client.cluster_metadata import Broker, ClusterMetadata, Partition, Topic
from kvota.client.connection import BrokerConnection, ClientLimits
from kvota.client.coordinator import Coordinator, CoordinatorKind
from kvota.client.messages import Answer, Fields
from kvota.client.properties import cluster_of
from kvota.client.security import Mechanism, Security
from kvota.model.cluster_view import BrokerView, ClusterView, TopicView
from kvota.model.errors import KvotaError, ProtocolError, UnreachableError, UsageError
from kvota.tls.client_tls import Tls
from kvota.tls.tls_error import TlsError

__all__ = [
    "ANY",
    "CONTROLLER",
    "Answer",
    "Broker",
    "BrokerConnection",
    "BrokerError",
    "BrokerView",
    "ClientLimits",
    "Cluster",
    "ClusterLooks",
    "ClusterMetadata",
    "ClusterView",
    "Coordinator",
    "CoordinatorKind",
    "Destination",
    "Fields",
    "KvotaError",
    "Mechanism",
    "Partition",
    "ProtocolError",
    "Security",
    "Tls",
    "TlsError",
    "Topic",
    "TopicView",
    "UnreachableError",
    "UnsupportedVersionError",
    "UsageError",
    "cluster_of",
]
