"""Values of gateway.toml that stand elsewhere, as Kafka's config providers have them (KIP-297, KIP-421, KIP-887).

``${env:NAME}`` is a variable of the environment, ``${file:PATH:KEY}`` a property in a file of Java's properties, and
``${dir:FOLDER:FILE}`` all of a file (a mounted secret, say) without the line's end behind it. Kafka has a client
name its providers in ``config.providers``; here these three are there always. What is set dynamically, by a client,
is never followed.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from kvota.model.errors import Fault
from kvota.model.java_properties import parse_properties
from kvota.store.toml_places import Places

_REFERENCE = re.compile(r"\$\{([A-Za-z][A-Za-z0-9_-]*):([^}]*)\}")
_BYTES_MAX = 65_536
_FORMS = "${env:NAME}, ${file:PATH:KEY}, ${dir:FOLDER:FILE}"


def follow_references(data: dict[str, object], places: Places, folder: Path) -> list[Fault]:
    """Put what they stand for into the texts of a file's data.

    Args:
        data: tables, lists and values; changed.
        places: where each stands.
        folder: of the file; names of files are relative to it.

    Returns:
        A fault for each text with a reference that cannot be followed; it stays as it is.
    """
    return list(_follow(data, places, folder, ()))


def _follow(
    data: dict[str, object], places: Places, folder: Path, path: tuple[str, ...]
) -> Iterator[Fault]:
    for key, value in data.items():
        at = (*path, key)
        if isinstance(value, dict):
            yield from _follow(value, places, folder, at)
            continue
        try:
            if isinstance(value, str):
                data[key] = with_references(value, folder)
            elif isinstance(value, list):
                data[key] = [
                    with_references(one, folder) if isinstance(one, str) else one for one in value
                ]
        except ValueError as error:
            problem, _, remedy = str(error).partition(". ")
            yield Fault(places.named(*at), problem, remedy)


def with_references(text: str, folder: Path, environment: Mapping[str, str] = os.environ) -> str:
    """Return the text with what its references stand for; what comes so is not looked at again.

    Args:
        text: a value, or a part of it, may be a reference.
        folder: of gateway.toml; names of files are relative to it.
        environment: variables by name.

    Raises:
        ValueError: a reference cannot be followed; its text says what to do, and nothing of a secret.
    """
    return _REFERENCE.sub(
        lambda found: _told(found[0], found[1], found[2], folder, environment), text
    )


def _told(
    reference: str, provider: str, where: str, folder: Path, environment: Mapping[str, str]
) -> str:
    if provider == "env":
        value = environment.get(where)
        if value is None:
            msg = (
                f"{reference}: the environment has no variable {where}. Start the gateway with it."
            )
            raise ValueError(msg)
        return value
    name, _, key = where.rpartition(":")
    if provider not in {"file", "dir"} or not name or not key:
        msg = f"{reference} is no reference that is known here. Write one of {_FORMS}."
        raise ValueError(msg)
    if provider == "dir":
        if Path(key).name != key:
            msg = f"{reference}: {key} is not the name of a file in that folder. Write one without a path."
            raise ValueError(msg)
        return _read(reference, folder / name / key).removesuffix("\n").removesuffix("\r")
    try:
        properties = parse_properties(_read(reference, folder / name))
    except ValueError as error:
        if str(error).startswith(reference):
            raise
        msg = f"{reference}: {name}: {error}."
        raise ValueError(msg) from None
    if key not in properties:
        msg = f"{reference}: {name} has no property {key}. Write it there: {key}=value."
        raise ValueError(msg)
    return properties[key]


def _read(reference: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_BYTES_MAX + 1)
        if len(content) > _BYTES_MAX:
            msg = f"{reference}: {path} has more than {_BYTES_MAX} bytes. Name a file with that value only."
            raise ValueError(msg)
        return content.decode()
    except UnicodeDecodeError:
        msg = f"{reference}: {path} is no text in UTF-8. Write it as one."
        raise ValueError(msg) from None
    except OSError as error:
        msg = (
            f"{reference}: {path} cannot be read: {error.strerror}. Let the gateway's user read it."
        )
        raise ValueError(msg) from error
