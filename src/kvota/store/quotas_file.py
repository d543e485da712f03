"""The file of configured quotas, ``quotas.toml``, is read here, and written in one step."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from kvota.files.whole_file import write_whole
from kvota.model.client_quotas import ClientQuotas
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.errors import ConfigurationError, UnreachableError, UsageError
from kvota.model.quota_entity import DEFAULT, EntityName, QuotaEntity
from kvota.model.quota_type import FACTS
from kvota.store.quota_entries import EntriesReader
from kvota.store.quota_limit import LimitError, check_value, value_text
from kvota.store.toml_file import in_file_order, load_toml


def load_client_quotas(path: Path, *, named_by: Path | None = None) -> ClientQuotas:
    """Return the quotas of a file by Kafka's keys; an empty file means no quotas.

    Args:
        path: of the file.
        named_by: the gateway.toml that names it, or takes it for granted.

    Raises:
        ConfigurationError: all faults of the file, each with its place ``file:line: quota[n].key``.
    """
    remedy = "Create it, or correct the path."
    if named_by is not None:
        remedy = f"Create it (an empty one means no quotas), or correct quotas.file in {named_by}."
    data, places = load_toml(path, if_missing=remedy)
    reader = EntriesReader(places)
    reader.read(data)
    if reader.faults:
        raise ConfigurationError(in_file_order(reader.faults))
    return ClientQuotas(reader.quotas)


def load_quotas(path: Path) -> ConfiguredQuotas:
    """Return what of a file is quotas of users and client ids.

    Raises:
        ConfigurationError: as ``load_client_quotas``.
    """
    return load_client_quotas(path).configured()


def dump_quotas(quotas: ConfiguredQuotas | ClientQuotas, *, heading: str | None = None) -> str:
    """Return the text of a quotas file that is read as exactly these quotas.

    Args:
        quotas: entries keep their order.
        heading: lines of comment to begin with.

    Raises:
        UsageError: there is a limit or a name that such a file cannot have.
    """
    if isinstance(quotas, ConfiguredQuotas):
        quotas = _by_key(quotas)
    heads = [f"# {_printable(line)}".rstrip() + "\n" for line in (heading or "").splitlines()]
    entries = [
        "".join(f"{line}\n" for line in _entry_lines(entity, values))
        for entity, values in quotas.entries().items()
    ]
    return "\n".join([*(["".join(heads)] if heads else []), *entries])


def write_quotas(
    path: Path, quotas: ConfiguredQuotas | ClientQuotas, *, heading: str | None = None
) -> None:
    """Put the quotas into the file: a reader finds the old text or the new, never half of one.

    Raises:
        UsageError: as ``dump_quotas``.
        UnreachableError: the file could not be written; it is as before.
    """
    content = dump_quotas(quotas, heading=heading).encode()
    try:
        write_whole(path, content)
    except OSError as error:
        msg = f"{path} could not be written: {error.strerror or error}. It is as it was"
        raise UnreachableError(msg) from error


def _by_key(quotas: ConfiguredQuotas) -> ClientQuotas:
    for entity, limits in quotas.entries().items():
        for quota_type in limits:
            if FACTS[quota_type].config_key is None:
                msg = f"a {quota_type} quota ({entity}) cannot be written to a quotas file: it has no key"
                raise UsageError(msg)
    return ClientQuotas.of(quotas)


def _entry_lines(entity: QuotaEntity, values: Mapping[str, float]) -> Iterator[str]:
    yield "[[quota]]"
    yield from _name_lines("user", entity.user)
    yield from _name_lines("client_id", entity.client_id)
    yield from _name_lines("ip", entity.ip)
    for key, value in values.items():
        try:
            check_value(key, value)
        except LimitError as error:
            msg = f"{key} of {entity}: {error}"
            raise UsageError(msg) from error
        yield f'{key} = "{value_text(key, value)}"'


def _name_lines(key: str, name: EntityName) -> Iterator[str]:
    if name is DEFAULT:
        yield f"{key}_default = true"
    elif isinstance(name, str):
        try:
            name.encode()
        except UnicodeEncodeError as error:
            msg = f"{key} {name!r} cannot be written to a quotas file: it is not Unicode text"
            raise UsageError(msg) from error
        # JSON's escapes are TOML's, but for one character.
        yield f"{key} = {json.dumps(name, ensure_ascii=False)}".replace("\x7f", "\\u007f")


def _printable(line: str) -> str:
    return "".join(char if char.isprintable() else " " for char in line)
