"""Quotas as they are configured: which entity has which limits. Whom they reach, a callback says."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType

Entries = Mapping[QuotaEntity, Mapping[QuotaType, float]]


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """One configured quota from now on; a limit of None: it is removed."""

    entity: QuotaEntity
    quota_type: QuotaType
    limit: float | None


class ConfiguredQuotas:
    """An immutable mapping: entity → quota type → limit. An entity in it has at least one quota.

    >>> alice = QuotaEntity(user="alice")
    >>> quotas = ConfiguredQuotas({alice: {QuotaType.PRODUCE: 1000}})
    >>> quotas.with_changes([QuotaChange(alice, QuotaType.PRODUCE, 2000)]).entries()[alice]
    mappingproxy({<QuotaType.PRODUCE: 'PRODUCE'>: 2000.0})
    """

    __slots__ = ("_entries",)

    def __init__(self, entries: Entries | None = None) -> None:
        self._entries: dict[QuotaEntity, Mapping[QuotaType, float]] = {
            entity: MappingProxyType({of_type: float(limit) for of_type, limit in limits.items()})
            for entity, limits in (entries or {}).items()
            if limits
        }

    def __len__(self) -> int:
        """How many entities have quotas."""
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        """True when the same entities have the same limits, in whatever order."""
        if not isinstance(other, ConfiguredQuotas):
            return NotImplemented
        return self._entries == other._entries

    __hash__ = None  # type: ignore[assignment]  # a large mapping: nobody looks things up by it

    def entries(self) -> Entries:
        """All quotas, in the order in which their entities came."""
        return MappingProxyType(self._entries)

    def limit(self, entity: QuotaEntity, quota_type: QuotaType) -> float | None:
        """What is configured for exactly this entity; None: nothing."""
        return self._entries.get(entity, {}).get(quota_type)

    def with_changes(self, changes: Iterable[QuotaChange]) -> "ConfiguredQuotas":
        """These quotas after all the changes, one after the other; costs one copy, however many."""
        changed: dict[QuotaEntity, dict[QuotaType, float]] = {}
        for change in changes:
            limits = changed.get(change.entity)
            if limits is None:
                limits = changed[change.entity] = dict(self._entries.get(change.entity, {}))
            if change.limit is None:
                limits.pop(change.quota_type, None)
            else:
                limits[change.quota_type] = float(change.limit)
        result = ConfiguredQuotas()
        result._entries = self._entries.copy()
        for entity, limits in changed.items():
            if limits:
                result._entries[entity] = MappingProxyType(limits)
            else:
                result._entries.pop(entity, None)
        return result

    def changes_to(self, other: "ConfiguredQuotas") -> tuple[QuotaChange, ...]:
        """The batch that makes ``other`` of these quotas: what is set first, then what is removed."""
        changes: list[QuotaChange] = []
        after = other.entries()
        for entity, limits in after.items():
            before = self._entries.get(entity, {})
            changes += [
                QuotaChange(entity, quota_type, limit)
                for quota_type, limit in limits.items()
                if before.get(quota_type) != limit
            ]
        for entity, before in self._entries.items():
            limits = after.get(entity, {})
            changes += [
                QuotaChange(entity, quota_type, None)
                for quota_type in before
                if quota_type not in limits
            ]
        return tuple(changes)
