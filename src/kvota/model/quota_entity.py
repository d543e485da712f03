"""Whom a configured quota is for."""

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NamedTuple, Self


class Default(Enum):
    """The default entity: not a name, so no user can be called that."""

    DEFAULT = "<default>"


DEFAULT = Default.DEFAULT
# What a part of an entity is called by AlterClientQuotas.
USER, CLIENT_ID, IP = "user", "client-id", "ip"
EntityName = str | Default | None


class ConfigEntityType(StrEnum):
    """What one part of an entity is; the names are Kafka's."""

    USER = "USER"
    CLIENT_ID = "CLIENT_ID"
    DEFAULT_USER = "DEFAULT_USER"
    DEFAULT_CLIENT_ID = "DEFAULT_CLIENT_ID"


@dataclass(frozen=True, slots=True)
class ConfigEntity:
    """One part of an entity, as Kafka's callbacks see it (KIP-257).

    Attributes:
        entity_type: a user, a client id, or the default of either.
        name: the plain name; ``<default>`` of a default, as Kafka has it in fact (its interface says: empty).
    """

    entity_type: ConfigEntityType
    name: str


class _Parts(NamedTuple):
    user: EntityName
    client_id: EntityName
    ip: EntityName


class QuotaEntity(_Parts):
    """A user part, a client-id part, or both, or an ip part; each a name, DEFAULT, or absent (None).

    ``user`` is the plain principal name as people write it, not percent-encoded. ``ip`` is an address
    or a host's name, as it was written. It is a tuple: tables of 10,000 entities are looked up by it.

    Raises:
        ValueError: all parts absent, an ip beside another part, or a name is empty.
    """

    __slots__ = ()

    def __new__(
        cls, user: EntityName = None, client_id: EntityName = None, ip: EntityName = None
    ) -> Self:
        """Refuse what AlterClientQuotas refuses."""
        if user is None and client_id is None and ip is None:
            msg = "a quota needs a user, a client id, or both, or an ip"
            raise ValueError(msg)
        if user == "" or client_id == "" or ip == "":
            msg = "a quota's user, client id or ip may not be an empty name"
            raise ValueError(msg)
        if ip is not None and not (user is None and client_id is None):
            msg = "an ip cannot be combined with a user or a client id"
            raise ValueError(msg)
        return super().__new__(cls, user, client_id, ip)

    @property
    def types(self) -> tuple[str, ...]:
        """What its parts are called: of ``USER``, ``CLIENT_ID`` and ``IP`` those that there are."""
        named = zip((USER, CLIENT_ID, IP), self, strict=True)
        return tuple(of_type for of_type, name in named if name is not None)

    @property
    def config_entities(self) -> tuple[ConfigEntity, ...]:
        """Its parts with their types, the user's first: one of a user or a client id, two of both."""
        types = (
            (self.user, ConfigEntityType.USER, ConfigEntityType.DEFAULT_USER),
            (self.client_id, ConfigEntityType.CLIENT_ID, ConfigEntityType.DEFAULT_CLIENT_ID),
        )
        return tuple(
            ConfigEntity(default_type, part.value)
            if isinstance(part, Default)
            else ConfigEntity(named_type, part)
            for part, named_type, default_type in types
            if part is not None
        )

    def __str__(self) -> str:
        """As kafka-configs.sh writes it."""
        parts = []
        for what, name in (
            ("user-principal", self.user),
            ("client-id", self.client_id),
            ("ip", self.ip),
        ):
            if name is DEFAULT:
                parts.append(f"the default {what}")
            elif name is not None:
                parts.append(f"{what} '{name}'")
        return ", ".join(parts)
