"""Configured quotas as rows of a topic: a key's value in each, and none where it is removed.

    key    {"user":"orders","client-id":null,"quota":"producer_byte_rate"}
    value  {"version":1,"value":4000000.0}

Both are JSON; a key has one spelling, so that compaction finds it again. null is the default's name.
"""

import json
from collections.abc import Iterable

from kvota.client.record_batches import Row, Unread
from kvota.model.client_quotas import KeyChange
from kvota.store.quota_document import entity_of, named_parts, number_text, value_of

VERSION = 1
_QUOTA = "quota"


def encode_rows(changes: Iterable[KeyChange]) -> list[tuple[bytes, bytes | None]]:
    """Return the rows of these changes, in their order."""
    return [(_key(change), _value(change)) for change in changes]


def decode_row(key: bytes | None, value: bytes | None) -> KeyChange:
    """Return the change that a row is.

    Raises:
        ValueError: it is none, or a newer version's; the text says why.
    """
    named = _object(key, "key")
    quota = named.pop(_QUOTA, None)
    if not isinstance(quota, str):
        msg = f'its key has no "{_QUOTA}"'
        raise ValueError(msg)  # noqa: TRY004  (of a row, not of a program)
    entity = entity_of(named)
    if value is None:
        return KeyChange(entity, quota, None)
    content = _object(value, "value")
    version = content.get("version")
    if version != VERSION:
        msg = f"its version is {version!r}, and this kvota knows {VERSION}: a newer one has written it"
        raise ValueError(msg)
    if set(content) != {"version", "value"}:
        msg = 'its value has other members than "version" and "value"'
        raise ValueError(msg)
    return KeyChange(entity, quota, value_of(entity, quota, content["value"]))


def changes_of(rows: Iterable[Row | Unread]) -> tuple[list[KeyChange], list[tuple[int, str]]]:
    """Return the changes that rows are, in their order, and those that are none: their offsets, and why."""
    changes, left_out = [], []
    for row in rows:
        if isinstance(row, Unread):
            left_out.append((row.offset, row.reason))
            continue
        try:
            changes.append(decode_row(row.key, row.value))
        except ValueError as error:
            left_out.append((row.offset, str(error)))
    return changes, left_out


def _key(change: KeyChange) -> bytes:
    return _encoded({**named_parts(change.entity), _QUOTA: change.key})


def _value(change: KeyChange) -> bytes | None:
    if change.value is None:
        return None
    return _encoded({"version": VERSION, "value": number_text(change.value)})


def _encoded(content: object) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _object(data: bytes | None, what: str) -> dict[str, object]:
    try:
        found = json.loads(data or b"")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        msg = f"its {what} is no JSON object"
        raise ValueError(msg)  # noqa: TRY004
    return found
