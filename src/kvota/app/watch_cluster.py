"""The gateway's own look at the cluster, wired."""

import asyncio
from typing import TYPE_CHECKING

from kvota.app.config import GatewayConfig
from kvota.app.system_clock import SystemClock
from kvota.gateway.cluster_watch import ClusterWatch
from kvota.gateway.gateway import Gateway
from kvota.model.errors import UsageError

if TYPE_CHECKING:  # they need kio
    from kvota.client.cluster import Cluster
    from kvota.client.cluster_looks import ClusterLooks


async def watch_cluster(config: GatewayConfig, gateway: Gateway, started: asyncio.Event) -> None:
    """Look at topics and leaders once it listens, while the quota callback wants to know them.

    Where the gateway has a login of its own, always: what topics cost is then known without asking as their callers.
    """
    await started.wait()
    opened: list[Cluster] = []

    def prepare() -> "ClusterLooks":
        try:
            from kvota.app.own_cluster import own_cluster
            from kvota.client.cluster_looks import ClusterLooks
        except ModuleNotFoundError as error:
            msg = f"{error.name} is not installed; it comes with kvota[client]"
            raise UsageError(msg) from error
        cluster = own_cluster(config, client_id="kvota-cluster")
        opened.append(cluster)
        return ClusterLooks(cluster)

    async def looks() -> "ClusterLooks":
        # Importing kio takes a quarter of a second.
        return await asyncio.to_thread(prepare)

    watch = ClusterWatch(
        looks,
        gateway.quota_callback,
        gateway.shared.facts,
        clock=SystemClock(),
        always="security.protocol" in config.kafka.volumes.admin,
    )
    try:
        await watch.run()
    finally:
        for cluster in opened:
            await cluster.close()
