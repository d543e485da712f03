"""The quotas of a cluster, or of a gateway in front of one: looked at, checked, altered."""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from kvota.admin import AdminClient, ClientQuotaAlteration, Results
from kvota.app.quotas_as_code.alterable_quotas import (
    VALUES_PER_REQUEST_MAX,
    InForce,
    LeftOut,
    NotAllowedError,
)
from kvota.client import BrokerError, Cluster
from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.entity_table import is_same
from kvota.model.errors import UnreachableError, UsageError
from kvota.model.quota_entity import QuotaEntity
from kvota.planning.wanted_quotas import Difference, requests
from kvota.store.quota_document import value_of
from kvota.wire.error_code import ErrorCode

# A broker follows its controller within milliseconds; a busy one may need longer.
_FOLLOWS_WITHIN_S = 15.0
_LOOKS_AGAIN_AFTER_S = 0.01
_REFUSALS_SHOWN = 20


class ClusterQuotas:
    """Asks one cluster; use it in an ``async with``.

    Args:
        cluster: whom to ask; it is closed at the end.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._admin = AdminClient.of(cluster)

    async def __aenter__(self) -> Self:
        """Reach the cluster.

        Raises:
            UnreachableError: none of the servers answers.
            BrokerError: the login is refused.
        """
        await self._admin.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all connections."""
        await self._admin.close()

    async def cluster_id(self) -> str | None:
        """As ``AlterableQuotas``."""
        return (await self._cluster.metadata([])).cluster_id

    async def in_force(self) -> InForce:
        """As ``AlterableQuotas``; brokers older than 2.6 do not tell."""
        try:
            described = await self._admin.describe_client_quotas()
        except BrokerError as error:
            if error.code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                raise
            msg = (
                f"this user may not see quotas ({error}); it needs DESCRIBE_CONFIGS on the cluster"
            )
            raise NotAllowedError(msg) from error
        changes: list[KeyChange] = []
        left_out: list[LeftOut] = []
        for entity, values in described.items():
            for key, value in values.items():
                try:
                    changes.append(KeyChange(entity, key, value_of(entity, key, value)))
                except ValueError as error:  # a key of a newer Kafka, or a value of before 4.0
                    sentence = f"{entity}: {key} = {value:.12g}: {error}"
                    left_out.append(LeftOut(entity, key, sentence))
        return InForce(ClientQuotas().with_changes(changes), left_out)

    async def check(self, differences: Sequence[Difference]) -> None:
        """As ``AlterableQuotas``."""
        for part in requests(differences, values_max=VALUES_PER_REQUEST_MAX):
            alterations = _alterations(part)
            results = await self._admin.alter_client_quotas(alterations, validate_only=True)
            raise_refusals(results, "nothing was changed")

    async def alter(self, differences: Sequence[Difference]) -> Results[QuotaEntity, None]:
        """As ``AlterableQuotas``."""
        return await self._admin.alter_client_quotas(_alterations(differences))

    async def until_in_force(self, differences: Sequence[Difference]) -> None:
        """As ``AlterableQuotas``."""
        missing = list(differences)
        try:
            async with asyncio.timeout(_FOLLOWS_WITHIN_S):
                wait_s = _LOOKS_AGAIN_AFTER_S
                while missing := not_shown(differences, (await self.in_force()).quotas):
                    await asyncio.sleep(wait_s)
                    wait_s = min(1.0, wait_s * 2)
        except TimeoutError as error:
            first = missing[0]
            msg = (
                f"the change was taken, but {_FOLLOWS_WITHIN_S:g} s later {len(missing)} of its values are not "
                f"shown, e.g. {first.key} of {first.entity}"
            )
            raise UnreachableError(msg) from error


def raise_refusals(results: Results[QuotaEntity, None], so: str) -> None:
    """Raise what has gone wrong.

    Raises:
        NotAllowedError: the user may not alter quotas.
        UsageError: the cluster refuses some of it; names all of that.
        KvotaError: something else has gone wrong.
    """
    if not results.errors:
        return
    refused = [error for error in results.errors.values() if isinstance(error, BrokerError)]
    if len(refused) < len(results.errors):
        raise next(each for each in results.errors.values() if not isinstance(each, BrokerError))
    if all(each.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED for each in refused):
        msg = f"this user may not alter quotas ({refused[0]}); it needs ALTER_CONFIGS on the cluster; {so}"
        raise NotAllowedError(msg)
    lines = [_refusal(each) for each in refused[:_REFUSALS_SHOWN]]
    if len(refused) > _REFUSALS_SHOWN:
        lines.append(f"and {len(refused) - _REFUSALS_SHOWN} more")
    msg = "\n  ".join((f"the cluster refuses this; {so}:", *lines))
    raise UsageError(msg)


def _refusal(error: BrokerError) -> str:
    known = "Invalid configuration key" in (error.message or "")
    hint = ". These brokers do not know that key; it came with a later Kafka" if known else ""
    return f"{error}{hint}"


def not_shown(differences: Sequence[Difference], quotas: ClientQuotas) -> list[Difference]:
    """Those whose new values are not among the quotas."""
    return [
        each for each in differences if not is_same(quotas.value(each.entity, each.key), each.new)
    ]


def _alterations(differences: Sequence[Difference]) -> list[ClientQuotaAlteration]:
    ops: dict[QuotaEntity, dict[str, float | None]] = {}
    for difference in differences:
        ops.setdefault(difference.entity, {})[difference.key] = difference.new
    return [ClientQuotaAlteration(entity, values) for entity, values in ops.items()]
