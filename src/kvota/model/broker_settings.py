"""Settings of the gateway under Kafka's names of a broker's: which they are, and how they are described.

Kafka has a setting in several places, each of which goes before the next one: set dynamically for one broker,
set dynamically for all, written in the file, the default. A gateway serves all brokers, so it has none for one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

from kvota.model.quota_type import CONFIGURABLE_TYPES, FACTS

CALLBACK_CLASS = "client.quota.callback.class"
CALLBACK_PREFIX = "client.quota.callback."
# The settings of the quota types' windows, each once.
WINDOW_SETTINGS = tuple(
    dict.fromkeys(
        name for of_type in CONFIGURABLE_TYPES for name in FACTS[of_type].window_properties
    )
)
# Kafka's defaults: samples and seconds.
WINDOW_DEFAULTS: Mapping[str, int] = MappingProxyType(
    {
        name: default
        for of_type in CONFIGURABLE_TYPES
        for name, default in zip(FACTS[of_type].window_properties, (11, 1), strict=True)
    }
)

Settings = Mapping[str, str]
# None: it is removed.
SettingChanges = Mapping[str, str | None]

NO_SETTINGS: Settings = MappingProxyType({})


class Kind(IntEnum):
    """What kind of value a setting has, by Kafka's number of it."""

    STRING = 2
    INT = 3
    CLASS = 8


class Source(IntEnum):
    """Where a value comes from, by Kafka's number of it; what stands first here goes before the others."""

    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedSetting:
    """One setting as a broker describes its own.

    Attributes:
        name: Kafka's.
        kind: of its value.
        values: what it is by each source that has one, the one in force first.
        is_sensitive: its value is nobody's business, as a password is.
        is_read_only: it cannot be changed while the gateway runs.
    """

    name: str
    kind: Kind
    values: tuple[tuple[Source, str], ...]
    is_sensitive: bool = False
    is_read_only: bool = False


def is_gateways(name: str) -> bool:
    """True for a setting that is the gateway's own business, and not the broker's."""
    return name in WINDOW_DEFAULTS or name.startswith(CALLBACK_PREFIX)


def with_changes(settings: Settings, changes: SettingChanges) -> dict[str, str]:
    """These settings after the changes, by name: what is sent has no order."""
    merged = {**settings, **changes}
    return {name: value for name, value in sorted(merged.items()) if value is not None}
