"""Several users and client ids that share one quota (KIP-257's first use)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import ClassVar

from kvota.callbacks.default import DefaultQuotaCallback
from kvota.model.quota_callback import ClientQuotaCallback
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.model.tags import Tags

GROUP_PREFIX = "client.quota.callback.group."
# A group's limits are the quotas of a user of this name, so that Kafka's own tools set them.
_USER_OF_GROUP = "group:"
_GROUP_TAG = "group"

_USERS, _USER_PREFIXES, _USER_PATTERN = ".users", ".user.prefixes", ".user.pattern"
_CLIENTS, _CLIENT_PREFIXES, _CLIENT_PATTERN = ".client.ids", ".client.id.prefixes", ".client.id.pattern"  # fmt: skip
# None is the end of another.
_ENDINGS = (_USERS, _USER_PREFIXES, _USER_PATTERN, _CLIENTS, _CLIENT_PREFIXES, _CLIENT_PATTERN)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(slots=True)
class _Names:
    """Which names belong: exact ones, those with a prefix, those that a pattern matches as a whole."""

    exact: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None

    @property
    def is_said(self) -> bool:
        return bool(self.exact or self.prefixes or self.pattern)

    def has(self, name: str) -> bool:
        return (
            name in self.exact
            or (bool(self.prefixes) and name.startswith(self.prefixes))
            or (self.pattern is not None and self.pattern.fullmatch(name) is not None)
        )


@dataclass(slots=True)
class _Group:
    """Members are those whose user and whose client id both belong, where something is said of both."""

    name: str
    users: _Names = field(default_factory=_Names)
    client_ids: _Names = field(default_factory=_Names)

    def has(self, user: str, client_id: str) -> bool:
        if self.users.is_said and not self.users.has(user):
            return False
        return not self.client_ids.is_said or self.client_ids.has(client_id)


class GroupQuotaCallback(ClientQuotaCallback):
    """The first group that a client belongs to, in the order of the properties; others by Kafka's own rules.

    Properties ``client.quota.callback.group.<name>.``: ``users``, ``user.prefixes`` (lists with commas),
    ``user.pattern`` (a regular expression, for the whole name), and ``client.ids``,
    ``client.id.prefixes``, ``client.id.pattern``. The limits of a group are the configured quotas of the
    user ``group:<name>``; nobody who logs in under that name shares them.

    >>> callback = GroupQuotaCallback()
    >>> callback.configure({"client.quota.callback.group.batch.user.prefixes": "etl-,spark-"})
    >>> callback.update_quota(QuotaType.PRODUCE, QuotaEntity(user="group:batch"), 1000.0)
    >>> tags = callback.quota_metric_tags(QuotaType.PRODUCE, "etl-7", "app")
    >>> tags, callback.quota_limit(QuotaType.PRODUCE, tags)
    ({'group': 'batch'}, 1000.0)
    """

    answers_at_once: ClassVar[bool] = True

    def __init__(self) -> None:
        self._groups: list[_Group] = []
        self._limits: dict[tuple[QuotaType, str], float] = {}
        self._default = DefaultQuotaCallback()

    def configure(self, properties: Mapping[str, str]) -> None:
        """Take the groups.

        Raises:
            ValueError: a property is wrong, or there is no group; names it.
        """
        groups: dict[str, _Group] = {}
        for key, value in properties.items():
            if not key.startswith(GROUP_PREFIX):
                continue
            ending = next((one for one in _ENDINGS if key.endswith(one)), None)
            name = key[len(GROUP_PREFIX) : -len(ending)] if ending else ""
            if ending is None or not _NAME.fullmatch(name):
                raise ValueError(_no_group(key))
            _add(groups.setdefault(name, _Group(name)), key, ending, value)
        if not groups:
            msg = f"no group: write e.g. {GROUP_PREFIX}batch{_USER_PREFIXES} = etl-,spark-"
            raise ValueError(msg)
        self._groups = list(groups.values())

    @property
    def group_names(self) -> tuple[str, ...]:
        """The groups, in their order."""
        return tuple(group.name for group in self._groups)

    def enabled(self, quota_type: QuotaType) -> bool:
        """True while a group, or anybody else, has a quota of this type."""
        return self._default.enabled(quota_type) or any(
            of_type is quota_type for of_type, _ in self._limits
        )

    def quota_metric_tags(self, quota_type: QuotaType, user: str, client_id: str) -> Tags:
        """The group's counter, else that of Kafka's own rules."""
        for group in self._groups:
            if group.has(user, client_id):
                return {_GROUP_TAG: group.name}
        return self._default.quota_metric_tags(quota_type, user, client_id)

    def quota_limit(self, quota_type: QuotaType, tags: Tags) -> float | None:
        """The group's limit, None while it has none; else that of Kafka's own rules."""
        name = tags.get(_GROUP_TAG)
        if name is not None:
            return self._limits.get((quota_type, name))
        return self._default.quota_limit(quota_type, tags)

    def update_quota(self, quota_type: QuotaType, entity: QuotaEntity, limit: float) -> None:
        """Set a group's limit, or a quota as Kafka has it."""
        name = group_of(entity)
        if name is None:
            self._default.update_quota(quota_type, entity, limit)
        else:
            self._limits[quota_type, name] = limit

    def remove_quota(self, quota_type: QuotaType, entity: QuotaEntity) -> None:
        """Take it back."""
        name = group_of(entity)
        if name is None:
            self._default.remove_quota(quota_type, entity)
        else:
            self._limits.pop((quota_type, name), None)

    def quota_reset_required(self, quota_type: QuotaType) -> bool:
        """True when those without a group may belong to other counters; groups do not move."""
        return self._default.quota_reset_required(quota_type)


def group_of(entity: QuotaEntity) -> str | None:
    """The name of the group whose limits this entity's quotas are, None: of none."""
    user = entity.user
    if entity.client_id is not None or not isinstance(user, str):
        return None
    return user.removeprefix(_USER_OF_GROUP) if user.startswith(_USER_OF_GROUP) else None


def _no_group(key: str) -> str:
    near = get_close_matches(f".{'.'.join(key.split('.')[5:])}", _ENDINGS, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return (
        f"{key}: {hint}It is {GROUP_PREFIX}<name> and one of {', '.join(_ENDINGS)}; a name has letters, "
        'digits, ".", "_" and "-"'
    )


def _add(group: _Group, key: str, ending: str, value: str) -> None:
    names = group.client_ids if ending.startswith(".client") else group.users
    if ending.endswith(".pattern"):
        try:
            names.pattern = re.compile(value)
        except re.error as error:
            msg = f'{key}: "{value}" is no regular expression: {error}'
            raise ValueError(msg) from error
        return
    listed = tuple(part.strip() for part in value.split(",") if part.strip())
    if not listed:
        msg = f'{key}: "{value}" names nobody; write names with commas between'
        raise ValueError(msg)
    if ending.endswith(".prefixes"):
        names.prefixes = listed
    else:
        names.exact = frozenset(listed)
