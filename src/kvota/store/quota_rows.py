"""Configured quotas as rows of a topic: a key's value in each, and none where it is removed.

    key    {"user":"orders","client-id":null,"quota":"producer_byte_rate"}
    value  {"version":1,"value":4000000.0}

Both are JSON; a key has one spelling, so that compaction finds it again. null is the default's name.
"""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kvota.client.record_batches import Row, Unread
from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.quota_entity import QuotaEntity
from kvota.store.quota_document import entity_of, named_parts, number_text, value_of

VERSION = 1
_QUOTA = "quota"
_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

Key = tuple[QuotaEntity, str]


def encode_rows(changes: Iterable[KeyChange]) -> list[tuple[bytes, bytes | None]]:
    """Return the rows of these changes, in their order."""
    return [(_key(change), _value(change)) for change in changes]


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


def decode_row(key: bytes | None, value: bytes | None) -> KeyChange:
    """Return the change that a row is.

    Raises:
        ValueError: it is none, or a newer version's; the text says why.
    """
    entity, quota = _decode_key(key)
    return KeyChange(entity, quota, _decode_value(entity, quota, value))


def changes_of(rows: Iterable[Row | Unread]) -> tuple[list[KeyChange], list[LeftOut]]:
    """Return the changes that rows are, in their order, and those that are none."""
    changes, left_out = [], []
    for row in rows:
        if isinstance(row, Unread):
            left_out.append(LeftOut(row.offset, row.reason))
            continue
        of = None
        try:
            of = _decode_key(row.key)
            changes.append(KeyChange(*of, _decode_value(*of, row.value)))
        except ValueError as error:
            left_out.append(LeftOut(row.offset, str(error), of))
    return changes, left_out


class LastRows:
    """What a topic's rows say, in their order; of each key the last one that can be read."""

    def __init__(self) -> None:
        self._values: dict[Key, float | None] = {}
        self._unread: dict[Key, None] = {}

    def add(self, rows: Sequence[Row | Unread]) -> list[LeftOut]:
        """Take these, too; returns those that cannot be read."""
        changes, left_out = changes_of(rows)
        self._values.update({(entity, key): value for entity, key, value in changes})
        self._unread.update({each.of: None for each in left_out if each.of is not None})
        return left_out

    def changes(self) -> list[KeyChange]:
        """What can be read."""
        return [KeyChange(*key, value) for key, value in self._values.items()]

    def kept(self, quotas: ClientQuotas) -> list[KeyChange]:
        """Of these quotas those that have rows, and none that can be read."""
        return [
            KeyChange(*key, value)
            for key in self._unread
            if key not in self._values and (value := quotas.value(*key)) is not None
        ]


def _decode_key(key: bytes | None) -> Key:
    named = _object(key, "key")
    quota = named.pop(_QUOTA, None)
    if not isinstance(quota, str):
        msg = f'its key has no "{_QUOTA}"'
        raise ValueError(msg)  # noqa: TRY004  (of a row, not of a program)
    return entity_of(named), quota


def _decode_value(entity: QuotaEntity, quota: str, value: bytes | None) -> float | None:
    if value is None:
        return None
    content = _object(value, "value")
    version = content.get("version")
    if version != VERSION:
        msg = f"its version is {version!r}, and this kvota knows {VERSION}: a newer one has written it"
        raise ValueError(msg)
    if set(content) != {"version", "value"}:
        msg = 'its value has other members than "version" and "value"'
        raise ValueError(msg)
    return value_of(entity, quota, content["value"])


def _key(change: KeyChange) -> bytes:
    return _encoded({**named_parts(change.entity), _QUOTA: change.key})


def _value(change: KeyChange) -> bytes | None:
    if change.value is None:
        return None
    return _encoded({"version": VERSION, "value": number_text(change.value)})


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
