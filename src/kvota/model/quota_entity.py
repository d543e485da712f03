"""Whom a configured quota is for."""

from dataclasses import dataclass
from enum import Enum


class Default(Enum):
    """The default entity: not a name, so no user can be called that."""

    DEFAULT = "<default>"


DEFAULT = Default.DEFAULT
EntityName = str | Default | None


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """A user part, a client-id part, or both; each a name, DEFAULT, or absent (None).

    ``user`` is the plain principal name as people write it, not percent-encoded.

    Raises:
        ValueError: both parts absent, or a name is empty.
    """

    user: EntityName = None
    client_id: EntityName = None

    def __post_init__(self) -> None:
        """Refuse what AlterClientQuotas refuses."""
        if self.user is None and self.client_id is None:
            msg = "a quota needs a user, a client id, or both"
            raise ValueError(msg)
        if self.user == "" or self.client_id == "":
            msg = "a quota's user or client id may not be an empty name"
            raise ValueError(msg)

    def __str__(self) -> str:
        """As kafka-configs.sh writes it."""
        parts = []
        if self.user is DEFAULT:
            parts.append("the default user-principal")
        elif self.user is not None:
            parts.append(f"user-principal '{self.user}'")
        if self.client_id is DEFAULT:
            parts.append("the default client-id")
        elif self.client_id is not None:
            parts.append(f"client-id '{self.client_id}'")
        return ", ".join(parts)
