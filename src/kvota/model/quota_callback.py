"""The interface of whoever decides who shares a counter, and what its limit is.

Source: KIP-257, ``org.apache.kafka.server.quota.ClientQuotaCallback``.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar

from kvota.model.cluster_view import ClusterView
from kvota.model.configured_quotas import ConfiguredQuotas, QuotaChange
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.model.tags import Tags, tags_text


class ClientQuotaCallback(ABC):
    """Clients with equal tags share one counter, and the limit of these tags is its limit.

    The methods are KIP-257's, in Python's spelling, and one more, ``broker_limit``: Kafka has an instance
    of the callback in each broker, a gateway one for all of them. The life of an instance::

        configure                              once, before everything else
        update_quota                           for each configured quota
        update_cluster_metadata                once it is known, and whenever it changes
        quota_metric_tags, broker_limit        of a client that is new, and of all after a change
        update_quota, remove_quota             as quotas are set and removed
        quota_reset_required                   four times a second, for each type
        close                                  once, after everything else

    A request is never held up by more than its client's first answer, and by that for one second at most.
    ``quota_metric_tags`` and ``broker_limit`` run on several threads at a time, all other methods one after
    the other on one more thread: what they share has to be safe for that. An error in any of them is counted
    and logged, and what was last answered stays in force.

    Attributes:
        answers_at_once: for kvota's own callbacks, which only look things up in memory and are asked on the
            event loop. Of anybody else's class it is not believed.
        initial_quotas: those it was made with. Later changes reach it by ``update_quota`` and
            ``remove_quota``.
    """

    answers_at_once: ClassVar[bool] = False
    initial_quotas: ConfiguredQuotas = ConfiguredQuotas()

    def configure(self, properties: Mapping[str, str]) -> None:  # noqa: B027  (need not do anything)
        """Take the properties of the configuration that begin with ``client.quota.callback.``, and the like.

        Raises:
            Exception: they cannot be used; the callback is not put in force then. A ``ValueError`` whose
                text begins with the name of a property is told with its place in the file.
        """

    @abstractmethod
    def quota_metric_tags(self, quota_type: QuotaType, user: str, client_id: str) -> Tags:
        """The tags of the counter this client is charged on; values are plain texts."""

    @abstractmethod
    def quota_limit(self, quota_type: QuotaType, tags: Tags) -> float | None:
        """The limit of the counter with these tags, per second; None: unlimited, or not in use any more.

        Bytes of PRODUCE and FETCH, percent of one thread of REQUEST, partitions of CONTROLLER_MUTATION.
        """

    @abstractmethod
    def update_quota(self, quota_type: QuotaType, entity: QuotaEntity, limit: float) -> None:
        """A configured quota was set."""

    @abstractmethod
    def remove_quota(self, quota_type: QuotaType, entity: QuotaEntity) -> None:
        """A configured quota was removed."""

    @abstractmethod
    def quota_reset_required(self, quota_type: QuotaType) -> bool:
        """True when tags or limits may be others since the last call, which clears the flag.

        Limits that changed by ``update_quota``, ``remove_quota`` or ``update_cluster_metadata`` alone need not
        be told here.
        """

    def update_cluster_metadata(self, cluster: ClusterView) -> bool:  # noqa: ARG002
        """Take the cluster's topics, partitions and leaders; returns whether any limit may be another one now.

        Topics that are being deleted are not among them.
        """
        return False

    def broker_limit(self, quota_type: QuotaType, tags: Tags, node_id: int) -> float | None:  # noqa: ARG002
        """The limit of the counter with these tags at one broker; the same at all unless this is overridden.

        Not in KIP-257. ``node_id`` is negative for a counter that is no single broker's: that of a type which
        counts for the whole cluster (CONTROLLER_MUTATION), or of a broker whose id nobody knows.
        """
        return self.quota_limit(quota_type, tags)

    def enabled(self, quota_type: QuotaType) -> bool:  # noqa: ARG002
        """True while charges of this type must be counted; false only where no client has a limit.

        Not in KIP-257, where a callback of one's own has all types counted.
        """
        return True

    def only_tags(self, entity: QuotaEntity) -> Tags | None:  # noqa: ARG002
        """The only tags whose limit the quota of this entity can be; None: there may be others.

        Not in KIP-257. It saves asking for the limits of all counters where only one has changed.
        """
        return None

    def close(self) -> None:  # noqa: B027
        """Free what the callback holds; called once, after everything else."""


def only_texts(
    callback: ClientQuotaCallback, changes: Iterable[QuotaChange], quota_type: QuotaType
) -> list[str] | None:
    """The texts of the only tags of a type whose limits these changes may change; None: any tags' may be."""
    texts = []
    for change in changes:
        if change.quota_type is quota_type:
            tags = callback.only_tags(change.entity)
            if tags is None:
                return None
            texts.append(tags_text(tags))
    return texts


def tell(callback: ClientQuotaCallback, change: QuotaChange) -> None:
    """Tell a callback of one configured quota that was set or removed."""
    if change.limit is None:
        callback.remove_quota(change.quota_type, change.entity)
    else:
        callback.update_quota(change.quota_type, change.entity, change.limit)
