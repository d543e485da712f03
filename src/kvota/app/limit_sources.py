"""Where a limit in force comes from: the line of a file, or who has set it."""

from collections.abc import Mapping
from pathlib import Path

from kvota.callbacks import DefaultQuotaCallback
from kvota.metrics.counter_key import CounterKey
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_callback import ClientQuotaCallback
from kvota.model.quota_entity import QuotaEntity
from kvota.model.tags import CLIENT_ID_TAG, USER_TAG, tag_value
from kvota.store.quota_lines import quota_lines


class LimitSources:
    """Knows the lines of the quotas file that is in force; any thread may ask.

    Args:
        callback: decides which entity's quota a counter has.
        path: of the quotas file.
        quotas: read from it.
    """

    def __init__(self, callback: ClientQuotaCallback, path: Path, quotas: ConfiguredQuotas) -> None:
        self._callback = callback
        self._path = path
        self._lines: Mapping[QuotaEntity, int] = {}
        self.replace(path, quotas)

    def replace(self, path: Path, quotas: ConfiguredQuotas) -> None:
        """Other quotas have just been read, and are in force."""
        self._path, self._lines = path, quota_lines(path, quotas)

    def replace_callback(self, callback: ClientQuotaCallback) -> None:
        """Another callback decides from now on."""
        self._callback = callback

    def of_entity(self, entity: QuotaEntity) -> str:
        """E.g. ``quotas.toml:4``."""
        line = self._lines.get(entity)
        return str(self._path) if line is None else f"{self._path}:{line}"

    def of_counter(self, key: CounterKey) -> str:
        """The same for the limit of a counter; empty where it has none."""
        callback = self._callback  # another thread may put another one in its place
        if not isinstance(callback, DefaultQuotaCallback):
            return type(callback).__name__
        tags = {name: tag_value(key.tags, name) or "" for name in (USER_TAG, CLIENT_ID_TAG)}
        entity = callback.deciding_entity(key.quota_type, tags)
        return "" if entity is None else self.of_entity(entity)
