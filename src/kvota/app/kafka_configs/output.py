"""What a command line finds or does, for whoever prints it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from kvota.admin import ConfigEntry, QuotaEntity, ScramCredentialInfo


class Output(Protocol):
    """Takes what was found or done, piece by piece."""

    def altered(self, types: Sequence[str], names: Sequence[str]) -> None:
        """An alteration of what these name together is done; an empty name is the default."""
        ...

    def quotas(self, entity: QuotaEntity, values: Mapping[str, float]) -> None:
        """The quotas of one entity."""
        ...

    def credentials(self, user: str, infos: Sequence[ScramCredentialInfo]) -> None:
        """The SCRAM credentials of one user."""
        ...

    def absent(self, kind: str, name: str) -> None:
        """There is no such broker or topic."""
        ...

    def heading(self, kind: str, name: str, *, describes_all: bool) -> None:
        """The settings of this one come next."""
        ...

    def settings(self, kind: str, name: str, entries: Iterable[ConfigEntry]) -> None:
        """The settings of one broker or topic, or of the default."""
        ...

    def end(self) -> None:
        """That was all."""
        ...
