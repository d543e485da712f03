"""Quotas as they are configured: which entity has which limits. Whom they reach, a callback says."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kvota.model.entity_table import EntityTable
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType

Entries = Mapping[QuotaEntity, Mapping[QuotaType, float]]


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """One configured quota from now on; a limit of None: it is removed."""

    entity: QuotaEntity
    quota_type: QuotaType
    limit: float | None


class ConfiguredQuotas(EntityTable[QuotaType]):
    """An immutable mapping: entity → quota type → limit. An entity in it has at least one quota.

    >>> alice = QuotaEntity(user="alice")
    >>> quotas = ConfiguredQuotas({alice: {QuotaType.PRODUCE: 1000}})
    >>> quotas.with_changes([QuotaChange(alice, QuotaType.PRODUCE, 2000)]).entries()[alice]
    mappingproxy({<QuotaType.PRODUCE: 'PRODUCE'>: 2000.0})
    """

    __slots__ = ()

    def limit(self, entity: QuotaEntity, quota_type: QuotaType) -> float | None:
        """What is configured for exactly this entity; None: nothing."""
        return self.value(entity, quota_type)

    def with_changes(self, changes: Iterable[QuotaChange]) -> "ConfiguredQuotas":
        """These quotas after all the changes, one after the other; costs one copy, however many."""
        return self._changed((each.entity, each.quota_type, each.limit) for each in changes)

    def changes_to(self, other: "ConfiguredQuotas") -> tuple[QuotaChange, ...]:
        """The batch that makes ``other`` of these quotas: what is set first, then what is removed."""
        return tuple(QuotaChange(*change) for change in self._differences(other))
