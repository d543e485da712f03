"""A lock lets one process at a time into a folder that many share."""

import errno
import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# What a file system says that has no locks.
WITHOUT_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


@contextmanager
def folder_lock(
    folder: Path, *, before_waiting: Callable[[], None] | None = None
) -> Iterator[None]:
    """Make the folder and hold its lock; call ``before_waiting`` where another process holds it.

    The lock goes with the process that holds it, even with a killed one. Where the file system has no locks, several
    may be at work at once.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if before_waiting is not None:
                before_waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                raise
        yield
