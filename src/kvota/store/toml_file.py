"""TOML files that a person wrote are read here."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path

from kvota.model.errors import ConfigurationError, Fault
from kvota.store.toml_places import KeyPath, KnownPlaces, Places

# 60,000 quotas of four lines are 6.6 MB; a file beyond this is a mistake, and would be read in memory.
FILE_BYTES_MAX = 8 * 1024 * 1024

IF_MISSING = "Create it, or correct the path."
# Of difflib's ratios.
_AS_NEAR = 0.05
# A column follows where the file's kind tells it.
_LINE_OF_PLACE = re.compile(r":(\d+)(?::\d+)?(?:: |$)")
_AT_LINE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def load_toml(
    path: Path, *, bytes_max: int = FILE_BYTES_MAX, if_missing: str = IF_MISSING
) -> tuple[dict[str, object], Places]:
    """Return the data of a TOML file, and where in the file each value stands.

    Args:
        path: of the file.
        bytes_max: a larger file is refused.
        if_missing: what to do where there is none.

    Raises:
        ConfigurationError: the file cannot be read, is larger than ``bytes_max``, or is not TOML.
    """
    text = read_text(path, bytes_max=bytes_max, if_missing=if_missing)
    try:
        data = tomllib.loads(text)
    except RecursionError:
        problem = "brackets are nested too deeply"
        raise _fault(str(path), problem, "Write at most a few levels.") from None
    except ValueError as error:
        raise _not_toml(path, text, str(error)) from error
    return data, Places(str(path), text)


def unknown_keys(
    table: Mapping[str, object],
    known: Iterable[str],
    places: KnownPlaces,
    path: KeyPath = (),
    *,
    remedies: Mapping[str, str] | None = None,
) -> list[Fault]:
    """Return one fault for each key of the table at ``path`` that nobody reads, with the nearest known key.

    ``remedies`` says what to do about keys of which more is known than that.
    """
    known, said = sorted(known), remedies or {}
    return [
        Fault(places.named(*path, key), "unknown key", said.get(key) or _known_instead(key, known))
        for key in table
        if key not in known
    ]


def in_file_order(faults: Iterable[Fault]) -> list[Fault]:
    """Return the faults as their lines follow in the file; those without a line first."""
    return sorted(faults, key=_line_of)


def _line_of(fault: Fault) -> int:
    found = _LINE_OF_PLACE.search(fault.place)
    return int(found[1]) if found else 0


def _close(key: str, known: list[str]) -> list[str]:
    """The name that is nearest; another one that begins the same way and is as near, too."""
    near = get_close_matches(key, known, n=2)
    both = near[:2]
    if len(both) == 2 and all(name.startswith(key) for name in both):
        first, second = (SequenceMatcher(None, name, key).ratio() for name in both)
        if first - second < _AS_NEAR:
            return sorted(both)
    return near[:1]


def _known_instead(key: str, known: list[str]) -> str:
    of_lower = {name.lower(): name for name in known}
    nearest = [of_lower[name] for name in _close(key.lower(), list(of_lower))]
    if not nearest:
        nearest = [of_lower[name] for name in of_lower if key.lower() in name.split("_")]
    if not nearest:
        nearest = [of_lower[name] for name in of_lower if name.startswith(key.lower())]
    if len(nearest) == 1:
        return f'Did you mean "{nearest[0]}"?'
    if nearest:
        return "Did you mean one of " + ", ".join(f'"{name}"' for name in nearest) + "?"
    return f"Known here: {', '.join(known)}."


def read_text(path: Path, *, bytes_max: int = FILE_BYTES_MAX, if_missing: str = IF_MISSING) -> str:
    """Return the text of a file that a person wrote.

    Raises:
        ConfigurationError: it cannot be read, is larger than ``bytes_max``, or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            content = file.read(bytes_max + 1)
    except FileNotFoundError:
        raise _fault(str(path), "there is no such file", if_missing) from None
    except IsADirectoryError:
        raise _fault(str(path), "is a folder", "Name the file in it.") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        remedy = "Make it readable for the user that runs kvota."
        raise _fault(str(path), f"cannot be read: {reason}", remedy) from error
    if len(content) > bytes_max:
        problem = f"larger than {bytes_max} bytes"
        raise _fault(str(path), problem, "Check that this is the right file.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = f"byte 0x{content[error.start]:02x} is not UTF-8"
        place = f"{path}:{line}"
        raise _fault(place, problem, "Save the file as UTF-8.") from None


def _not_toml(path: Path, text: str, message: str) -> ConfigurationError:
    found = _AT_LINE.search(message)
    if found is None:
        return _fault(str(path), f"not valid TOML: {message}", "Correct it.")
    reason = message[: found.start()]
    if found[1]:
        place = f"{path}:{found[1]}"
        reason = f"{reason} (column {found[2]})"
    else:
        place = f"{path}:{text.count(chr(10), 0, len(text.rstrip())) + 1}"
        reason = f"{reason} (the file ends here)"
    remedy = "Correct this line; texts need quotes, and a table is written [name]."
    return _fault(place, f"not valid TOML: {reason}", remedy)


def _fault(place: str, problem: str, remedy: str) -> ConfigurationError:
    return ConfigurationError([Fault(place, problem, remedy)])
