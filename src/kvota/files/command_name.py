"""How the user calls kvota, for hints that can be typed as they are printed."""

import os


def called() -> str:
    """Return ``kvota``, or what the script that has started it says in ``$KVOTA_CALLED``.

    >>> called() in {"kvota", os.environ.get("KVOTA_CALLED")}
    True
    """
    return os.environ.get("KVOTA_CALLED") or "kvota"


def called_anywhere() -> str:
    """The same for who stands in another folder: what a gateway says is read elsewhere."""
    return os.environ.get("KVOTA_CALLED_ANYWHERE") or called()
