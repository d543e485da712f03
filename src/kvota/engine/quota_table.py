"""Configured quotas: which counter a client is charged on, and the limit of that counter.

Source: Kafka 4.3.1 ``ClientQuotaManager`` and its default callback (KIP-55, KIP-257).
"""

from collections.abc import Mapping
from types import MappingProxyType

from kvota.engine.sanitising import sanitise
from kvota.model.quota_entity import DEFAULT, EntityName, QuotaEntity
from kvota.model.quota_type import QuotaType

Entries = Mapping[QuotaEntity, Mapping[QuotaType, float]]
Tags = tuple[str, str]

# Kinds of quota that exist; Kafka's bits.
_CLIENT_ID = 1
_USER = 2
_USER_AND_CLIENT_ID = 4

_Key = tuple[EntityName, EntityName]


class _LimitsOfType:
    """The quotas of one type, by (sanitised user, client id), and the kinds among them."""

    __slots__ = ("kinds", "limits")

    def __init__(self) -> None:
        self.kinds = 0
        self.limits: dict[_Key, float] = {}

    def add(self, entity: QuotaEntity, limit: float) -> None:
        user = sanitise(entity.user) if isinstance(entity.user, str) else entity.user
        self.limits[user, entity.client_id] = limit
        if user is None:
            self.kinds |= _CLIENT_ID
        elif entity.client_id is None:
            self.kinds |= _USER
        else:
            self.kinds |= _USER_AND_CLIENT_ID


_NONE = _LimitsOfType()


class QuotaTable:
    """An immutable snapshot of all quotas.

    Eight levels, most specific first, and the tags (user, client id) of their counters:
    (user, client), (user, default client) and (default user, client), (default user, default
    client) count per (U, C); (user) and (default user) per (U, ""); (client) and (default client)
    per ("", C). The levels in between, (user) before (default user, ...), are Kafka's order:
    every ``<user>`` level comes before every ``<default user>`` level.

    >>> from kvota.model.quota_entity import DEFAULT
    >>> table = QuotaTable({QuotaEntity(user=DEFAULT): {QuotaType.PRODUCE: 1000.0}})
    >>> tags = table.tags(QuotaType.PRODUCE, "alice", "app")
    >>> tags, table.limit(QuotaType.PRODUCE, tags)
    (('alice', ''), 1000.0)
    """

    __slots__ = ("_entries", "_of_type")

    def __init__(self, entries: Entries | None = None) -> None:
        self._entries: dict[QuotaEntity, Mapping[QuotaType, float]] = {}
        self._of_type: dict[QuotaType, _LimitsOfType] = {}
        for entity, limits in (entries or {}).items():
            if limits:
                self._entries[entity] = MappingProxyType(dict(limits))
            for quota_type, limit in limits.items():
                self._of_type.setdefault(quota_type, _LimitsOfType()).add(entity, float(limit))

    def with_quota(
        self, entity: QuotaEntity, quota_type: QuotaType, limit: float | None
    ) -> "QuotaTable":
        """A table with this quota set, or removed if the limit is None."""
        limits = dict(self._entries.get(entity, {}))
        if limit is None:
            limits.pop(quota_type, None)
        else:
            limits[quota_type] = limit
        return QuotaTable({**self._entries, entity: limits})

    def entries(self) -> Entries:
        """All quotas, as given."""
        return MappingProxyType(self._entries)

    def enabled(self, quota_type: QuotaType) -> bool:
        """True while at least one entity has a quota of this type; else nothing is charged."""
        return quota_type in self._of_type

    def tags(self, quota_type: QuotaType, user: str, client_id: str) -> Tags:
        """The counter (sanitised user or "", raw client id or "") this client is charged on.

        The kinds that exist now decide: setting the first quota of a kind, or removing the last,
        moves every client to another counter.
        """
        of_type = self._of_type.get(quota_type, _NONE)
        if of_type.kinds <= _CLIENT_ID:
            return ("", client_id)
        name = sanitise(user)
        if of_type.kinds == _USER:
            return (name, "")
        if of_type.kinds == _USER_AND_CLIENT_ID:
            return (name, client_id)
        return _tags_of_mixture(of_type.limits, name, client_id)

    def limit(self, quota_type: QuotaType, tags: Tags) -> float | None:
        """The limit of a counter; None: unlimited.

        An empty client id escapes every default that has a client-id part, as in Kafka.
        """
        user, client_id = tags
        keys: tuple[_Key, ...]
        if user and client_id:
            keys = ((user, client_id), (user, DEFAULT), (DEFAULT, client_id), (DEFAULT, DEFAULT))
        elif user:
            keys = ((user, None), (DEFAULT, None))
        elif client_id:
            keys = ((None, client_id), (None, DEFAULT))
        else:
            return None
        limits = self._of_type.get(quota_type, _NONE).limits
        for key in keys:
            if key in limits:
                return limits[key]
        return None


def _tags_of_mixture(limits: dict[_Key, float], user: str, client_id: str) -> Tags:
    if (user, client_id) in limits or (user, DEFAULT) in limits:
        return (user, client_id)
    if (user, None) in limits:
        return (user, "")
    if (DEFAULT, client_id) in limits or (DEFAULT, DEFAULT) in limits:
        return (user, client_id)
    if (DEFAULT, None) in limits:
        return (user, "")
    return ("", client_id)
