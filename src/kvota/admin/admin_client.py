"""The admin client: what can be asked of a cluster, a method each."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Self

from kvota.admin import (
    client_quotas,
    cluster_description,
    configs,
    group_offsets,
    log_dirs,
    offsets,
    producers,
    scram_users,
    topic_changes,
    topic_looks,
)
from kvota.admin.asking import Asker, Deadline, Patience
from kvota.admin.client_quotas import ClientQuotaAlteration, ClientQuotaFilter
from kvota.admin.configs import AlterConfigOp, Config, ConfigResource
from kvota.admin.group_offsets import OffsetAndMetadata
from kvota.admin.log_dirs import LogDirs
from kvota.admin.offsets import OffsetInfo
from kvota.admin.operation import Operation, carry_out
from kvota.admin.parts import by_destination, by_name_and_id, in_parts
from kvota.admin.producers import ProducerState
from kvota.admin.results import K, Results, V, merged
from kvota.admin.scram_users import Credentials, UserScramCredentialAlteration
from kvota.admin.topics import (
    ClusterDescription,
    CreatedTopic,
    NewPartitions,
    NewTopic,
    TopicKey,
    TopicListing,
    TopicPartition,
)
from kvota.client import (
    ClientLimits,
    Cluster,
    Security,
    Topic,
    UnsupportedVersionError,
)
from kvota.model.errors import KvotaError
from kvota.model.quota_entity import QuotaEntity


class AdminClient:
    """Asks a cluster, through a gateway or not, and waits where its quotas say so (KIP-599).

    What is asked for several things has a result for each (``Results``). What is asked as one thing returns its
    value or raises.

    Args:
        bootstrap_servers: ``host:port`` of brokers to begin with, one text with commas or several.
        client_id: as the brokers' quotas see this client.
        security: how to log in.
        patience: how long is waited; each call may have its own ``timeout_ms``.

    Raises:
        UsageError: a server is no ``host:port``.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        client_id: str = "kvota",
        security: Security | None = None,
        patience: Patience | None = None,
    ) -> None:
        if isinstance(bootstrap_servers, str):
            bootstrap_servers = [part for part in bootstrap_servers.split(",") if part.strip()]
        patience = patience or Patience()
        cluster = Cluster(
            bootstrap_servers,
            security=security or Security(),
            client_id=client_id,
            limits=ClientLimits(request_s=patience.request_timeout_ms / 1000),
        )
        self._asker = _asker(cluster, patience)

    @classmethod
    def of(cls, cluster: Cluster, *, patience: Patience | None = None) -> Self:
        """Return an admin client for a cluster that is made elsewhere, e.g. by ``cluster_of``; it closes it."""
        client = cls.__new__(cls)
        client._asker = _asker(cluster, patience or Patience())  # noqa: SLF001 - its own class
        return client

    async def start(self) -> None:
        """Reach the cluster; without it the first call does.

        Raises:
            UnreachableError: none of the servers answers.
            BrokerError: the login is refused.
        """
        await self._asker.cluster.__aenter__()

    async def close(self) -> None:
        """Close all connections."""
        await self._asker.cluster.close()

    async def __aenter__(self) -> Self:
        """Reach the cluster, as ``start``."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all connections."""
        await self.close()

    # ------------------------------------------------------------------ topics

    async def create_topics(
        self,
        new_topics: Iterable[NewTopic],
        *,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
        timeout_ms: int | None = None,
    ) -> Results[str, CreatedTopic]:
        """Create topics.

        Of those that a quota on topic mutations refuses (KIP-599), with ``retry_on_quota_violation`` only they are
        asked for again, after the wait that the broker names, until the time is up; what is refused then, or at
        once without it, has a ``ThrottlingQuotaExceededError`` as its result.

        Raises:
            UsageError: a topic is named twice; nothing was created.
        """
        names, operation = topic_changes.creation(new_topics, validate_only=validate_only)
        deadline = self._deadline(timeout_ms)
        return await self._carry_out(operation, names, deadline, retry_on_quota_violation)

    async def delete_topics(
        self,
        topics: Iterable[TopicKey],
        *,
        retry_on_quota_violation: bool = True,
        timeout_ms: int | None = None,
    ) -> Results[TopicKey, None]:
        """Delete topics, by name or by id (Kafka 2.8); quotas as with ``create_topics``.

        A deletion by name whose answer was lost is not tried again, for another topic may have that name by then.
        A broker itself tries again where the controller dies before it answers: of a topic that had been deleted by
        then it says that it does not know it.
        """
        names, ids = by_name_and_id(topics)
        operations = [
            (topic_changes.deletion_by_name(), names),
            (topic_changes.deletion_by_id(), ids),
        ]
        return await self._together(operations, timeout_ms, retry_on_quota_violation)

    async def create_partitions(
        self,
        topic_partitions: Mapping[str, NewPartitions],
        *,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
        timeout_ms: int | None = None,
    ) -> Results[str, None]:
        """Give topics more partitions; quotas as with ``create_topics``."""
        operation = topic_changes.growth(topic_partitions, validate_only=validate_only)
        deadline = self._deadline(timeout_ms)
        return await self._carry_out(
            operation, topic_partitions, deadline, retry_on_quota_violation
        )

    async def describe_topics(
        self, topics: Iterable[TopicKey], *, timeout_ms: int | None = None
    ) -> Results[TopicKey, Topic]:
        """Describe topics, by name or by id (Kafka 3.1): partitions, leaders, replicas."""
        names, ids = by_name_and_id(topics)
        operations = [
            (operation, some)
            for operation, wanted in (
                (topic_looks.description_by_name(), names),
                (topic_looks.description_by_id(), ids),
            )
            for some in in_parts(wanted)
        ]
        return await self._together(operations, timeout_ms)

    async def list_topics(
        self, *, list_internal: bool = False, timeout_ms: int | None = None
    ) -> dict[str, TopicListing]:
        """Return the topics that the user may see, by name."""
        found = await self._one(topic_looks.listing(), self._deadline(timeout_ms))
        return {
            name: topic for name, topic in found.items() if list_internal or not topic.is_internal
        }

    async def list_offsets(
        self, topic_partitions: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> Results[TopicPartition, OffsetInfo]:
        """Ask for an offset of each partition: an ``OffsetSpec``, or a time in Unix milliseconds.

        Raises:
            UsageError: the brokers are too old for that.
        """
        deadline = self._deadline(timeout_ms)
        return await offsets.list_offsets(topic_partitions, self._asker, deadline)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> Results[TopicPartition, tuple[ProducerState, ...]]:
        """Ask the leader of each partition which producers it knows (Kafka 2.8; KIP-664).

        Of producers without idempotence it knows nothing; the others are known for ``producer.id.expiration.ms``.

        Raises:
            UsageError: the brokers are too old for that.
        """
        deadline = self._deadline(timeout_ms)
        wanted = list(dict.fromkeys(partitions))
        return await producers.describe_producers(wanted, self._asker, deadline)

    async def list_consumer_group_offsets(
        self, group_id: str, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what a group has committed; of a group that does not exist nothing.

        Raises:
            BrokerError: the user may not know.
            ApiTimeoutError: no coordinator has answered in time.
        """
        operation = group_offsets.committed_offsets(group_id)
        return await self._one(operation, self._deadline(timeout_ms))

    # ------------------------------------------------------------------ brokers and settings

    async def describe_cluster(self, *, timeout_ms: int | None = None) -> ClusterDescription:
        """Return the brokers that are alive."""
        deadline = self._deadline(timeout_ms)
        try:
            return await self._one(cluster_description.description(), deadline)
        except UnsupportedVersionError:  # before Kafka 2.8
            return await self._one(topic_looks.cluster_description(), deadline)

    async def describe_configs(
        self,
        config_resources: Iterable[ConfigResource],
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[ConfigResource, Config]:
        """Return all settings of topics, brokers, …; a broker is asked for its own."""
        operations = [
            (
                configs.description(
                    to,
                    include_synonyms=include_synonyms,
                    include_documentation=include_documentation,
                ),
                resources,
            )
            for to, resources in by_destination(config_resources).items()
        ]
        return await self._together(operations, timeout_ms)

    async def incremental_alter_configs(
        self,
        wanted: Mapping[ConfigResource, Sequence[AlterConfigOp]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[ConfigResource, None]:
        """Alter some settings and leave the others; of one resource all are altered or none (Kafka 2.3)."""
        operations = [
            (
                configs.alteration(
                    to, {each: wanted[each] for each in resources}, validate_only=validate_only
                ),
                resources,
            )
            for to, resources in by_destination(wanted).items()
        ]
        return await self._together(operations, timeout_ms)

    async def describe_log_dirs(
        self, broker_ids: Iterable[int], *, timeout_ms: int | None = None
    ) -> Results[int, LogDirs]:
        """Return what is in the log directories of brokers, and how full their volumes are (bytes; Kafka 3.3)."""
        operations = [(log_dirs.description(each), [each]) for each in dict.fromkeys(broker_ids)]
        return await self._together(operations, timeout_ms)

    # ------------------------------------------------------------------ users

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout_ms: int | None = None
    ) -> Results[str, Credentials]:
        """Return which SCRAM credentials users have; without names, of all who have some (Kafka 2.7)."""
        if users is None:
            found = await self._one(scram_users.description_of_all(), self._deadline(timeout_ms))
            return Results(found, {})
        names = list(dict.fromkeys(users))
        operation = scram_users.description(names)
        return await self._carry_out(operation, names, self._deadline(timeout_ms))

    async def alter_user_scram_credentials(
        self,
        alterations: Iterable[UserScramCredentialAlteration],
        *,
        timeout_ms: int | None = None,
    ) -> Results[str, None]:
        """Set and remove SCRAM credentials; those of one user all or none (Kafka 2.7).

        Raises:
            UsageError: a credential is altered twice; nothing was altered.
        """
        deadline = self._deadline(timeout_ms)
        users, operation = await asyncio.to_thread(scram_users.alteration, list(alterations))
        return await self._carry_out(operation, users, deadline)

    # ------------------------------------------------------------------ client quotas

    async def describe_client_quotas(
        self, wanted: ClientQuotaFilter | None = None, *, timeout_ms: int | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas of all entities that match, by Kafka's keys; without a filter of all (Kafka 2.6).

        Raises:
            BrokerError: the brokers refuse.
            ApiTimeoutError: nobody has answered in time.
            UsageError: the brokers are too old.
        """
        operation = client_quotas.description(wanted or ClientQuotaFilter.all())
        return await self._one(operation, self._deadline(timeout_ms))

    async def alter_client_quotas(
        self,
        alterations: Iterable[ClientQuotaAlteration],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[QuotaEntity, None]:
        """Set and remove quotas; what is altered for one entity is altered wholly or not at all (Kafka 2.6).

        A controller takes 10,000 values in one call.

        Raises:
            UsageError: an entity is named twice, or the brokers are too old; nothing was altered.
        """
        entities, operation = client_quotas.alteration(alterations, validate_only=validate_only)
        return await self._carry_out(operation, entities, self._deadline(timeout_ms))

    # ------------------------------------------------------------------ carrying out

    async def _carry_out(
        self,
        operation: Operation[K, V],
        keys: Iterable[K],
        deadline: Deadline,
        retry_on_quota_violation: bool = False,  # noqa: FBT001, FBT002 - named where people call
    ) -> Results[K, V]:
        retry = retry_on_quota_violation
        return await carry_out(
            operation, keys, self._asker, deadline, retry_on_quota_violation=retry
        )

    async def _one(self, operation: Operation[None, V], deadline: Deadline) -> V:
        results = await self._carry_out(operation, [None], deadline)
        return results.result(None)

    async def _together(
        self,
        operations: Iterable[tuple[Operation[K, V], Sequence[K]]],
        timeout_ms: int | None,
        retry_on_quota_violation: bool = False,  # noqa: FBT001, FBT002 - named where people call
    ) -> Results[K, V]:
        """At several brokers, or in several requests, at once; what is wrong with one is its keys' error."""
        deadline = self._deadline(timeout_ms)

        async def settled(operation: Operation[K, V], keys: Sequence[K]) -> Results[K, V]:
            try:
                return await self._carry_out(operation, keys, deadline, retry_on_quota_violation)
            except KvotaError as error:
                return Results({}, dict.fromkeys(keys, error))

        return merged(await asyncio.gather(*(settled(*operation) for operation in operations)))

    def _deadline(self, timeout_ms: int | None) -> Deadline:
        if timeout_ms is None:
            timeout_ms = self._asker.patience.default_api_timeout_ms
        return Deadline(timeout_ms)


def _asker(cluster: Cluster, patience: Patience) -> Asker:
    return Asker(cluster, patience, Random())  # noqa: S311 - it only spreads retries
