"""A client of a Kafka cluster: one asyncio connection a broker, and the way to the broker that is meant.

    async with Cluster(["127.0.0.1:9092"], security=Security.scram("alice", "secret")) as cluster:
        metadata = await cluster.metadata()
        answer = await cluster.ask(DESCRIBE_CLIENT_QUOTAS, {...}, to=CONTROLLER)

Messages are encoded and decoded by kio; what a request holds is a mapping of the schema's field names.
"""

from kvota.client.broker_error import BrokerError
from kvota.client.cluster import ANY, CONTROLLER, Cluster
from kvota.client.cluster_metadata import Broker, ClusterMetadata, Partition, Topic
from kvota.client.connection import BrokerConnection, ClientLimits
from kvota.client.security import Security

__all__ = [
    "ANY",
    "CONTROLLER",
    "Broker",
    "BrokerConnection",
    "BrokerError",
    "ClientLimits",
    "Cluster",
    "ClusterMetadata",
    "Partition",
    "Security",
    "Topic",
]
