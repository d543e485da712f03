"""Kafka's own rules: eight levels of precedence over configured quotas.

Source: Kafka 4.3.1 ``ClientQuotaManager`` and its default callback (KIP-55, KIP-257).
"""

from typing import ClassVar, NamedTuple

from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_callback import ClientQuotaCallback
from kvota.model.quota_entity import DEFAULT, EntityName, QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.model.tags import CLIENT_ID_TAG, USER_TAG, Tags

# Kinds of quota that exist; Kafka's bits.
_NO_KIND = 0
_CLIENT_ID = 1
_USER = 2
_USER_AND_CLIENT_ID = 4
_ONE_KIND = frozenset({_CLIENT_ID, _USER, _USER_AND_CLIENT_ID})

_Key = tuple[EntityName, EntityName]


class Level(NamedTuple):
    """One of the eight levels of a client.

    Attributes:
        number: 1 is the most specific one.
        entity: whose quota it would be; None: a client without client id has none there.
        limit: what is configured for it, per second; None: nothing.
    """

    number: int
    entity: QuotaEntity | None
    limit: float | None


class _LimitsOfType:
    """The quotas of one type by (user, client id), and how many there are of each kind."""

    __slots__ = ("_counts", "kinds", "limits", "moves_clients")

    def __init__(self) -> None:
        self.limits: dict[_Key, float] = {}
        self.kinds = _NO_KIND
        # Set when an entity came or went in a way that can lead clients to other counters.
        self.moves_clients = False
        self._counts = {_CLIENT_ID: 0, _USER: 0, _USER_AND_CLIENT_ID: 0}

    def put(self, entity: QuotaEntity, limit: float) -> None:
        key = (entity.user, entity.client_id)
        if key not in self.limits:
            self._count(key, 1)
        self.limits[key] = float(limit)

    def remove(self, entity: QuotaEntity) -> None:
        key = (entity.user, entity.client_id)
        if self.limits.pop(key, None) is not None:
            self._count(key, -1)

    def _count(self, key: _Key, more: int) -> None:
        kind = _kind(key)
        self._counts[kind] += more
        before = self.kinds
        if self._counts[kind]:
            self.kinds |= kind
        else:
            self.kinds &= ~kind
        # With one kind alone the tags of a client do not depend on which entities there are.
        if self.kinds != before or self.kinds not in _ONE_KIND:
            self.moves_clients = True


class DefaultQuotaCallback(ClientQuotaCallback):
    """The most specific configured quota decides; tags are always ``user`` and ``client-id``.

    Eight levels, most specific first, and the counter (user, client id) they lead to:
    (user, client), (user, default client) and (default user, client), (default user, default
    client) count per (U, C); (user) and (default user) per (U, ""); (client) and (default client)
    per ("", C). The levels in between, (user) before (default user, ...), are Kafka's order:
    every ``<user>`` level comes before every ``<default user>`` level.

    >>> quotas = ConfiguredQuotas({QuotaEntity(user=DEFAULT): {QuotaType.PRODUCE: 1000.0}})
    >>> callback = DefaultQuotaCallback(quotas)
    >>> tags = callback.quota_metric_tags(QuotaType.PRODUCE, "alice", "app")
    >>> tags, callback.quota_limit(QuotaType.PRODUCE, tags)
    ({'client-id': '', 'user': 'alice'}, 1000.0)
    """

    answers_at_once: ClassVar[bool] = True

    def __init__(self, quotas: ConfiguredQuotas | None = None) -> None:
        self.initial_quotas = quotas or ConfiguredQuotas()
        self._of_type = {quota_type: _LimitsOfType() for quota_type in QuotaType}
        for entity, limits in self.initial_quotas.entries().items():
            for quota_type, limit in limits.items():
                self._of_type[quota_type].put(entity, limit)
        for of_type in self._of_type.values():
            of_type.moves_clients = False

    def enabled(self, quota_type: QuotaType) -> bool:
        """True while at least one entity has a quota of this type; else nothing is charged."""
        return self._of_type[quota_type].kinds != _NO_KIND

    def quota_metric_tags(self, quota_type: QuotaType, user: str, client_id: str) -> Tags:
        """The counter this client is charged on.

        The kinds that exist now decide: setting the first quota of a kind, or removing the last,
        moves every client to another counter.
        """
        of_type = self._of_type[quota_type]
        if of_type.kinds <= _CLIENT_ID:
            return _tags("", client_id)
        if of_type.kinds == _USER:
            return _tags(user, "")
        if of_type.kinds == _USER_AND_CLIENT_ID:
            return _tags(user, client_id)
        return _tags_in_mixture(of_type.limits, user, client_id)

    def quota_limit(self, quota_type: QuotaType, tags: Tags) -> float | None:
        """The limit of a counter; None: unlimited.

        An empty client id escapes every default that has a client-id part, as in Kafka.
        """
        limits = self._of_type[quota_type].limits
        for key in _keys_of(tags):
            if key in limits:
                return limits[key]
        return None

    def deciding_entity(self, quota_type: QuotaType, tags: Tags) -> QuotaEntity | None:
        """Whose quota the limit of a counter is; None: nobody's, it is unlimited.

        Another thread than the one that changes quotas may ask.
        """
        limits = self._of_type[quota_type].limits
        return next((QuotaEntity(*key) for key in _keys_of(tags) if key in limits), None)

    def levels(self, quota_type: QuotaType, user: str, client_id: str) -> tuple[Level, ...]:
        """Kafka's eight levels for a client, the most specific one first, with what is configured."""
        limits = self._of_type[quota_type].limits
        keys: tuple[_Key, ...] = (
            (user, client_id),
            (user, DEFAULT),
            (user, None),
            (DEFAULT, client_id),
            (DEFAULT, DEFAULT),
            (DEFAULT, None),
            (None, client_id),
            (None, DEFAULT),
        )
        return tuple(
            Level(number, None if "" in key else QuotaEntity(*key), limits.get(key))
            for number, key in enumerate(keys, 1)
        )

    def update_quota(self, quota_type: QuotaType, entity: QuotaEntity, limit: float) -> None:
        """Set the quota of an entity; takes the same time however many there are."""
        self._of_type[quota_type].put(entity, limit)

    def remove_quota(self, quota_type: QuotaType, entity: QuotaEntity) -> None:
        """Remove the quota of an entity; with the last of a kind the kind is gone."""
        self._of_type[quota_type].remove(entity)

    def only_tags(self, entity: QuotaEntity) -> Tags | None:
        """Those of an entity without defaults: one counter's, on each broker."""
        user, client_id = entity.user or "", entity.client_id or ""
        if not (isinstance(user, str) and isinstance(client_id, str)):
            return None
        # What is made of this class may have other tags.
        return _tags(user, client_id) if type(self) is DefaultQuotaCallback else None

    def quota_reset_required(self, quota_type: QuotaType) -> bool:
        """True when clients may belong to other counters since the last call.

        That is when a kind came or went, or, among several kinds, any entity did.
        """
        of_type = self._of_type[quota_type]
        moves, of_type.moves_clients = of_type.moves_clients, False
        return moves


def _keys_of(tags: Tags) -> tuple[_Key, ...]:
    """The entities whose quota a counter can have, the most specific one first."""
    user, client_id = tags.get(USER_TAG, ""), tags.get(CLIENT_ID_TAG, "")
    if user and client_id:
        return ((user, client_id), (user, DEFAULT), (DEFAULT, client_id), (DEFAULT, DEFAULT))
    if user:
        return ((user, None), (DEFAULT, None))
    return ((None, client_id), (None, DEFAULT)) if client_id else ()


def _kind(key: _Key) -> int:
    user, client_id = key
    if user is None:
        return _CLIENT_ID
    return _USER if client_id is None else _USER_AND_CLIENT_ID


def _tags(user: str, client_id: str) -> Tags:
    return {CLIENT_ID_TAG: client_id, USER_TAG: user}


def _tags_in_mixture(limits: dict[_Key, float], user: str, client_id: str) -> Tags:
    if (user, client_id) in limits or (user, DEFAULT) in limits:
        return _tags(user, client_id)
    if (user, None) in limits:
        return _tags(user, "")
    if (DEFAULT, client_id) in limits or (DEFAULT, DEFAULT) in limits:
        return _tags(user, client_id)
    if (DEFAULT, None) in limits:
        return _tags(user, "")
    return _tags("", client_id)
