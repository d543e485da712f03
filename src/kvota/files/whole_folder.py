"""A folder is made in one way: it takes its name when all of it is on the disk, and until then the one before has it.

What is not whole yet lies beside it, in ``.NAME.xxxxxxxx.tmp``, together with a lock that goes with its process. Where
the file system can exchange two names in one step, no moment is without a folder of that name. Elsewhere (NFS, some
containers) there is one between two renames: who is killed in it leaves the one before, and whoever comes next puts it
back.
"""

import ctypes
import errno
import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from kvota.files.whole_file import UNFINISHED, has_name

_NEW, _OLD, _LOCK = "new", "old", "lock"
_NOTE = b"held while what is beside it takes its place; may go where no process holds it\n"

# Of renameat2: relative to the working folder; two names change places.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
# What a kernel or a file system says that cannot do so.
_CANNOT_EXCHANGE = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV})


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield where to make a new folder; when the block ends well, it has the name ``path``.

    If the block or what follows fails, the folder that had the name still has it, and nothing new is left.

    Args:
        path: absolute; what has the name goes, if anything has.

    Raises:
        OSError: it could not be made.
    """
    settle(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _beside(path) as folder:
        new = folder / _NEW
        yield new
        _flush(new)
        _take_place(new, path, folder / _OLD)


def try_to_make(path: Path) -> None:
    """Write a little where a folder is to be, or above it if its own is not there yet, and remove it.

    Raises:
        OSError: nothing can be written there.
    """
    above = path.parent
    while not above.exists() and above != above.parent:
        above = above.parent
    with _beside(above / path.name):
        pass


def settle(path: Path) -> None:
    """Put back what a killed process has moved away and not replaced, and remove what it left."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}{re.escape(UNFINISHED)}")
    try:
        left = [one for one in path.parent.iterdir() if name.fullmatch(one.name)]
    except OSError:  # there is no such folder, or nobody may look into it: who writes will say so
        return
    for folder in left:
        with suppress(OSError), (folder / _LOCK).open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a living one holds it
            if not has_name(lock.fileno(), folder / _LOCK):
                continue
            if (folder / _OLD).exists() and not path.exists():
                (folder / _OLD).rename(path)
            shutil.rmtree(folder)


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """Make a folder for what is not whole yet, locked; it goes with what is in it."""
    folder, lock = _locked_folder(path)
    with lock:
        try:
            lock.write(_NOTE)
            lock.flush()
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _locked_folder(path: Path) -> tuple[Path, BinaryIO]:
    while True:
        folder = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{UNFINISHED}")
        folder.mkdir()
        try:
            lock = (folder / _LOCK).open("ab")
        except (
            FileNotFoundError
        ):  # somebody took it for what a dead one left, as it was not locked yet
            continue
        except OSError:
            folder.rmdir()
            raise
        # A file system without locks is no reason not to write.
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        if has_name(lock.fileno(), folder / _LOCK):
            return folder, lock
        lock.close()


def _flush(folder: Path) -> None:
    """Have all of it on the disk."""
    for one in (folder, *folder.rglob("*")):
        descriptor = os.open(one, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _take_place(new: Path, path: Path, old: Path) -> None:
    if not path.exists():
        new.rename(path)
        return
    if _exchanged(new, path):
        return
    path.rename(old)
    try:
        new.rename(path)
    except OSError:
        old.rename(path)
        raise
    old.rename(new)  # by this name nobody puts it back


def _exchanged(one: Path, other: Path) -> bool:
    """Have two names change places in one step; False where that cannot be done here.

    Raises:
        OSError: it could be, and was not.
    """
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    names = os.fsencode(one), os.fsencode(other)
    if rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), str(other))
