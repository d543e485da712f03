"""The cluster as the gateway asks it itself, with a login of its own where there is one."""

from kvota.app.config import GatewayConfig
from kvota.client.cluster import Cluster
from kvota.client.properties import cluster_of
from kvota.client.security import Security
from kvota.model.address import address_text
from kvota.model.errors import UsageError
from kvota.volumes.settings import ADMIN_PREFIXES


def own_cluster(config: GatewayConfig, *, client_id: str) -> Cluster:
    """The cluster by ``client.quota.callback.static.kafka.admin.*``; nothing is connected yet.

    Without ``bootstrap.servers`` among them it is that of ``upstream.bootstrap_servers``; without ``security.protocol`` it is
    encrypted as ``upstream.tls`` says.

    Raises:
        UsageError: a property that cannot be used; a password is in no text.
    """
    properties = dict(config.kafka.volumes.admin)
    if not properties.get("bootstrap.servers", "").strip():
        servers = [address_text(*server) for server in config.gateway.upstream]
        properties["bootstrap.servers"] = ",".join(servers)
    try:
        if "security.protocol" not in properties and config.gateway.upstream_tls is not None:
            return Cluster(
                properties["bootstrap.servers"].split(","),
                security=Security(tls=config.gateway.upstream_tls),
                client_id=properties.get("client.id", client_id),
            )
        return cluster_of(properties, client_id=client_id)
    except UsageError as error:
        msg = f"{ADMIN_PREFIXES[0]}: {error}"
        raise UsageError(msg) from error
