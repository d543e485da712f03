"""Configured quotas as one JSON document, an entity a line: what a store of the gateway's own writes.

A line is made once and kept: to alter one of 10,000 entities costs one line, and joining them.
"""

import json
from collections.abc import Iterable, Mapping
from json.encoder import encode_basestring
from math import isfinite

from kvota.model.broker_settings import (
    NO_SETTINGS,
    SettingChanges,
    Settings,
    is_gateways,
    with_changes,
)
from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.errors import CorruptDataError
from kvota.model.plain_text import on_one_line, shortened
from kvota.model.quota_entity import CLIENT_ID, DEFAULT, IP, USER, EntityName, QuotaEntity
from kvota.quota_api.alteration import fault_of_value

FORMAT, VERSION = "kvota client quotas", 1
# With settings it is a later one, which a kvota that has none of them refuses instead of forgetting them.
_VERSION_WITH_SETTINGS = 2

_PARTS = (USER, CLIENT_ID, IP)
_VALUES, _SETTINGS = "values", "settings"
_END = b"\n]}\n"
_NO_NUMBERS = ("NaN", "Infinity")  # JSON has none of them, so they are texts
_REASON_MAX = 300  # characters


class QuotaDocument:
    """The quotas and the gateway's settings, and the document that has them."""

    def __init__(
        self, quotas: ClientQuotas | None = None, settings: Settings = NO_SETTINGS
    ) -> None:
        self.quotas = quotas or ClientQuotas()
        self.settings = settings
        self._lines = {
            entity: _line(entity, values) for entity, values in self.quotas.entries().items()
        }

    def with_changes(
        self, changes: Iterable[KeyChange], settings: SettingChanges = NO_SETTINGS
    ) -> "QuotaDocument":
        """The document after all the changes."""
        batch = tuple(changes)
        result = QuotaDocument(settings=with_changes(self.settings, settings))
        result.quotas = self.quotas.with_changes(batch)
        lines = result._lines = self._lines.copy()
        entries = result.quotas.entries()
        for entity in dict.fromkeys(change.entity for change in batch):
            if entity in entries:
                lines[entity] = _line(entity, entries[entity])
            else:
                lines.pop(entity, None)
        return result

    def content(self) -> bytes:
        """The whole document."""
        version = _VERSION_WITH_SETTINGS if self.settings else VERSION
        head = f'{{"format": "{FORMAT}", "version": {version}, '
        if self.settings:
            settings = json.dumps(dict(self.settings), ensure_ascii=False)
            head += f'"{_SETTINGS}": {settings},\n'
        return f'{head}"quotas": [\n'.encode() + b",\n".join(self._lines.values()) + _END


def read_document(content: bytes) -> QuotaDocument:
    """Return the document that these bytes are.

    Raises:
        CorruptDataError: they are damaged, or from a newer version; says what is wrong, without the
            name of the file.
    """
    try:
        return _document_of(content)
    except (
        CorruptDataError,
        RecursionError,
    ) as error:  # what is nested too deep may be shown nowhere
        raise CorruptDataError(one_line(str(error))) from None


def one_line(reason: str) -> str:
    """Why something cannot be read, as it can be said everywhere: it may repeat what cannot be written, or a book."""
    return on_one_line(shortened(reason, _REASON_MAX))


def _document_of(content: bytes) -> QuotaDocument:
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        msg = f"it is no whole JSON document: {error}"
        raise CorruptDataError(msg) from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        msg = f'it has no "format": "{FORMAT}"'
        raise CorruptDataError(msg)
    version = data.get("version")
    if version not in (VERSION, _VERSION_WITH_SETTINGS):  # a list is in no set
        known = f"{VERSION} and {_VERSION_WITH_SETTINGS}"
        msg = (
            f"its version is {version!r}, and this kvota knows {known}: a newer one has written it"
        )
        raise CorruptDataError(msg)
    entries = data.get("quotas")
    members = {"format", "version", "quotas"}
    if version == _VERSION_WITH_SETTINGS:
        members.add(_SETTINGS)
    if set(data) != members or not isinstance(entries, list):
        msg = 'it has other members than "format", "version" and "quotas", a list'
        raise CorruptDataError(msg)
    settings = _read_settings(data.get(_SETTINGS, {}))
    found: dict[QuotaEntity, Mapping[str, float]] = {}
    for number, entry in enumerate(entries):
        try:
            entity, values = read_entry(entry)
        except ValueError as error:
            msg = f"quotas[{number}]: {error}"
            raise CorruptDataError(msg) from None
        if entity in found:
            msg = f"quotas[{number}]: {entity} is there twice"
            raise CorruptDataError(msg)
        found[entity] = values
    return QuotaDocument(ClientQuotas(found), settings)


def _read_settings(data: object) -> dict[str, str]:
    if not isinstance(data, dict):
        msg = f'"{_SETTINGS}" is no object'
        raise CorruptDataError(msg)
    try:
        return {name: text_of_setting(name, value) for name, value in data.items()}
    except ValueError as error:
        msg = f"{_SETTINGS}: {error}"
        raise CorruptDataError(msg) from None


def text_of_setting(name: str, value: object) -> str:
    """The value of one of the gateway's settings.

    Raises:
        ValueError: it is none, or the setting is not one of the gateway's.
    """
    if not is_gateways(name):
        msg = f"{name} is no setting of the gateway"
        raise ValueError(msg)
    if not isinstance(value, str):
        msg = f"{name}: {type(value).__name__} is no text"  # it may be a password: not its value
        raise ValueError(msg)  # noqa: TRY004  (of a document, not of a program)
    if not _is_text(name) or not _is_text(value):
        msg = f"{name!a}: its name or its value is no text: half of a surrogate pair"
        raise ValueError(msg)
    return value


def _is_text(text: str) -> bool:
    """False for half of a surrogate pair, as JSON can spell it, and nothing can write it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_entry(entry: object) -> tuple[QuotaEntity, dict[str, float]]:
    """Read one entity with its values.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(entry, dict):
        msg = "not an object"
        raise ValueError(msg)  # noqa: TRY004  (of a document, not of a program)
    values = entry.get(_VALUES)
    if not isinstance(values, dict) or not values:
        msg = 'no "values"'
        raise ValueError(msg)
    entity = entity_of({part: name for part, name in entry.items() if part != _VALUES})
    return entity, {key: value_of(entity, key, value) for key, value in values.items()}


def entity_of(named: Mapping[str, object]) -> QuotaEntity:
    """The entity with these parts; null is the default's name.

    Raises:
        ValueError: there is none.
    """
    unknown = named.keys() - _PARTS
    if unknown:
        msg = f'unknown member "{min(unknown)}"'
        raise ValueError(msg)
    return QuotaEntity(*(_name(named, part) for part in _PARTS))


def number_text(value: float) -> float | str:
    """A value as JSON has it."""
    return value if isfinite(value) else "NaN" if value != value else "Infinity"  # noqa: PLR0124


def _line(entity: QuotaEntity, values: Mapping[str, float]) -> bytes:
    # As json.dumps would have it, in a third of its time.
    parts = [f'"{part}": {_name_text(name)}' for part, name in named_parts(entity).items()]
    numbers = [f"{encode_basestring(key)}: {_number_text(value)}" for key, value in values.items()]
    return f'{{{", ".join(parts)}, "{_VALUES}": {{{", ".join(numbers)}}}}}'.encode()


def _name_text(name: str | None) -> str:
    return "null" if name is None else encode_basestring(name)


def _number_text(value: float) -> str:
    return repr(value) if isfinite(value) else f'"{number_text(value)}"'


def named_parts(entity: QuotaEntity) -> dict[str, str | None]:
    """The parts of an entity; null is the default's name."""
    return {
        part: None if name is DEFAULT else name
        for part, name in zip(_PARTS, entity, strict=True)
        if name is not None
    }


def _name(entry: Mapping[str, object], part: str) -> EntityName:
    if part not in entry:
        return None
    name = entry[part]
    if name is None:
        return DEFAULT
    if not isinstance(name, str):
        msg = f'"{part}" is neither a text nor null'
        raise ValueError(msg)  # noqa: TRY004  (of a document, not of a program)
    if not _is_text(name):
        msg = f'"{part}" is no text: {name!a}'
        raise ValueError(msg)
    return name


def value_of(entity: QuotaEntity, key: str, value: object) -> float:
    """The value that an entity has for a key.

    Raises:
        ValueError: it is none.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number and value not in _NO_NUMBERS:
        msg = f"{key}: {value!r} is no number"
        raise ValueError(msg)
    try:
        number = float(value)  # type: ignore[arg-type]  # one of these
    except OverflowError:
        msg = f"{key}: a number of {len(str(value))} digits is too large"
        raise ValueError(msg) from None
    fault = fault_of_value(key, number, entity.types)
    if fault is not None:
        raise ValueError(fault)
    return number
