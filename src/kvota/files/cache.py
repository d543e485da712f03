"""The cache is the folder where kvota keeps what it fetched or compiled once."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """It is ``$KVOTA_CACHE``, else ``$XDG_CACHE_HOME/kvota``, else ``~/.cache/kvota``; it may not exist yet.

    A relative ``XDG_CACHE_HOME`` is ignored, as the XDG base directory specification asks.
    """
    own = os.environ.get("KVOTA_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME")
    if shared and Path(shared).is_absolute():
        return Path(shared) / "kvota"
    return Path.home() / ".cache" / "kvota"
