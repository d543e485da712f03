"""A file that one process holds for as long as it lives, and by which others find it."""

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Self

from kvota.files.whole_file import has_name

# The kernel's ``struct flock`` on 64-bit Linux: kind, whence, start, length, process id.
_FLOCK = struct.Struct("@hhqqi4x")


class HeldError(Exception):
    """Another process holds the file.

    Attributes:
        pid: its process id; 0 where it cannot be seen from here (another container).
    """

    def __init__(self, pid: int) -> None:
        super().__init__(f"held by process {pid}")
        self.pid = pid


class ProcessLock:
    """Held from ``take`` on. The kernel lets go with the process, even a killed one, and knows whose it is.

    The first line of the file is the process id, for people and other tools; what is held is the lock, so a file
    that a killed process has left means nothing.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    @classmethod
    def take(cls, path: Path) -> Self:
        """Make the file, in a folder that is there, and hold it.

        Raises:
            HeldError: another process does.
            OSError: the file cannot be made or locked.
        """
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):  # the system may say either
                pid = _holder(descriptor) or 0
                os.close(descriptor)
                raise HeldError(pid) from None
            except OSError:
                os.close(descriptor)
                raise
            if has_name(descriptor, path):
                lock = cls(path, descriptor)
                with suppress(OSError):  # a full disk keeps nobody from holding it
                    lock.tell(())
                return lock
            os.close(descriptor)  # its holder removed it between our two steps

    def tell(self, lines: tuple[str, ...]) -> None:
        """Write lines for others behind the first one.

        Raises:
            OSError: the disk is full.
        """
        text = "\n".join((str(os.getpid()), *lines, "")).encode()
        os.pwrite(self._descriptor, text, 0)
        os.ftruncate(self._descriptor, len(text))

    def release(self) -> None:
        """Remove the file and let go."""
        with suppress(OSError):
            if has_name(self._descriptor, self._path):
                self._path.unlink()
        os.close(self._descriptor)


def holder(path: Path) -> int | None:
    """Return the process id of who holds the file; None where nobody does, 0 where it cannot be seen from here.

    Not for the process that holds it: to look is to let go (POSIX locks end with any close of their file).

    Raises:
        OSError: the file cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return _holder(descriptor)
    finally:
        os.close(descriptor)


def told(path: Path) -> tuple[str, ...]:
    """Return the lines that the holder has written behind the first one.

    Raises:
        OSError: the file cannot be read.
    """
    return tuple(path.read_text(errors="replace").splitlines()[1:])


def _holder(descriptor: int) -> int | None:
    question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, question))
    return None if kind == fcntl.F_UNLCK else max(0, pid)
