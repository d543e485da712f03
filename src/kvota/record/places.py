"""Where a record lies: a folder or file of this machine, or a URI of somewhere else."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kvota.model.errors import UsageError

# A scheme has two letters at least: "c:" would be a drive.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")

# Looks at volumes lie beside the decisions, where what reads Parquet by itself (Arrow, Spark) passes over them.
VOLUME_FOLDER = "_volumes"
_OF_VOLUMES = re.compile(r"volumes-.+-[0-9]{10}-[0-9]+\.parquet")
# So does usage that ``kvota ingest`` keeps.
USAGE_FOLDER = "_usage"
_OF_USAGE = re.compile(r"usage-minutes-[0-9]{12}\.parquet")


def is_of_volumes(name: str) -> bool:
    """True for the name of a file of looks at volumes, which holds no decisions."""
    return _OF_VOLUMES.fullmatch(name) is not None


def is_beside_events(name: str) -> bool:
    """True for the name of a file that lies in the folder of a record, and holds no decisions."""
    return is_of_volumes(name) or _OF_USAGE.fullmatch(name) is not None


def local_path(place: Path | str) -> Path | None:
    """Return the path of a place on this machine (a path, or a URI of ``file:``); None for any other URI.

    Raises:
        UsageError: a URI of ``file:`` names another machine.

    >>> local_path("file:///var/a%20b"), local_path("record"), local_path("s3a://bucket/record")
    (PosixPath('/var/a b'), PosixPath('record'), None)
    """
    if isinstance(place, Path) or not _SCHEME.match(place):
        return Path(place)
    uri = urlsplit(place)
    if uri.scheme.lower() != "file":
        return None
    if uri.netloc not in {"", "localhost"}:
        msg = f'"{place}" is on {uri.netloc}, not on this machine; write file:///folder or a plain path'
        raise UsageError(msg)
    return Path(unquote(uri.path))
