"""The file of a gateway's own document: held by one process, written whole, and what it replaces is kept beside it."""

import errno
import fcntl
import logging
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from kvota.files.command_name import called_anywhere
from kvota.files.whole_file import UNFINISHED, behind_links, write_whole
from kvota.model.errors import CorruptDataError, UsageError
from kvota.store.quota_document import QuotaDocument, read_document

log = logging.getLogger(__name__)

# 10,000 entities are 1 MB; a file beyond this is another one, and none is written.
BYTES_MAX = 256 * 2**20
# The document before the last alteration; used where the file itself cannot be read.
_PREVIOUS = ".previous"
# What somebody else has put there while the gateway ran.
_EDITED = ".edited"
_LOCK = ".lock"

# Inode, time of the last change in nanoseconds, size in bytes; None: there is no file.
_Stamp = tuple[int, int, int] | None


class StoreInUseError(UsageError):
    """Another process keeps its quotas there."""


class DocumentFile:
    """One file, whatever links lead to it, as this process has seen it last.

    Args:
        path: by which it is known; it need not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._target = _target_of(path)
        self._seen = _stamp_of(self._target)

    @property
    def is_another(self) -> bool:
        """Whether somebody else has written it, or taken it away, since."""
        return _stamp_of(self._target) != self._seen

    def read(self) -> QuotaDocument:
        """What is there now is seen.

        Raises:
            CorruptDataError: it is damaged.
            OSError: it cannot be read.
        """
        stamp = _stamp_of(self._target)  # before it is read: what comes meanwhile has not been seen
        document = read_file(self._target)
        self._seen = stamp
        return document

    def forget(self) -> None:
        """What is there counts as somebody else's: it has been read, and could not be put in force."""
        self._seen = None

    def write(self, document: QuotaDocument) -> None:
        """Write it; the document that it replaces is kept, too, and so is what somebody else has put there.

        Raises:
            OSError: it could not be written, and is as it was.
        """
        target = behind_links(self._path)
        if target != self._target:
            msg = f"its name leads to {target} now, and led to {self._target}: start the gateway again"
            raise OSError(errno.ESTALE, msg, str(self._path))
        before = _beside(target, _PREVIOUS + UNFINISHED)
        try:
            content = content_to_write(document, self._path)
            written = write_whole(target, content, when_complete=lambda: self._keep(before))
            # Not earlier: until now the last one is the document before.
            with suppress(OSError):
                before.replace(_beside(target, _PREVIOUS))
        finally:
            with suppress(OSError):
                before.unlink(missing_ok=True)
        self._seen = _stamp(written)

    def _keep(self, before: Path) -> None:
        if self.is_another:
            self._keep_edited()
            return
        with suppress(OSError):  # there is no file yet, or its disk has no links
            before.unlink(missing_ok=True)
            os.link(self._target, before)

    def _keep_edited(self) -> None:
        """Nobody's work is lost.

        Raises:
            OSError: it cannot be kept.
        """
        edited = _beside(self._target, _EDITED)
        if self._target.exists():
            edited.unlink(missing_ok=True)
            try:
                os.link(self._target, edited)
            except OSError:  # its disk has no links
                shutil.copy2(self._target, edited)
            log.warning(
                "%s has been written by somebody else while the gateway ran: the gateway's quotas are written there "
                "again, and what stood there is kept in %s. To take its quotas over: %s gateway import-quotas --from %s",
                self._path,
                edited,
                called_anywhere(),
                edited,
            )
        else:
            log.warning(
                "%s has been taken away while the gateway ran; it is written again", self._path
            )


def content_to_write(document: QuotaDocument, path: Path) -> bytes:
    """What is written into a file so that it can be read again.

    Raises:
        OSError: it would be larger than what is read.
    """
    content = document.content()
    if len(content) > BYTES_MAX:
        msg = (
            f"the document would have {len(content)} bytes, and more than {BYTES_MAX} are not read: "
            "remove quotas that nobody needs"
        )
        raise OSError(errno.EFBIG, msg, str(path))
    return content


def read_file(path: Path) -> QuotaDocument:
    """The document in a file.

    Raises:
        CorruptDataError: it is damaged; says why, without the name of the file.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        content = file.read(BYTES_MAX + 1)
    if len(content) > BYTES_MAX:
        msg = f"it is larger than {BYTES_MAX} bytes"
        raise CorruptDataError(msg)
    return read_document(content)


def previous_of(path: Path) -> Path:
    """Where the document before the last alteration is."""
    return _beside(_target_of(path), _PREVIOUS)


def lock_quota_file(path: Path) -> BinaryIO | None:
    """See that nobody else writes the file until this one is closed; None: its disk has no locks.

    Raises:
        StoreInUseError: somebody else does already, by whatever name.
    """
    lock = _beside(_target_of(path), _LOCK)
    file = None
    try:
        file = lock.open("ab")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        assert file is not None, "it was open"
        file.close()
        msg = f"quotas.file: another gateway keeps its quotas in {path}. Give each gateway a file of its own"
        raise StoreInUseError(msg) from None
    except OSError as error:  # what cannot be written is said again when it is to be
        log.warning("%s: %s; no other gateway may use %s", lock, error.strerror or error, path)
    return file


def _target_of(path: Path) -> Path:
    try:
        return behind_links(path)
    except OSError:  # it is said when it is read, and when it is to be written
        return path


def _beside(target: Path, ending: str) -> Path:
    return target.with_name(target.name + ending)


def _stamp_of(file: Path) -> _Stamp:
    try:
        return _stamp(file.stat())
    except OSError:
        return None


def _stamp(status: os.stat_result) -> _Stamp:
    return status.st_ino, status.st_mtime_ns, status.st_size
