"""A quota for the whole cluster, split over its brokers by the partitions they lead (KIP-257's second use)."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from math import isfinite
from typing import ClassVar

from kvota.callbacks.grouped import GROUP_PREFIX, GROUP_TAG, GroupQuotaCallback
from kvota.callbacks.groups import CLIENT_ID_ENDINGS, TOPIC_ENDINGS, USER_ENDINGS, Kind
from kvota.model.cluster_view import ClusterView
from kvota.model.errors import ConfigurationError, Fault
from kvota.model.quota_type import QuotaType
from kvota.model.tags import Tags
from kvota.model.units import parse_byte_rate

SHARE_PREFIX = "client.quota.callback.share."
SEPARATOR = f"{SHARE_PREFIX}separator"
# Limits of groups that have none of their own, for the whole cluster.
_DEFAULTS = {
    f"{SHARE_PREFIX}default.produce": QuotaType.PRODUCE,
    f"{SHARE_PREFIX}default.fetch": QuotaType.FETCH,
}
_KNOWN = (SEPARATOR, *_DEFAULTS)

_NOWHERE: Mapping[int, float] = {}


class PartitionShareQuotaCallback(GroupQuotaCallback):
    """Groups as ``GroupQuotaCallback`` has them, with topics; their bandwidth is that of the whole cluster.

    A broker that leads ``n`` of the ``N`` partitions of a group's topics gives the group ``n / N`` of its limit,
    one that leads none of them ``1 / N`` (its clients may ask there before they know better). A group without
    partitions has all of its limit everywhere. Leaders are followed as they change.

    Properties of groups beside those of ``GroupQuotaCallback``: ``topics``, ``topic.prefixes``,
    ``topic.pattern``. ``client.quota.callback.share.separator``, e.g. ``_``: who belongs to no such group is of
    the group that stands before the first separator in the user's name, and so is a topic.
    ``client.quota.callback.share.default.produce`` and ``.fetch`` are limits of groups that have none of their
    own and for which ``group:*`` has none.

    Source: KIP-257, ``GroupedUserQuotaCallback`` of Kafka's own ``CustomQuotaCallbackTest``.
    """

    _endings: ClassVar[Mapping[str, Kind]] = USER_ENDINGS | CLIENT_ID_ENDINGS | TOPIC_ENDINGS
    # All but these are split, where they are counted for each broker.
    _whole: ClassVar[frozenset[QuotaType]] = frozenset({QuotaType.REQUEST})

    def __init__(self) -> None:
        super().__init__()
        self._separator = ""
        self._defaults: dict[QuotaType, float] = {}
        # Replaced as a whole, on another thread than it is read: by group, by node, 0 for all other nodes.
        self._shares: Mapping[str, Mapping[int, float]] = {}
        self._groups_of_topic: dict[str, tuple[str, ...]] = {}

    def configure(self, properties: Mapping[str, str]) -> None:
        """Take the groups, the separator and the defaults.

        Raises:
            ConfigurationError: properties are wrong, or there are no groups; names each property.
        """
        faults = self._read_groups(properties)
        self._separator = properties.get(SEPARATOR, "")
        if SEPARATOR in properties and not self._separator:
            faults.append(Fault(SEPARATOR, '"" separates nothing', 'Write e.g. "_".'))
        faults += self._read_defaults(properties)
        faults += [
            Fault(key, "is no property of this callback", f"Known are {', '.join(_KNOWN)}.")
            for key in properties
            if key.startswith(SHARE_PREFIX) and key not in _KNOWN
        ]
        if not self._groups and not self._separator and not faults:
            remedy = f"Write {SEPARATOR}, or groups: {GROUP_PREFIX}orders.users, …orders.topics"
            faults.append(Fault(f"{SHARE_PREFIX}*", "there is no group", remedy))
        if faults:
            raise ConfigurationError(faults)

    def may_be_group(self, name: str) -> bool:
        """True for a name under which limits can be set: with a separator any."""
        return bool(self._separator) or super().may_be_group(name)

    def enabled(self, quota_type: QuotaType) -> bool:
        """True while a group, or anybody else, has a quota of this type."""
        return quota_type in self._defaults or super().enabled(quota_type)

    def quota_limit(self, quota_type: QuotaType, tags: Tags) -> float | None:
        """A group's limit for the whole cluster; what Kafka's own rules say of others is for each broker."""
        limit = super().quota_limit(quota_type, tags)
        if limit is None and GROUP_TAG in tags:
            return self._defaults.get(quota_type)
        return limit

    def broker_limit(self, quota_type: QuotaType, tags: Tags, node_id: int) -> float | None:
        """The broker's share of a group's limit."""
        limit = self.quota_limit(quota_type, tags)
        name = tags.get(GROUP_TAG)
        if limit is None or name is None or node_id < 0 or quota_type in self._whole:
            return limit
        return limit * self.share(name, node_id)

    def share(self, group: str, node_id: int) -> float:
        """Which part of a group's limit a broker gives, above 0 up to 1."""
        shares = self._shares.get(group, _NOWHERE)
        return shares.get(node_id, shares.get(_ELSEWHERE, 1.0))

    def update_cluster_metadata(self, cluster: ClusterView) -> bool:
        """Count who leads the partitions of each group."""
        led: dict[str, Counter[int]] = {}
        groups_of_topic = {}
        for topic in cluster.topics.values():
            groups = self._groups_of_topic.get(topic.name)
            if groups is None:
                groups = self._groups_with(topic.name)
            groups_of_topic[topic.name] = groups
            for group in groups:
                led.setdefault(group, Counter()).update(topic.leaders)
        self._groups_of_topic = groups_of_topic
        shares = {group: _shares(counts) for group, counts in led.items() if counts}
        has_changed, self._shares = shares != self._shares, shares
        return has_changed

    def _group_of_client(self, user: str, client_id: str) -> str | None:
        group = super()._group_of_client(user, client_id)
        return self._before_separator(user) if group is None else group

    def _groups_with(self, topic: str) -> tuple[str, ...]:
        named = tuple(g.name for g in self._groups if g.names[Kind.TOPIC].has(topic))
        if named:
            return named
        group = self._before_separator(topic)
        return () if group is None else (group,)

    def _before_separator(self, name: str) -> str | None:
        """The group that a name says; None: none."""
        if not self._separator:
            return None
        before, found, _ = name.partition(self._separator)
        return before if before and found else None

    def _read_defaults(self, properties: Mapping[str, str]) -> list[Fault]:
        faults = []
        for key, quota_type in _DEFAULTS.items():
            if key in properties:
                limit = _byte_rate(properties[key])
                if limit is None:
                    problem = f'"{properties[key]}" is not a number of bytes per second above 0'
                    faults.append(Fault(key, problem, 'Write e.g. "20MB/s".'))
                else:
                    self._defaults[quota_type] = limit
        return faults


def _byte_rate(text: str) -> float | None:
    """A number with or without its unit; None: there is none above 0."""
    for read in (float, parse_byte_rate):
        with suppress(ValueError, OverflowError):
            limit = read(text)
            return limit if isfinite(limit) and limit > 0 else None
    return None


# The key of all nodes that lead nothing; a node without a leader has -1.
_ELSEWHERE = -2


def _shares(led: Counter[int]) -> dict[int, float]:
    total = led.total()
    shares = {node_id: count / total for node_id, count in led.items() if node_id >= 0}
    shares[_ELSEWHERE] = 1.0 / total
    return shares
