"""Several users and client ids that share one quota (KIP-257's first use)."""

from collections.abc import Mapping
from typing import ClassVar

from kvota.callbacks.default import DefaultQuotaCallback
from kvota.callbacks.groups import CLIENT_ID_ENDINGS, USER_ENDINGS, Group, Kind, read_groups
from kvota.model.errors import ConfigurationError, Fault
from kvota.model.quota_callback import ClientQuotaCallback
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.model.tags import Tags

GROUP_PREFIX = "client.quota.callback.group."
GROUP_TAG = "group"
# A group's limits are the quotas of a user of this name, so that Kafka's own tools set them.
_USER_OF_GROUP = "group:"
# What a group without a limit of its own has.
ANY_GROUP = "*"


class GroupQuotaCallback(ClientQuotaCallback):
    """The first group that a client belongs to, in the order of the properties; others by Kafka's own rules.

    Properties ``client.quota.callback.group.<name>.``: ``users``, ``user.prefixes`` (lists with commas),
    ``user.pattern`` (a regular expression, for the whole name), and ``client.ids``,
    ``client.id.prefixes``, ``client.id.pattern``. The limits of a group are the configured quotas of the
    user ``group:<name>``, else those of ``group:*``; nobody who logs in under such a name shares them.

    >>> callback = GroupQuotaCallback()
    >>> callback.configure({"client.quota.callback.group.batch.user.prefixes": "etl-,spark-"})
    >>> callback.update_quota(QuotaType.PRODUCE, QuotaEntity(user="group:batch"), 1000.0)
    >>> tags = callback.quota_metric_tags(QuotaType.PRODUCE, "etl-7", "app")
    >>> tags, callback.quota_limit(QuotaType.PRODUCE, tags)
    ({'group': 'batch'}, 1000.0)
    """

    answers_at_once: ClassVar[bool] = True
    _endings: ClassVar[Mapping[str, Kind]] = USER_ENDINGS | CLIENT_ID_ENDINGS

    def __init__(self) -> None:
        self._groups: list[Group] = []
        self._limits: dict[QuotaType, dict[str, float]] = {of_type: {} for of_type in QuotaType}
        self._default = DefaultQuotaCallback()
        self._has_begun_or_ended: set[QuotaType] = set()

    def configure(self, properties: Mapping[str, str]) -> None:
        """Take the groups.

        Raises:
            ConfigurationError: properties are wrong, or there is no group; names each property.
        """
        faults = self._read_groups(properties)
        if not self._groups and not faults:
            remedy = f"Write e.g. {GROUP_PREFIX}batch.user.prefixes = etl-,spark-"
            faults.append(Fault(f"{GROUP_PREFIX}*", "there is no group", remedy))
        if faults:
            raise ConfigurationError(faults)

    def _read_groups(self, properties: Mapping[str, str]) -> list[Fault]:
        self._groups, faults = read_groups(properties, GROUP_PREFIX, self._endings)
        return faults

    @property
    def group_names(self) -> tuple[str, ...]:
        """The groups, in their order."""
        return tuple(group.name for group in self._groups)

    def may_be_group(self, name: str) -> bool:
        """True for a name under which limits can be set."""
        return name == ANY_GROUP or name in self.group_names

    def has_limit(self, quota_type: QuotaType, name: str) -> bool:
        """True where a group has a limit of this type, its own or that of any."""
        return self.quota_limit(quota_type, {GROUP_TAG: name}) is not None

    def enabled(self, quota_type: QuotaType) -> bool:
        """True while a group, or anybody else, has a quota of this type."""
        return self._default.enabled(quota_type) or bool(self._limits[quota_type])

    def quota_metric_tags(self, quota_type: QuotaType, user: str, client_id: str) -> Tags:
        """The group's counter, else that of Kafka's own rules."""
        name = self._group_of_client(user, client_id)
        if name is not None:
            return {GROUP_TAG: name}
        return self._default.quota_metric_tags(quota_type, user, client_id)

    def _group_of_client(self, user: str, client_id: str) -> str | None:
        for group in self._groups:
            if group.has(user, client_id):
                return group.name
        return None

    def quota_limit(self, quota_type: QuotaType, tags: Tags) -> float | None:
        """The group's limit, None while it has none; else that of Kafka's own rules."""
        name = tags.get(GROUP_TAG)
        if name is None:
            return self._default.quota_limit(quota_type, tags)
        limits = self._limits[quota_type]
        return limits.get(name, limits.get(ANY_GROUP))

    def update_quota(self, quota_type: QuotaType, entity: QuotaEntity, limit: float) -> None:
        """Set a group's limit, or a quota as Kafka has it."""
        name = group_of(entity)
        if name is None:
            self._default.update_quota(quota_type, entity, limit)
            return
        if not self._limits[quota_type]:
            self._has_begun_or_ended.add(quota_type)
        self._limits[quota_type][name] = limit

    def remove_quota(self, quota_type: QuotaType, entity: QuotaEntity) -> None:
        """Take it back."""
        name = group_of(entity)
        if name is None:
            self._default.remove_quota(quota_type, entity)
            return
        self._limits[quota_type].pop(name, None)
        if not self._limits[quota_type]:
            self._has_begun_or_ended.add(quota_type)

    def quota_reset_required(self, quota_type: QuotaType) -> bool:
        """True when those without a group may belong to other counters, or groups begin or cease to count."""
        is_due = quota_type in self._has_begun_or_ended
        self._has_begun_or_ended.discard(quota_type)
        return self._default.quota_reset_required(quota_type) or is_due


def group_of(entity: QuotaEntity) -> str | None:
    """The name of the group whose limits this entity's quotas are, None: of none."""
    user = entity.user
    if entity.client_id is not None or not isinstance(user, str):
        return None
    return user.removeprefix(_USER_OF_GROUP) if user.startswith(_USER_OF_GROUP) else None
