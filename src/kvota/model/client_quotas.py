"""Quotas as AlterClientQuotas has them: entities with values by Kafka's keys, an ip's among them.

Some of the keys are quota types of the engine (``configured``), the others are for somebody else: the
limit on an address's new connections is the listener's, that on new producer ids the session's.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from math import isfinite
from types import MappingProxyType
from typing import NamedTuple

from kvota.model.configured_quotas import ConfiguredQuotas, QuotaChange
from kvota.model.entity_table import EntityTable
from kvota.model.quota_entity import CLIENT_ID, IP, USER, QuotaEntity
from kvota.model.quota_type import FACTS, TYPE_OF_KEY

CONNECTION_RATE_KEY = "connection_creation_rate"
PRODUCER_IDS_KEY = "producer_ids_rate"

# Kafka's "no limit": the largest LONG, as a double.
UNLIMITED = float(2**63 - 1)


class Number(Enum):
    """What kind of number a key takes; values travel as doubles all the same."""

    LONG = "LONG"
    INT = "INT"
    DOUBLE = "DOUBLE"


@dataclass(frozen=True, slots=True)
class QuotaKey:
    """One of Kafka's keys.

    Attributes:
        name: as AlterClientQuotas and kafka-configs.sh have it.
        number: what kind of number it takes.
        of_ip: whether entities of an ip have it; else those of users and client ids.
        of_user: whether only users have it, whatever their client ids.
    """

    name: str
    number: Number
    of_ip: bool = False
    of_user: bool = False

    def fits(self, types: Collection[str]) -> bool:
        """True where an entity with parts of these types can have it (``QuotaEntity.types``)."""
        if self.of_user:
            return USER in types and CLIENT_ID not in types and IP not in types
        return self.of_ip == (IP in types)


# Sources: QuotaConfig of Kafka 4.3; KIP-936, which no broker has.
KEYS: Mapping[str, QuotaKey] = MappingProxyType(
    {
        key.name: key
        for key in (
            QuotaKey("producer_byte_rate", Number.LONG),
            QuotaKey("consumer_byte_rate", Number.LONG),
            QuotaKey("request_percentage", Number.DOUBLE),
            QuotaKey("controller_mutation_rate", Number.DOUBLE),
            QuotaKey(CONNECTION_RATE_KEY, Number.INT, of_ip=True),
            QuotaKey(PRODUCER_IDS_KEY, Number.DOUBLE, of_user=True),
        )
    }
)


class KeyChange(NamedTuple):
    """One value from now on; None: it is removed."""

    entity: QuotaEntity
    key: str
    value: float | None


class ClientQuotas(EntityTable[str]):
    """An immutable mapping: entity → Kafka's key → value, as it was given.

    >>> alice = QuotaEntity(user="alice")
    >>> quotas = ClientQuotas().with_changes([KeyChange(alice, "producer_byte_rate", 1000.0)])
    >>> quotas.value(alice, "producer_byte_rate"), len(quotas.configured())
    (1000.0, 1)
    """

    __slots__ = ()

    @classmethod
    def of(cls, quotas: ConfiguredQuotas) -> "ClientQuotas":
        """The same quotas by Kafka's keys; those of types that have none are left out."""
        return cls(
            {
                entity: {
                    key: limit
                    for quota_type, limit in limits.items()
                    if (key := FACTS[quota_type].config_key) is not None
                }
                for entity, limits in quotas.entries().items()
            }
        )

    def with_changes(self, changes: Iterable[KeyChange]) -> "ClientQuotas":
        """These quotas after all the changes, one after the other; costs one copy, however many."""
        return self._changed(changes)

    def changes_to(self, other: "ClientQuotas") -> tuple[KeyChange, ...]:
        """The batch that makes ``other`` of these quotas: what is set first, then what is removed."""
        return tuple(KeyChange(*change) for change in self._differences(other))

    def configured(self) -> ConfiguredQuotas:
        """What of it is quota types, for the engine."""
        changes = (
            KeyChange(entity, key, value)
            for entity, values in self._entries.items()
            for key, value in values.items()
        )
        return ConfiguredQuotas().with_changes(of_engine(changes))


def of_engine(changes: Iterable[KeyChange]) -> Iterator[QuotaChange]:
    """Those of the changes that are of quota types.

    A broker takes NaN and infinity where a key is a DOUBLE (NaN everywhere), and neither holds anybody
    back: they are limits that nobody reaches, not missing ones, for they come before other quotas.
    """
    for entity, key, value in changes:
        quota_type = TYPE_OF_KEY.get(key)
        if quota_type is not None and entity.ip is None:
            yield QuotaChange(entity, quota_type, None if value is None else _limit(value))


def _limit(value: float) -> float:
    return value if isfinite(value) else UNLIMITED
