"""The admin client: what can be asked of a cluster, a method each."""

from collections.abc import Iterable
from random import Random
from types import TracebackType
from typing import Self

from kvota.admin import client_quotas
from kvota.admin.asking import Asker, Deadline, Patience
from kvota.admin.client_quotas import ClientQuotaAlteration, ClientQuotaFilter
from kvota.admin.operation import carry_out
from kvota.admin.results import Results
from kvota.client import ClientLimits, Cluster, Security
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
        results = await carry_out(operation, [None], self._asker, self._deadline(timeout_ms))
        return results.result(None)

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
        return await carry_out(operation, entities, self._asker, self._deadline(timeout_ms))

    def _deadline(self, timeout_ms: int | None) -> Deadline:
        if timeout_ms is None:
            timeout_ms = self._asker.patience.default_api_timeout_ms
        return Deadline(timeout_ms)


def _asker(cluster: Cluster, patience: Patience) -> Asker:
    return Asker(cluster, patience, Random())  # noqa: S311 - it only spreads retries
