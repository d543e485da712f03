"""A file is written in one way: it is there whole, or not at all, wherever the process dies."""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

# What the system says of a disk without room; there may be some later.
DISK_IS_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
UNFINISHED = ".tmp"


def write_whole(
    path: Path,
    content: bytes | memoryview,
    *,
    mode: int | None = None,
    modified_ns: int | None = None,
    when_complete: Callable[[], object] | None = None,
) -> os.stat_result:
    """Write, flush to the disk, and only then give the file its name.

    Until then it is called ``*.tmp`` and locked. A killed process leaves it; the next one that
    writes this file overwrites it, and where names never come again ``remove_if_dead`` clears it away. Two that
    write the same file at once wait for each other. A link stays a link.

    Args:
        path: the file, in a folder that is there.
        content: all of it.
        mode: permissions; without it those of the file that is replaced, else what the process gives new files.
        modified_ns: when it counts as modified, Unix nanoseconds; without it now.
        when_complete: called when all of it is on the disk, before it takes the name; an ``OSError`` of its own
            leaves the file that has the name.

    Returns:
        What the system says of the new file.

    Raises:
        OSError: it could not be written; names the file, of which nothing new is left.
    """
    try:
        target = behind_links(path)
        with _unfinished(target) as (file, unfinished):
            _set_mode(file, target, mode)
            _write_out(file, content)
            if modified_ns is not None:
                os.utime(file.fileno(), ns=(modified_ns, modified_ns))
            if when_complete is not None:
                when_complete()
            written = os.fstat(file.fileno())
            unfinished.rename(target)
    except OSError as error:
        # A full disk does not say which file it refused, and the unfinished name tells nobody anything.
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    # The file is complete; if only its name could not be made durable, writing it again would double it.
    with suppress(OSError):
        _flush_folder(target.parent)
    return written


def try_to_write(path: Path) -> None:
    """Write a little under an unfinished name, and remove it.

    Raises:
        OSError: files cannot be written here.
    """
    with _unfinished(path) as (file, unfinished):
        _write_out(file, b"kvota")
        unfinished.unlink()


def remove_if_dead(unfinished: Path) -> None:
    """Remove an unfinished file unless a living process is still writing it."""
    with suppress(OSError), unfinished.open("rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if has_name(file.fileno(), unfinished):
            unfinished.unlink()


@contextmanager
def _unfinished(target: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """Open an empty file beside the target, locked; it goes if the block fails."""
    path = target.with_name(target.name + UNFINISHED)
    with _opened(path) as file:
        try:
            # A killed process left something in it. (A device has no size, and could not be cut.)
            if os.fstat(file.fileno()).st_size:
                file.truncate(0)
            yield file, path
        except BaseException:
            # It is still locked: nobody else can have begun a file of this name.
            with suppress(OSError):
                path.unlink(missing_ok=True)
            raise


def _opened(path: Path) -> BinaryIO:
    while True:
        # Opening does not cut it to nothing: until the lock is ours it may be another's.
        file = path.open("ab")
        # A file system without locks is no reason not to write.
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        if has_name(file.fileno(), path):
            return file
        # While we waited, the other one finished or removed it.
        file.close()


def has_name(descriptor: int, path: Path) -> bool:
    """True while the open file is the one that has this name; another one may have taken it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def behind_links(path: Path) -> Path:
    """The file that a name leads to, whether it is there or not.

    Raises:
        OSError: it leads nowhere.
    """
    try:
        return path.resolve()
    except (
        RuntimeError,
        ValueError,
    ) as error:  # links lead in a circle (until Python 3.12), or there is a NUL
        raise OSError(errno.EINVAL, str(error)) from error


def _set_mode(file: BinaryIO, target: Path, mode: int | None) -> None:
    if mode is None:
        with suppress(FileNotFoundError):
            mode = target.stat().st_mode & 0o7777
    if mode is not None:
        os.fchmod(file.fileno(), mode)


def _write_out(file: BinaryIO, content: bytes | memoryview) -> None:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
