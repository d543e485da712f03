"""Configured quotas as rows of a topic: a key's value in each, and none where it is removed.

    key    {"user":"orders","client-id":null,"quota":"producer_byte_rate"}
    value  {"version":1,"value":4000000.0}

and the gateway's own settings, of which a kvota that has none leaves the rows out:

    key    {"setting":"quota.window.num"}
    value  {"version":1,"value":"5"}

All are JSON; a key has one spelling, so that compaction finds it again. null is the default's name.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from json.encoder import encode_basestring
from types import MappingProxyType
from typing import NamedTuple

from kvota.client.record_batches import Row, Unread
from kvota.model.broker_settings import SettingChanges, Settings, with_changes
from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.quota_entity import QuotaEntity
from kvota.store.quota_document import (
    entity_of,
    named_parts,
    number_text,
    one_line,
    text_of_setting,
    value_of,
)

VERSION = 1
_QUOTA, _SETTING = "quota", "setting"
_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
# Many rows of one alteration have the same value.
_VALUES_KEPT = 256


class SettingName(NamedTuple):
    """What the row of a setting is about."""

    name: str


QuotaKey = tuple[QuotaEntity, str]
Key = QuotaKey | SettingName


class SettingChange(NamedTuple):
    """One of the gateway's settings from now on; None: it is removed."""

    name: str
    value: str | None


class Changes(NamedTuple):
    """What rows change."""

    quotas: list[KeyChange]
    settings: dict[str, str | None]


EncodedRow = tuple[bytes, bytes | None]
# What rows say that need not be read: those that were written here.
KnownRows = Mapping[tuple[object, ...], KeyChange]
_NO_ROWS: KnownRows = MappingProxyType({})


def encode_rows(changes: Iterable[KeyChange]) -> list[EncodedRow]:
    """Return the rows of these changes, in their order."""
    return [(_key(change), _quota_value(change.value)) for change in changes]


def encode_settings(settings: SettingChanges) -> list[EncodedRow]:
    """Return the rows of these changed settings."""
    return [(_encoded({_SETTING: name}), _value(value)) for name, value in settings.items()]


class LeftOut(NamedTuple):
    """A row that is no change, or a newer version's.

    Attributes:
        offset: of it.
        reason: why.
        of: whose key it is all the same; None: it says so in no way that can be read.
    """

    offset: int
    reason: str
    of: Key | None = None


def changes_of(
    rows: Iterable[Row | Unread], known: KnownRows = _NO_ROWS
) -> tuple[Changes, list[LeftOut]]:
    """Return the changes that rows are, in their order, and those that are none."""
    changes, left_out = Changes([], {}), []
    for row in rows:
        known_change = known.get(row[1:])  # one that is unread is not among them
        if known_change is not None:
            changes.quotas.append(known_change)
            continue
        if isinstance(row, Unread):
            left_out.append(LeftOut(row.offset, row.reason))
            continue
        of = None
        try:
            of = _decode_key(row.key)
            change = _decode_value(of, row.value)
            if isinstance(change, SettingChange):
                changes.settings[change.name] = change.value
            else:
                changes.quotas.append(change)
        except (ValueError, RecursionError) as error:  # e.g. of showing what is nested too deep
            left_out.append(LeftOut(row.offset, one_line(str(error)), of))
    return changes, left_out


class LastRows:
    """What a topic's rows say, in their order; of each key the last one that can be read."""

    def __init__(self) -> None:
        self._values: dict[QuotaKey, float | None] = {}
        self._settings: dict[str, str | None] = {}
        self._unread: dict[Key, None] = {}

    def add(self, rows: Sequence[Row | Unread]) -> list[LeftOut]:
        """Take these, too; returns those that cannot be read."""
        changes, left_out = changes_of(rows)
        self._values.update({(entity, key): value for entity, key, value in changes.quotas})
        self._settings.update(changes.settings)
        self._unread.update({each.of: None for each in left_out if each.of is not None})
        return left_out

    def changes(self) -> list[KeyChange]:
        """What can be read."""
        return [KeyChange(*key, value) for key, value in self._values.items()]

    def settings(self, before: Settings) -> dict[str, str]:
        """The settings; those that have rows, and none that can be read, are as they were."""
        unread = {
            of.name: before[of.name]
            for of in self._unread
            if isinstance(of, SettingName) and of.name in before
        }
        return with_changes(unread, self._settings)

    def laid_over(self, settings: Settings) -> dict[str, str]:
        """These settings after what the rows say."""
        return with_changes(settings, self._settings)

    def lacking(
        self, quotas: ClientQuotas, settings: Settings
    ) -> tuple[list[KeyChange], dict[str, str]]:
        """What of these has no row at all."""
        changes = [
            change
            for change in ClientQuotas().changes_to(quotas)
            if (of := (change.entity, change.key)) not in self._values and of not in self._unread
        ]
        return changes, {
            name: value
            for name, value in settings.items()
            if name not in self._settings and SettingName(name) not in self._unread
        }

    def kept(self, quotas: ClientQuotas) -> list[KeyChange]:
        """Of these quotas those that have rows, and none that can be read."""
        return [
            KeyChange(*key, value)
            for key in self._unread
            if not isinstance(key, SettingName)
            and key not in self._values
            and (value := quotas.value(*key)) is not None
        ]


def _decode_key(key: bytes | None) -> Key:
    named = _object(key, "key")
    setting = named.get(_SETTING)
    if isinstance(setting, str) and len(named) == 1:
        return SettingName(setting)
    quota = named.pop(_QUOTA, None)
    if not isinstance(quota, str):
        msg = f'its key has no "{_QUOTA}"'
        raise ValueError(msg)  # noqa: TRY004  (of a row, not of a program)
    return entity_of(named), quota


def _decode_value(of: Key, value: bytes | None) -> KeyChange | SettingChange:
    if value is None:
        return SettingChange(*of, None) if isinstance(of, SettingName) else KeyChange(*of, None)
    if isinstance(of, SettingName):
        content = _value_of_row(value)
        return SettingChange(of.name, text_of_setting(of.name, content["value"]))
    return KeyChange(*of, value_of(*of, _content_of_quota(value)))


@lru_cache(maxsize=_VALUES_KEPT)
def _content_of_quota(value: bytes) -> object:
    return _value_of_row(value)["value"]


def _value_of_row(value: bytes) -> dict[str, object]:
    content = _object(value, "value")
    version = content.get("version")
    if version != VERSION:
        msg = f"its version is {version!r}, and this kvota knows {VERSION}: a newer one has written it"
        raise ValueError(msg)
    if set(content) != {"version", "value"}:
        msg = 'its value has other members than "version" and "value"'
        raise ValueError(msg)
    return content


def _key(change: KeyChange) -> bytes:
    # As _encoded would have it, in a third of its time.
    parts = [
        f'"{part}":{"null" if name is None else encode_basestring(name)},'
        for part, name in named_parts(change.entity).items()
    ]
    return f'{{{"".join(parts)}"{_QUOTA}":{encode_basestring(change.key)}}}'.encode()


@lru_cache(maxsize=_VALUES_KEPT)
def _quota_value(value: float | None) -> bytes | None:
    return _value(value)


def _value(value: float | str | None) -> bytes | None:
    if value is None:
        return None
    content = value if isinstance(value, str) else number_text(value)
    return _encoded({"version": VERSION, "value": content})


def _encoded(content: object) -> bytes:
    return _text(content).encode()


def _object(data: bytes | None, what: str) -> dict[str, object]:
    try:
        found = json.loads(data or b"")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        msg = f"its {what} is no JSON object"
        raise ValueError(msg)  # noqa: TRY004
    return found
