"""What ``kvota configs`` prints: the lines of ``kafka-configs.sh``, or one object for programs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kvota.admin import ConfigEntry, QuotaEntity, ScramCredentialInfo
from kvota.app.cli.json_output import print_json
from kvota.app.kafka_configs.java_numbers import write_double
from kvota.model.quota_entity import DEFAULT


class TextOutput:
    """The lines of Kafka's tool."""

    def altered(self, types: Sequence[str], names: Sequence[str]) -> None:
        """As ``Output``; Kafka's tool tells the first part only."""
        kind, name = types[0], names[0]
        what = (
            f"config for {kind[:-1]} {name}"
            if name
            else f"default config for {kind} in the cluster"
        )
        print(f"Completed updating {what}.")

    def quotas(self, entity: QuotaEntity, values: Mapping[str, float]) -> None:
        """As ``Output``."""
        shown = ", ".join(f"{key}={write_double(value)}" for key, value in values.items())
        print(f"Quota configs for {entity} are {shown}")

    def credentials(self, user: str, infos: Sequence[ScramCredentialInfo]) -> None:
        """As ``Output``."""
        shown = ", ".join(f"{_mechanism(info)}=iterations={info.iterations}" for info in infos)
        print(f"SCRAM credential configs for user-principal '{user}' are {shown}")

    def absent(self, kind: str, name: str) -> None:
        """As ``Output``."""
        print(f"The {kind[:-1]} '{name}' doesn't exist and doesn't have dynamic config.")

    def heading(self, kind: str, name: str, *, describes_all: bool) -> None:
        """As ``Output``."""
        if name:
            print(f"{'All' if describes_all else 'Dynamic'} configs for {kind[:-1]} {name} are:")
        else:
            print(f"Default configs for {kind} in the cluster are:")

    def settings(self, _kind: str, _name: str, entries: Iterable[ConfigEntry]) -> None:
        """As ``Output``."""
        for entry in entries:
            synonyms = ", ".join(
                f"{each.source.name}:{each.name}={_null(each.value)}" for each in entry.synonyms
            )
            sensitive = str(entry.is_sensitive).lower()
            print(
                f"  {entry.name}={_null(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"
            )

    def end(self) -> None:
        """As ``Output``."""


class JsonOutput:
    """One object, printed at the end."""

    def __init__(self) -> None:
        self._content: dict[str, list[Mapping[str, Any]]] = {}

    def _add(self, key: str, content: Mapping[str, Any]) -> None:
        self._content.setdefault(key, []).append(content)

    def altered(self, types: Sequence[str], names: Sequence[str]) -> None:
        """As ``Output``; a part each."""
        for kind, name in zip(types, names, strict=True):
            self._add("altered", {"entity_type": kind, "entity_name": name or None})

    def quotas(self, entity: QuotaEntity, values: Mapping[str, float]) -> None:
        """As ``Output``; the default is null."""
        named = {"user": entity.user, "client_id": entity.client_id, "ip": entity.ip}
        parts = {
            part: None if name is DEFAULT else name
            for part, name in named.items()
            if name is not None
        }
        self._add("quotas", {"entity": parts, "values": dict(values)})

    def credentials(self, user: str, infos: Sequence[ScramCredentialInfo]) -> None:
        """As ``Output``."""
        shown = [{"mechanism": _mechanism(info), "iterations": info.iterations} for info in infos]
        self._add("scram_credentials", {"user": user, "credentials": shown})

    def absent(self, kind: str, name: str) -> None:
        """As ``Output``."""
        self._add("absent", {"entity_type": kind, "entity_name": name})

    def heading(self, kind: str, name: str, *, describes_all: bool) -> None:
        """As ``Output``."""

    def settings(self, kind: str, name: str, entries: Iterable[ConfigEntry]) -> None:
        """As ``Output``."""
        shown = [
            {
                "name": entry.name,
                "value": entry.value,
                "source": entry.source.name,
                "is_sensitive": entry.is_sensitive,
                "synonyms": [
                    {"name": each.name, "value": each.value, "source": each.source.name}
                    for each in entry.synonyms
                ],
            }
            for entry in entries
        ]
        self._add("settings", {"entity_type": kind, "entity_name": name or None, "configs": shown})

    def end(self) -> None:
        """As ``Output``."""
        print_json(self._content)


def _null(value: str | None) -> str:
    return "null" if value is None else value


def _mechanism(info: ScramCredentialInfo) -> str:
    return info.mechanism.name.replace("_", "-")
