"""Whose the delegation tokens of the cluster are, as the gateway's own login sees them."""

import asyncio
from typing import TYPE_CHECKING

from kvota.app.config import GatewayConfig
from kvota.app.missing_extra import needs_extra
from kvota.gateway.gateway import Gateway
from kvota.gateway.token_owners import TokenOwners
from kvota.model.errors import UsageError

if TYPE_CHECKING:  # it needs kio
    from kvota.client.cluster import Cluster

_DESCRIBE_DELEGATION_TOKEN = 41


async def tell_token_owners(
    config: GatewayConfig, gateway: Gateway, started: asyncio.Event
) -> None:
    """Have the gateway ask whose tokens are, until cancelled, where it has a login of its own: brokers tell nobody else."""
    protocol = config.kafka.volumes.admin.get("security.protocol", "").strip()
    if protocol == "PLAINTEXT" or not (protocol or config.gateway.upstream_tls):
        return
    await started.wait()
    tokens = _DescribedTokens(config)
    gateway.ask_for_token_owners(TokenOwners(tokens.owners).owner_of)
    try:
        await asyncio.Event().wait()
    finally:
        await tokens.close()


class _DescribedTokens:
    """Asks a broker; it is connected to when it is first asked."""

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._cluster: Cluster | None = None

    async def owners(self) -> dict[str, str]:
        """Return the owner's name of each token's id.

        Raises:
            KvotaError: no broker can be asked, or it tells nothing.
        """
        if self._cluster is None:
            # Importing kio takes a quarter of a second.
            self._cluster = await asyncio.to_thread(self._made)
        from kvota.client.broker_error import BrokerError

        answer = await self._cluster.ask(_DESCRIBE_DELEGATION_TOKEN, {"owners": None})
        code = int(answer.error_code)
        if code:
            what = "describing delegation tokens"
            raise BrokerError(what, code)
        # Behind each there is its secret, too, which goes no further.
        return {str(token.token_id): str(token.principal_name) for token in answer.tokens}

    async def close(self) -> None:
        """Ask no more."""
        if self._cluster is not None:
            await self._cluster.close()

    def _made(self) -> "Cluster":
        try:
            from kvota.app.own_cluster import own_cluster
        except ModuleNotFoundError as error:
            raise UsageError(needs_extra(error, "client")) from error
        return own_cluster(self._config, client_id="kvota-tokens")
