"""One limit for all clients of a broker, and users that have none: Strimzi's static quota callback.

Source: strimzi/kafka-quotas-plugin 0.4.0, ``StaticQuotaCallback``. How full disks lower the produce limit is
not decided here: that factor is laid over the limits of any callback (``kvota.volumes``).
"""

from collections.abc import Mapping
from math import isinf
from types import MappingProxyType
from typing import ClassVar

from kvota.model.errors import ConfigurationError
from kvota.model.quota_callback import ClientQuotaCallback
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.model.tags import EXCLUDED_TAG, Tags
from kvota.volumes.settings import read_volume_settings

_TYPE_TAG = "quota.type"
_LIMIT_OF = {
    QuotaType.PRODUCE: "produce",
    QuotaType.FETCH: "fetch",
    QuotaType.REQUEST: "request",
}
# As in Strimzi: a produce limit of nothing lets one byte a second through.
_PRODUCE_FLOOR = 1.0


class StaticQuotaCallback(ClientQuotaCallback):
    """All clients share one counter a type and broker; configured quotas of users and clients are not used.

    >>> callback = StaticQuotaCallback()
    >>> callback.configure({"client.quota.callback.static.produce": "1000"})
    >>> tags = callback.quota_metric_tags(QuotaType.PRODUCE, "alice", "app")
    >>> tags, callback.quota_limit(QuotaType.PRODUCE, tags)
    ({'quota.type': 'PRODUCE'}, 1000.0)
    """

    answers_at_once: ClassVar[bool] = True

    def __init__(self) -> None:
        self._limits: dict[QuotaType, float] = {}
        self._excluded: frozenset[str] = frozenset()
        self._to_be_reset = set(QuotaType)

    def configure(self, properties: Mapping[str, str]) -> None:
        """Take ``client.quota.callback.static.*``.

        Raises:
            ConfigurationError: properties are wrong; names each.
        """
        settings, faults = read_volume_settings(properties)
        if faults:
            raise ConfigurationError(faults)
        self._excluded = settings.excluded
        for quota_type, name in _LIMIT_OF.items():
            limit = max(settings.limits[name], 0.0)
            if quota_type is QuotaType.PRODUCE:
                limit = max(limit, _PRODUCE_FLOOR)
            if not isinf(limit):
                self._limits[quota_type] = limit

    @property
    def limits(self) -> Mapping[QuotaType, float]:
        """As configured, per second and broker, of those types that have one."""
        return MappingProxyType(self._limits)

    def enabled(self, quota_type: QuotaType) -> bool:
        """False for REQUEST without a limit: to take the time of requests costs some of it."""
        return quota_type is not QuotaType.REQUEST or quota_type in self._limits

    def quota_metric_tags(self, quota_type: QuotaType, user: str, client_id: str) -> Tags:  # noqa: ARG002
        """One counter for all, another one for those who have no limit."""
        if user in self._excluded:
            return {_TYPE_TAG: quota_type.value, EXCLUDED_TAG: "true"}
        return {_TYPE_TAG: quota_type.value}

    def quota_limit(self, quota_type: QuotaType, tags: Tags) -> float | None:
        """The limit of all; None: unlimited."""
        return None if EXCLUDED_TAG in tags else self._limits.get(quota_type)

    def update_quota(self, quota_type: QuotaType, entity: QuotaEntity, limit: float) -> None:
        """Do nothing: limits are those of the properties."""

    def remove_quota(self, quota_type: QuotaType, entity: QuotaEntity) -> None:
        """Do nothing: limits are those of the properties."""

    def quota_reset_required(self, quota_type: QuotaType) -> bool:
        """True once for each type, as in Strimzi."""
        is_due = quota_type in self._to_be_reset
        self._to_be_reset.discard(quota_type)
        return is_due
