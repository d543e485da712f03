"""Where a limit in force comes from, and what would change it."""

import json
import shlex
from collections.abc import Mapping

from kvota.app.quota_settings import QuotaSettings, QuotaSourceKind
from kvota.callbacks import DefaultQuotaCallback
from kvota.metrics.counter_key import CounterKey
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_callback import ClientQuotaCallback
from kvota.model.quota_entity import DEFAULT, EntityName, QuotaEntity
from kvota.model.tags import CLIENT_ID_TAG, USER_TAG, tag_value
from kvota.store.quota_lines import quota_lines


class LimitSources:
    """Knows the file of the quotas that are in force, and its lines; any thread may ask.

    Args:
        callback: decides which entity's quota a counter has.
        settings: say where quotas come from.
        quotas: just read from there.
        bootstrap: the gateway's own ``host:port``, for Kafka's tools.
        reload: the command that has the gateway read its files again.
    """

    def __init__(
        self,
        callback: ClientQuotaCallback,
        settings: QuotaSettings,
        quotas: ConfiguredQuotas,
        *,
        bootstrap: str,
        reload: str,
    ) -> None:
        self._callback = callback
        self._bootstrap = bootstrap
        self._reload = reload
        self._settings = settings
        self._lines: Mapping[QuotaEntity, int] = {}
        self.replace(settings, quotas)

    def replace(self, settings: QuotaSettings, quotas: ConfiguredQuotas) -> None:
        """Other quotas have just been read, and are in force."""
        self._settings = settings
        self._lines = quota_lines(settings.file, quotas) if self._is_written_by_people else {}

    @property
    def _is_written_by_people(self) -> bool:
        return self._settings.source is QuotaSourceKind.TOML

    def replace_callback(self, callback: ClientQuotaCallback) -> None:
        """Another callback decides from now on."""
        self._callback = callback

    def of_entity(self, entity: QuotaEntity) -> str:
        """E.g. ``quotas.toml:4``."""
        line = self._lines.get(entity)
        return self._settings.place if line is None else f"{self._settings.file}:{line}"

    def of_counter(self, key: CounterKey) -> str:
        """The same for the limit of a counter; empty where it has none."""
        callback = self._callback  # another thread may put another one in its place
        if not isinstance(callback, DefaultQuotaCallback):
            return type(callback).__name__
        tags = {name: tag_value(key.tags, name) or "" for name in (USER_TAG, CLIENT_ID_TAG)}
        entity = callback.deciding_entity(key.quota_type, tags)
        return "" if entity is None else self.of_entity(entity)

    def to_change(self, entity: QuotaEntity, config_key: str, *, is_configured: bool) -> str:
        """What to do to give an entity another quota, or its first one."""
        if not self._is_written_by_people:
            return (
                f"kafka-configs.sh --bootstrap-server {self._bootstrap} --alter {_entity_options(entity)}"
                f" --add-config {config_key}=NUMBER"
            )
        if is_configured:
            return f"edit {config_key} at {self.of_entity(entity)}, then {self._reload}"
        return f"add to {self._settings.file}: {_table(entity, config_key)}, then {self._reload}"


def _entity_options(entity: QuotaEntity) -> str:
    options = []
    for kind, name in (("users", entity.user), ("clients", entity.client_id)):
        if name is DEFAULT:
            options.append(f"--entity-type {kind} --entity-default")
        elif isinstance(name, str):
            options.append(f"--entity-type {kind} --entity-name {_shell_text(name)}")
    return " ".join(options)


def _shell_text(text: str) -> str:
    r"""One word for bash, on one line.

    >>> print(_shell_text("a b"), _shell_text("a'\n"))
    'a b' $'a\'\u000a'
    """
    if text.isprintable():
        return shlex.quote(text)
    kept = (f"\\{char}" if char in {"\\", "'"} else char for char in text)
    return f"$'{''.join(char if char.isprintable() else _escaped(char) for char in kept)}'"


def _table(entity: QuotaEntity, config_key: str) -> str:
    lines = ["[[quota]]"]
    lines += _name_line("user", entity.user)
    lines += _name_line("client_id", entity.client_id)
    return " ".join([*lines, f"{config_key} = …"])


def _name_line(key: str, name: EntityName) -> list[str]:
    if name is DEFAULT:
        return [f"{key}_default = true"]
    return [f"{key} = {_toml_text(name)}"] if isinstance(name, str) else []


def _toml_text(text: str) -> str:
    r"""A basic string of TOML, on one line; what cannot be seen is escaped.

    >>> print(_toml_text('"}\n'))
    "\"}\n"
    """
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(char if char.isprintable() else _escaped(char) for char in quoted)


def _escaped(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
