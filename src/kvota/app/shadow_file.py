"""The file of quotas that a gateway tries in shadow mode beside those in force."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from kvota.app.missing_extra import needs_extra
from kvota.model.client_quotas import ClientQuotas
from kvota.model.errors import UsageError
from kvota.planning.wanted_quotas import WantedQuotas
from kvota.store.quota_document import named_parts


@dataclass(frozen=True, slots=True)
class ShadowFile:
    """What it wants.

    Attributes:
        path: of the file.
        wanted: what would change; what it does not mention stays as it is in force.
        digest: the same for files that want the same.
    """

    path: Path
    wanted: WantedQuotas
    digest: str

    def quotas(self, in_force: ClientQuotas) -> ClientQuotas:
        """All that would be in force."""
        return in_force.with_changes(each.change for each in self.wanted.differences(in_force))


def load_shadow(path: Path) -> ShadowFile:
    """Read a quotas.yaml, or a plan.

    Raises:
        ConfigurationError: all its faults.
        UsageError: it undoes a change, or PyYAML is not installed.
    """
    try:
        from kvota.store.quotas_yaml import load_document
    except ModuleNotFoundError as error:
        msg = f"quotas.shadow: {path}: {needs_extra(error, 'client')}"
        raise UsageError(msg) from error
    document = load_document(path)
    if document.undo is not None:
        msg = f"quotas.shadow: {path} undoes a change. Name a file of quotas, or a plan"
        raise UsageError(msg)
    return ShadowFile(path, document.wanted, digest_of(document.wanted))


def digest_of(wanted: WantedQuotas) -> str:
    """A short text that is the same for the same wishes, in whatever order and unit they are written."""
    values = [[named_parts(entity), key, value] for entity, key, value in wanted.values()]
    text = "\n".join(sorted(json.dumps(each, sort_keys=True) for each in values))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
