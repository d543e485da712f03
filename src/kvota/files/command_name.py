"""How the user calls kvota, for hints that can be typed as they are printed."""

import os


def called() -> str:
    """Return ``kvota``, or what the script that has started it says in ``$KVOTA_CALLED``.

    >>> called() in {"kvota", os.environ.get("KVOTA_CALLED")}
    True
    """
    return os.environ.get("KVOTA_CALLED") or "kvota"
