"""What somebody wants of the quotas in force, and what has to change for that."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.entity_table import is_same
from kvota.model.quota_entity import DEFAULT, EntityName, QuotaEntity


class Difference(NamedTuple):
    """One value in force and the one that is wanted; None: there is none."""

    entity: QuotaEntity
    key: str
    old: float | None
    new: float | None

    @property
    def change(self) -> KeyChange:
        """What brings it about."""
        return KeyChange(self.entity, self.key, self.new)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedQuotas:
    """Values that shall be in force, and those of which there shall be none; nothing is said of others.

    Attributes:
        quotas: what each entity shall have.
        removed: entities with keys that they shall not have.
    """

    quotas: ClientQuotas = field(default_factory=ClientQuotas)
    removed: frozenset[tuple[QuotaEntity, str]] = frozenset()

    @classmethod
    def of(cls, values: Iterable[tuple[QuotaEntity, str, float | None]]) -> "WantedQuotas":
        """What these changes want."""
        listed = list(values)
        return cls(
            quotas=ClientQuotas().with_changes(KeyChange(*each) for each in listed),
            removed=frozenset((entity, key) for entity, key, value in listed if value is None),
        )

    def values(self) -> Iterator[KeyChange]:
        """Everything that is wanted, by entity: what is set first, then what is removed."""
        for entity, values in self.quotas.entries().items():
            for key, value in values.items():
                yield KeyChange(entity, key, value)
        for entity, key in sorted(self.removed, key=lambda each: (str(each[0]), each[1])):
            yield KeyChange(entity, key, None)

    def differences(
        self, in_force: ClientQuotas, *, prunes: bool = False
    ) -> tuple[Difference, ...]:
        """What has to change, in a stable order.

        Args:
            in_force: the quotas as they are.
            prunes: values of which nothing is wanted go.
        """
        changes = list(self.values())
        if prunes:
            changes += (KeyChange(entity, key, None) for entity, key in self.unmentioned(in_force))
        found = (
            Difference(entity, key, in_force.value(entity, key), value)
            for entity, key, value in changes
        )
        different = [each for each in found if not is_same(each.old, each.new)]
        return tuple(sorted(different, key=lambda each: (entity_order(each.entity), each.key)))

    def unmentioned(self, in_force: ClientQuotas) -> list[tuple[QuotaEntity, str]]:
        """Values in force of which nothing is wanted."""
        return [
            (entity, key)
            for entity, values in in_force.entries().items()
            for key in values
            if self.quotas.value(entity, key) is None and (entity, key) not in self.removed
        ]


def moved(before: ClientQuotas, after: ClientQuotas) -> tuple[Difference, ...]:
    """What is not the same in both, in a stable order."""
    found = (
        Difference(entity, key, before.value(entity, key), value)
        for entity, key, value in before.changes_to(after)
    )
    return tuple(sorted(found, key=lambda each: (entity_order(each.entity), each.key)))


def requests(differences: Sequence[Difference], *, values_max: int) -> list[list[Difference]]:
    """Share differences out to requests, none of them with more values; an entity stays in one.

    A broker takes or refuses an entity as a whole, and writes a value as one record of a batch that has a limit.
    """
    made: list[list[Difference]] = []
    of_entity: dict[QuotaEntity, list[Difference]] = {}
    for difference in differences:
        of_entity.setdefault(difference.entity, []).append(difference)
    for group in of_entity.values():
        if not made or len(made[-1]) + len(group) > values_max:
            made.append([])
        made[-1] += group
    return made


def entity_order(entity: QuotaEntity) -> tuple[tuple[int, str], ...]:
    """Users with and without client ids, then client ids, then ips; a default before the names."""
    return tuple(_part_order(part) for part in entity)


def _part_order(part: EntityName) -> tuple[int, str]:
    if part is None:
        return 2, ""
    return (0, "") if part is DEFAULT else (1, str(part))
