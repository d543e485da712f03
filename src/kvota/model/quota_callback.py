"""The interface of whoever decides who shares a counter, and what its limit is.

Source: KIP-257, ``org.apache.kafka.server.quota.ClientQuotaCallback``.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.model.tags import Tags

# What a callback may know of the cluster: topic → the node id of each partition's leader, -1 without one.
PartitionLeaders = Mapping[str, Sequence[int]]


class ClientQuotaCallback(ABC):
    """Clients with equal tags share one counter, and the limit of these tags is its limit.

    ``quota_metric_tags`` and ``quota_limit`` of a callback that does not answer at once run on
    another thread than the rest; what they share has to be safe for that.

    Attributes:
        answers_at_once: true only where these two methods are look-ups in memory. All others are
            asked apart, and their answers are remembered.
        initial_quotas: those it was made with. Later changes reach it by ``update_quota`` and
            ``remove_quota``.
    """

    answers_at_once: ClassVar[bool] = False
    initial_quotas: ConfiguredQuotas = ConfiguredQuotas()

    def configure(self, properties: Mapping[str, str]) -> None:  # noqa: B027  (need not do anything)
        """Take the properties of the configuration; called once, before everything else."""

    @abstractmethod
    def quota_metric_tags(self, quota_type: QuotaType, user: str, client_id: str) -> Tags:
        """The tags of the counter this client is charged on; values are plain texts."""

    @abstractmethod
    def quota_limit(self, quota_type: QuotaType, tags: Tags) -> float | None:
        """The limit of the counter with these tags; None: unlimited, or not in use any more."""

    @abstractmethod
    def update_quota(self, quota_type: QuotaType, entity: QuotaEntity, limit: float) -> None:
        """A configured quota was set."""

    @abstractmethod
    def remove_quota(self, quota_type: QuotaType, entity: QuotaEntity) -> None:
        """A configured quota was removed."""

    @abstractmethod
    def quota_reset_required(self, quota_type: QuotaType) -> bool:
        """True when tags or limits may be others since the last call, which clears the flag.

        Limits that changed by ``update_quota`` or ``remove_quota`` alone need not be told here. Has
        to be cheap: it is asked often.
        """

    def update_cluster_metadata(self, metadata: PartitionLeaders) -> bool:  # noqa: ARG002
        """Take the cluster's partitions; returns whether any limit may be another one now."""
        return False

    def enabled(self, quota_type: QuotaType) -> bool:  # noqa: ARG002
        """True while charges of this type must be counted; false only where no client has a limit."""
        return True

    def close(self) -> None:  # noqa: B027
        """Free what the callback holds; called once, after everything else."""
