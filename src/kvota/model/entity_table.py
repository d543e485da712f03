"""What entities have, value by value: an immutable table of which others are made."""

from collections.abc import Iterable, Iterator, Mapping
from math import nan
from types import MappingProxyType
from typing import Generic, Self, TypeVar

from kvota.model.quota_entity import QuotaEntity

Key = TypeVar("Key")
# A value of None: it is removed.
Change = tuple[QuotaEntity, Key, float | None]


class EntityTable(Generic[Key]):
    """An immutable mapping: entity → key → value. An entity in it has at least one value."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Mapping[QuotaEntity, Mapping[Key, float]] | None = None) -> None:
        self._entries: dict[QuotaEntity, Mapping[Key, float]] = {
            entity: MappingProxyType({key: _number(value) for key, value in values.items()})
            for entity, values in (entries or {}).items()
            if values
        }

    def __len__(self) -> int:
        """How many entities there are."""
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        """True when the same entities have the same values, in whatever order."""
        if not isinstance(other, type(self)):
            return NotImplemented
        return self._entries == other._entries

    __hash__ = None  # type: ignore[assignment]  # a large mapping: nobody looks things up by it

    def entries(self) -> Mapping[QuotaEntity, Mapping[Key, float]]:
        """Everything, in the order in which the entities came."""
        return MappingProxyType(self._entries)

    def value(self, entity: QuotaEntity, key: Key) -> float | None:
        """What exactly this entity has; None: nothing."""
        return self._entries.get(entity, {}).get(key)

    def _changed(self, changes: Iterable[Change[Key]]) -> Self:
        """This table after all the changes, one after the other; costs one copy, however many."""
        changed: dict[QuotaEntity, dict[Key, float]] = {}
        for entity, key, value in changes:
            values = changed.get(entity)
            if values is None:
                values = changed[entity] = dict(self._entries.get(entity, {}))
            if value is None:
                values.pop(key, None)
            else:
                values[key] = _number(value)
        entries = self._entries.copy()
        for entity, values in changed.items():
            if values:
                entries[entity] = MappingProxyType(values)
            else:
                entries.pop(entity, None)
        result = type(self)()
        result._entries = entries  # noqa: SLF001  (its own class)
        return result

    def _differences(self, other: Self) -> Iterator[Change[Key]]:
        """The batch that makes ``other`` of this table: what is set first, then what is removed."""
        for entity, values in other._entries.items():
            before = self._entries.get(entity, {})
            for key, value in values.items():
                if not is_same(before.get(key), value):
                    yield entity, key, value
        for entity, before in self._entries.items():
            values = other._entries.get(entity, {})
            for key in before:
                if key not in values:
                    yield entity, key, None


def is_same(one: float | None, other: float | None) -> bool:
    """True for equal numbers, for two that are no numbers, and where both times there is no value."""
    return one == other or (one != one and other != other)  # noqa: PLR0124  (NaN differs from itself)


def _number(value: float) -> float:
    """One object for all that are no number: tables with it are then equal."""
    number = float(value)
    return number if number == number else nan  # noqa: PLR0124
