"""Where the volumes are looked at, by the settings."""

from kvota.app.config import GatewayConfig
from kvota.app.local_disks import LocalDisks
from kvota.app.own_cluster import own_cluster
from kvota.app.own_source import OwnSource
from kvota.client.cluster import Cluster
from kvota.client.log_dirs import check_versions, observe_cluster
from kvota.volumes import Observation, VolumeThrottle

# A broker, or a source of one's own, may take so long to answer, whatever the interval: looks do not overlap, so one that
# is late costs nothing, and one that is given up says nothing of a disk that fills.
_TIMEOUT_S_MIN = 5.0


class VolumeObserver:
    """Looks at volumes as the settings say; ``own``: the source of one's own that they name, if they do."""

    def __init__(self, config: GatewayConfig, own: OwnSource | None) -> None:
        self._settings = config.kafka.volumes
        self._own = own
        self._timeout_s = max(_TIMEOUT_S_MIN, self._settings.check_interval_ms / 1000 - 1)
        self._cluster: Cluster | None = None
        self._disks: LocalDisks | None = None
        if self._settings.source == "cluster":
            self._cluster = own_cluster(config, client_id="kvota-volumes")
        elif own is None:
            self._disks = LocalDisks(self._settings.log_dirs)

    async def check(self) -> None:
        """Check that the cluster can tell.

        Raises:
            UsageError: a broker is too old.
            KvotaError: it cannot be asked.
        """
        if self._cluster is not None:
            await check_versions(self._cluster)

    async def observe(self) -> Observation:
        """Look once."""
        if self._own is not None:
            return await self._own.observe(self._timeout_s)
        if self._cluster is not None:
            return await observe_cluster(self._cluster, timeout_s=self._timeout_s)
        assert self._disks is not None, "something is looked at"
        return await self._disks.observe(self._timeout_s)

    async def close(self) -> None:
        """Close the connections to the cluster, the looks at this machine's disks, and the source of one's own."""
        if self._cluster is not None:
            await self._cluster.close()
        if self._own is not None:
            await self._own.close()
        if self._disks is not None:
            self._disks.close()


def throttle_of(config: GatewayConfig, *, now_ms: int) -> VolumeThrottle:
    """Return what judges the observations, as the settings say."""
    settings = config.kafka.volumes
    return VolumeThrottle(
        settings.limit,
        fallback=settings.fallback,
        validity_ms=settings.validity_ms,
        per_broker=config.kafka.factor_per_broker,
        now_ms=now_ms,
    )
