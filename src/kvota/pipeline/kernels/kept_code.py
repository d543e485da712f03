"""Where the machine code of kernels is kept between processes; without Numba, whose import takes long.

The folder is named after the source of all that kernels may call, because Numba's own cache does not see that a
called function has changed.
"""

import hashlib
import os
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from kvota.files.cache import cache_folder


def missing(parts: Iterable[str]) -> list[str]:
    """Return the parts of the kernels (``kernel_parts``) of which not all kernels, as they are now, have been compiled on this machine before."""
    return [part for part in parts if not _mark(part).exists()]


def note_complete(part: str) -> None:
    """Note that all kernels of a part have been compiled."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    _mark(part).touch()


def _mark(part: str) -> Path:
    """This file in the folder says that nothing of the part is missing there."""
    return FOLDER / f"{part}.complete"


def _base() -> Path:
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return Path(chosen)
    beside = Path(__file__).with_name("__pycache__")
    writable = os.access(beside if beside.exists() else beside.parent, os.W_OK)
    return beside / "numba" if writable else cache_folder() / "numba"


def _sources() -> bytes:
    """Return the text of everything kernels call, each other included."""
    arithmetic = find_spec("kvota.engine.arithmetic")
    assert arithmetic is not None
    assert arithmetic.origin is not None
    files = (Path(arithmetic.origin), *sorted(Path(__file__).parent.glob("*.py")))
    return b"\0".join(file.read_bytes() for file in files)


FOLDER = _base() / hashlib.blake2b(_sources(), digest_size=8).hexdigest()
