"""A file that is there whole, or not at all, wherever the process dies."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

UNFINISHED = ".tmp"


def write_whole(path: Path, content: bytes | memoryview) -> None:
    """Write, flush to the disk, and only then give the file its name.

    While it is unfinished it is called ``*.tmp`` and locked, so that ``remove_if_dead`` of another process
    can tell it from what a dead one left.

    Raises:
        OSError: it could not be written; nothing of it is left.
    """
    unfinished = path.with_name(path.name + UNFINISHED)
    try:
        with unfinished.open("wb") as file:
            _lock(file.fileno())
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            unfinished.rename(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    # The file is complete; if only its name could not be made durable, writing it again would double it.
    with suppress(OSError):
        _flush_folder(path.parent)


def try_to_write(path: Path) -> None:
    """Write a little under an unfinished name, and remove it.

    Raises:
        OSError: files cannot be written here.
    """
    unfinished = path.with_name(path.name + UNFINISHED)
    try:
        with unfinished.open("wb") as file:
            file.write(b"kvota")
            file.flush()
            os.fsync(file.fileno())
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def remove_if_dead(unfinished: Path) -> bool:
    """Remove an unfinished file unless a living process is still writing it; says whether it did."""
    with suppress(OSError), unfinished.open("rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unfinished.unlink()
        return True
    return False


def _lock(descriptor: int) -> None:
    # A file system without locks is no reason not to record.
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
