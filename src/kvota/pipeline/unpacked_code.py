"""The first thing that a worker runs of the code it was sent: unpacks it, and has the package be what was unpacked.

In the archive this file is ``kvota/__init__.py``, and is run on its own: it imports nothing of kvota.
"""

import hashlib
import io
import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any


def unpacked(content: bytes) -> Path:
    """Unpack code once for all processes, in the user's cache folder, else where the worker runs.

    Raises:
        ImportError: neither can be written to.
    """
    name = hashlib.blake2b(content, digest_size=8).hexdigest()
    faults = []
    for base in _folders():
        folder = base / name
        try:
            if not folder.exists():
                base.mkdir(parents=True, exist_ok=True)
                _unpack(content, folder)
            return folder
        except OSError as error:
            faults.append(f"{base}: {error.strerror or error}")
    msg = f"kvota's code cannot be unpacked on this worker: {'; '.join(faults)}"
    raise ImportError(msg)


def _folders() -> Iterator[Path]:
    own, shared = os.environ.get("KVOTA_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if own:
        yield Path(own) / "code"
    elif shared and Path(shared).is_absolute():
        yield Path(shared) / "kvota" / "code"
    else:
        with suppress(RuntimeError):  # a user without a home
            yield Path.home() / ".cache" / "kvota" / "code"
    yield Path.cwd() / "kvota-code"


def _unpack(content: bytes, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        whole = Path(made) / "whole"
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            archive.extractall(whole)
        try:
            whole.rename(folder)
        except OSError:
            if not folder.exists():  # else another process was faster
                raise


if __name__ == "kvota":
    _loader: Any = globals()["__spec__"].loader
    _content = _loader.get_data(f"{_loader.archive}/code.zip")
    __path__ = [str(unpacked(_content) / "kvota")]
