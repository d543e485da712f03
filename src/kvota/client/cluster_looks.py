"""Looks at a whole cluster again and again: its topics, partitions, leaders, racks."""

from kvota.client.broker_error import BrokerError
from kvota.client.cluster import ANY, Cluster
from kvota.client.cluster_metadata import metadata_fields
from kvota.client.messages import Fields
from kvota.client.turns import in_turns
from kvota.model.cluster_view import ClusterView
from kvota.model.errors import UsageError
from kvota.wire.apis import DESCRIBE_CONFIGS, METADATA
from kvota.wire.broker_configs import BROKER_RESOURCE
from kvota.wire.cluster_reader import VERSIONS, ClusterReader

_DEFAULT_PARTITIONS = "num.partitions"


class ClusterLooks:
    """One connection to any broker of a cluster, and what the last look has found.

    A cluster of 200,000 partitions is read in steps of some milliseconds, between which everything else on the
    event loop has its turn; what has not changed since the last look is not read again.

    Args:
        cluster: whom to ask; whoever has made it closes it. Its user sees the topics that it may describe.

    Attributes:
        size_bytes: of the last answer.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._reader = ClusterReader()
        self.size_bytes = 0

    async def look(self) -> ClusterView:
        """Ask which topics and brokers there are; the same object as before where nothing has changed.

        Raises:
            UnreachableError: no broker answers.
            BrokerError: the login is refused.
            ProtocolError: the answer cannot be read.
            UsageError: the brokers are too old (before 0.11).
        """
        connection = await self._cluster.connection_to(ANY)
        version = min(VERSIONS[1], connection.versions.get(METADATA, (0, -1))[1])
        if version < VERSIONS[0]:
            msg = f"the brokers speak Metadata up to v{version}; v{VERSIONS[0]} is needed (Kafka 0.11)"
            raise UsageError(msg)
        frame = await connection.ask_frame(
            METADATA, metadata_fields(version, None), version=version
        )
        self.size_bytes = len(frame)
        return await in_turns(self._reader.read_in_steps(frame, version))

    async def default_partitions(self, view: ClusterView) -> int | None:
        """How many partitions a topic gets that is created with -1; None: the broker does not tell this user.

        Only a broker itself tells. Where it was reached by a name that is none of the brokers', one of them is
        connected to by its own.

        Raises:
            UnreachableError: it does not answer.
            BrokerError: it refuses.
        """
        if not view.brokers:
            return None
        address = (await self._cluster.connection_to(ANY)).address
        at = {broker.address: node_id for node_id, broker in view.brokers.items()}
        node_id = at.get(address, min(view.brokers))
        connection = await self._cluster.connection_to(node_id)
        resource = {
            "resource_type": BROKER_RESOURCE,
            "resource_name": str(node_id),
            "configuration_keys": [_DEFAULT_PARTITIONS],
        }
        content: Fields = {"resources": [resource], "include_synonyms": False}
        answer = await connection.ask(DESCRIBE_CONFIGS, content, version=_CONFIGS_VERSION)
        (result,) = answer.results
        if result.error_code:
            what = "describe_configs"
            raise BrokerError(what, int(result.error_code), result.error_message)
        values = {str(config.name): config.value for config in result.configs}
        text = values.get(_DEFAULT_PARTITIONS)
        return int(text) if text is not None and text.isdecimal() else None


# Every broker from 1.1 on has it, and it names what is asked for.
_CONFIGS_VERSION = 1
