"""Entities on the wire, as Kafka's ClientQuotaEntity has them: a map of types to names, null the default."""

from collections.abc import Iterable

from kvota.model.quota_entity import CLIENT_ID, DEFAULT, IP, USER, QuotaEntity
from kvota.quota_api.java_hash_map import map_hash, string_order
from kvota.wire.client_quotas import Part

TYPES = frozenset({USER, CLIENT_ID, IP})

# Of a type that is named twice the last name counts, as in a map.
EntityMap = dict[str, str | None]


def entity_map(parts: Iterable[Part]) -> EntityMap:
    """The map that a broker makes of the parts, in its order."""
    listed = list(parts)
    if len(listed) == 1:
        return dict(listed)
    names = {part.type: part.name for part in listed}
    return {of_type: names[of_type] for of_type in string_order(names, capacity=len(listed))}


def entity_hash(entity: EntityMap) -> int:
    """``ClientQuotaEntity.hashCode``, without its sign."""
    return (31 + map_hash(entity)) & 0xFFFF_FFFF


def entity_text(entity: EntityMap) -> str:
    """As a broker's messages have it.

    >>> entity_text({"user": "alice", "client-id": None})
    'ClientQuotaEntity(entries={user=alice, client-id=null})'
    """
    entries = ", ".join(
        f"{of_type}={'null' if name is None else name}" for of_type, name in entity.items()
    )
    return f"ClientQuotaEntity(entries={{{entries}}})"


def quota_entity(entity: EntityMap) -> QuotaEntity:
    """The same, where it has passed all checks."""
    names = {of_type: DEFAULT if name is None else name for of_type, name in entity.items()}
    return QuotaEntity(user=names.get(USER), client_id=names.get(CLIENT_ID), ip=names.get(IP))


def parts_of(entity: QuotaEntity) -> tuple[Part, ...]:
    """An entity as the wire has it."""
    named = ((USER, entity.user), (CLIENT_ID, entity.client_id), (IP, entity.ip))
    return tuple(
        Part(of_type, name if isinstance(name, str) else None)
        for of_type, name in named
        if name is not None
    )
