"""Settings of topics and brokers, described and altered one by one (KIP-339; Kafka 2.3 and newer)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from kvota.admin.operation import Operation, Outcome
from kvota.client import ANY, Answer, Destination, Fields
from kvota.wire.apis import DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS

_DOCUMENTED_FROM = 3


class ConfigResourceType(IntEnum):
    """What has settings; the names are Kafka's."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """Whose settings.

    Attributes:
        resource_type: what it is.
        name: of the topic, the group, …; a broker's id, or empty: what all brokers have by default.
    """

    resource_type: ConfigResourceType
    name: str

    def __str__(self) -> str:
        if self.resource_type is ConfigResourceType.BROKER and not self.name:
            return "all brokers"
        return f'{self.resource_type.name.lower().replace("_", " ")} "{self.name}"'


class ConfigSource(IntEnum):
    """Where a value is from; the names are Kafka's."""

    UNKNOWN = -1
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSynonym:
    """A value that would count if those before it were not there."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One setting.

    Attributes:
        name: of it.
        value: None: it has none, or is a secret.
        source: where the value is from.
        is_sensitive: a secret: no broker tells it.
        is_read_only: it cannot be altered while the broker runs.
        synonyms: this value, then those behind it; empty unless asked for.
        documentation: in the broker's words; None unless asked for (Kafka 2.6).
    """

    name: str
    value: str | None
    source: ConfigSource
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None


class OpType(IntEnum):
    """What is done to a setting; APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class AlterConfigOp:
    """A change of one setting.

    Attributes:
        name: of the setting.
        value: the new one, or what is appended or subtracted; None with DELETE. It may be a secret and is in no text.
        op_type: what is done.
    """

    name: str
    value: str | None = field(default=None, repr=False)
    op_type: OpType = OpType.SET


Config = dict[str, ConfigEntry]


def destination(resource: ConfigResource) -> Destination:
    """Who knows: only a broker itself knows what is its own."""
    of_broker = resource.resource_type in {
        ConfigResourceType.BROKER,
        ConfigResourceType.BROKER_LOGGER,
    }
    return int(resource.name) if of_broker and resource.name.isdecimal() else ANY


def description(
    to: Destination, *, include_synonyms: bool, include_documentation: bool
) -> Operation[ConfigResource, Config]:
    """What is asked."""

    def content(version: int, resources: Sequence[ConfigResource], _left_ms: int) -> Fields:
        fields: dict[str, object] = {
            "resources": [
                {
                    "resource_type": int(resource.resource_type),
                    "resource_name": resource.name,
                    "configuration_keys": None,
                }
                for resource in resources
            ],
            "include_synonyms": include_synonyms,
        }
        if version >= _DOCUMENTED_FROM:
            fields["include_documentation"] = include_documentation
        return fields

    return Operation(
        api_key=DESCRIBE_CONFIGS,
        what=lambda resource: f"the settings of {resource} cannot be described",
        content=content,
        outcomes=_described,
        to=to,
    )


def _described(answer: Answer) -> Iterable[Outcome[ConfigResource, Config]]:
    for result in answer.results:
        config = {str(entry.name): _entry(entry) for entry in result.configs}
        yield Outcome(_resource(result), int(result.error_code), result.error_message, config)


def _entry(entry: Answer) -> ConfigEntry:
    return ConfigEntry(
        name=str(entry.name),
        value=entry.value,
        source=_source(entry.config_source),
        is_sensitive=bool(entry.is_sensitive),
        is_read_only=bool(entry.read_only),
        synonyms=tuple(
            ConfigSynonym(name=str(each.name), value=each.value, source=_source(each.source))
            for each in entry.synonyms
        ),
        documentation=getattr(entry, "documentation", None),
    )


def _source(number: int) -> ConfigSource:
    try:
        return ConfigSource(number)
    except ValueError:
        return ConfigSource.UNKNOWN


def _resource(result: Answer) -> ConfigResource:
    """Which one; each broker answers for what it was asked."""
    return ConfigResource(ConfigResourceType(int(result.resource_type)), str(result.resource_name))


def alteration(
    to: Destination,
    configs: Mapping[ConfigResource, Sequence[AlterConfigOp]],
    *,
    validate_only: bool,
) -> Operation[ConfigResource, None]:
    """What is asked; what is appended is not sent again after an answer was lost."""

    def content(_version: int, resources: Sequence[ConfigResource], _left_ms: int) -> Fields:
        return {
            "resources": [
                {
                    "resource_type": int(resource.resource_type),
                    "resource_name": resource.name,
                    "configs": [
                        {
                            "name": op.name,
                            "config_operation": int(op.op_type),
                            "value": op.value,
                        }
                        for op in configs[resource]
                    ],
                }
                for resource in resources
            ],
            "validate_only": validate_only,
        }

    plain = {OpType.SET, OpType.DELETE}
    return Operation(
        api_key=INCREMENTAL_ALTER_CONFIGS,
        what=lambda resource: f"the settings of {resource} cannot be altered",
        content=content,
        outcomes=_altered,
        to=to,
        changes=not validate_only,
        is_repeatable=all(op.op_type in plain for ops in configs.values() for op in ops),
    )


def _altered(answer: Answer) -> Iterable[Outcome[ConfigResource, None]]:
    for result in answer.responses:
        yield Outcome(_resource(result), int(result.error_code), result.error_message, None)
