"""The quotas of one gateway in a file of its own: one JSON document, there whole or as it was before."""

import asyncio
import fcntl
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from kvota.files.whole_file import write_whole
from kvota.model.broker_settings import NO_SETTINGS, SettingChanges, Settings
from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.errors import CorruptDataError, UsageError
from kvota.session.outside import Refusal, StoreQuotas
from kvota.store.quota_document import QuotaDocument, read_document
from kvota.store.quota_store import CHANGES_PER_STEP, Done, InForce, altered, nothing
from kvota.wire.error_code import ErrorCode

log = logging.getLogger(__name__)

# 10,000 entities are 1 MB; a file beyond this is another one.
_BYTES_MAX = 256 * 2**20
# The document before the last alteration; used where the file itself cannot be read.
_PREVIOUS = ".previous"
_LOCK = ".lock"

_Waiting = Sequence[tuple[StoreQuotas, Done]]


class StoreInUseError(UsageError):
    """Another process keeps its quotas there."""


class FileStore:
    """Writes the whole file for each batch of alterations; those that come meanwhile are the next batch.

    Args:
        path: the file; it need not be there yet.

    Attributes:
        problem: why the file could not be used as it is; None: it could.
        may_lag: False; nobody else alters the file.
        on_settings: called when the settings in it are others.

    Raises:
        UsageError: another gateway keeps its quotas in it.
    """

    may_lag = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = lock_quota_file(path)
        self._document, self.problem = load_quota_file(path)
        if self.problem is not None:
            log.error("%s", self.problem)
        self._in_force: InForce
        self._loop: asyncio.AbstractEventLoop
        self._waiting: list[tuple[StoreQuotas, Done]] = []
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kvota-quotas")
        self._writing: asyncio.Future[QuotaDocument] | None = None
        self._said = ""
        self.on_settings: Callable[[], None] = nothing

    @property
    def settings(self) -> Settings:
        """The gateway's own, which are kept with the quotas."""
        return self._document.settings

    @property
    def quotas(self) -> ClientQuotas:
        """Those in force."""
        return self._document.quotas

    @property
    def refusal(self) -> Refusal | None:
        """What is there and cannot be read is not overwritten."""
        if self.problem is None:
            return None
        words = f"The gateway's store of quotas must be mended first. {self.problem}"
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, words)

    def begin(self, in_force: InForce) -> None:
        """Work from now on, in the running event loop."""
        self._in_force = in_force
        self._loop = asyncio.get_running_loop()

    def alter(self, errand: StoreQuotas, done: Done) -> None:
        """Store changes; ``done`` is called when they are in force, or could not be written."""
        if self.refusal is not None:
            done(self.refusal)
            return
        self._waiting.append((errand, done))
        if self._writing is None:
            self._write()

    async def follow(self) -> None:
        """Nothing goes on."""

    async def end(self) -> None:
        """Finish writing what waits."""
        while self._writing is not None:
            await asyncio.wait([self._writing])
            await asyncio.sleep(0)  # its callback may have begun another one
        self._writer.shutdown()
        if self._lock is not None:
            self._lock.close()

    def _write(self) -> None:
        batch, self._waiting = self._waiting, []
        changes = [change for errand, _ in batch for change in errand.changes]
        settings = {name: value for errand, _ in batch for name, value in errand.settings.items()}
        self._writing = self._loop.run_in_executor(
            self._writer, write_changes, self._path, self._document, changes, settings
        )
        self._writing.add_done_callback(partial(self._written, batch, changes))

    def _written(
        self,
        batch: _Waiting,
        changes: Sequence[KeyChange],
        writing: "asyncio.Future[QuotaDocument]",
    ) -> None:
        error = writing.exception()
        if error is None:
            before, self._document = self._document, writing.result()
            self._said = ""
            if before.settings != self._document.settings:
                self.on_settings()
            self._put_in_force(batch, changes, 0)
        else:
            self._end_batch(batch, self._refusal_of(error))

    def _put_in_force(self, batch: _Waiting, changes: Sequence[KeyChange], at: int) -> None:
        """Many changes come into force in steps, so that nobody waits for them."""
        behind = at + CHANGES_PER_STEP
        self._in_force(changes[at:behind])
        if behind < len(changes):
            self._loop.call_soon(self._put_in_force, batch, changes, behind)
        else:
            self._end_batch(batch, None)

    def _end_batch(self, batch: _Waiting, refusal: Refusal | None) -> None:
        self._writing = None
        for errand, done in batch:
            if refusal is None:
                log.info("%s", altered(errand))
            done(refusal)
        if self._waiting:
            self._write()

    def _refusal_of(self, error: BaseException) -> Refusal:
        words = (
            f"The quotas could not be stored, and stay as they were: {self._path}: "
            f"{getattr(error, 'strerror', None) or error}."
        )
        if words != self._said:  # each cause once, until it works again
            self._said = words
            log.error("%s", words)
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, words)


def load_quota_file(path: Path) -> tuple[QuotaDocument, str | None]:
    """Read the file, else the document before the last alteration; also what is wrong with the file."""
    document, reason, previous = _load(path)
    if reason is None:
        return document, None
    problem = f"{path} cannot be used: {reason}."
    if previous is None:
        return document, (
            f"{problem} Nobody has a quota, and alterations are refused, until the file is mended, or "
            "taken away, and the gateway started again."
        )
    return document, (
        f"{problem} In force are the {len(document.quotas)} entities of {previous}, as they were before "
        f"the last alteration; alterations are refused. Put a good copy in place of {path}, e.g. that "
        "one, and start the gateway again."
    )


def load_snapshot(path: Path) -> tuple[QuotaDocument, str | None]:
    """Read the file that has what a topic has had last, as ``load_quota_file`` does."""
    document, reason, previous = _load(path)
    if reason is None:
        return document, None
    held = (
        "nobody has a quota"
        if previous is None
        else f"the {len(document.quotas)} entities of {previous} are in force, which are older"
    )
    return document, (
        f"{path} cannot be used: {reason}. Until the topic has been read {held}; then the file is written "
        "anew. If the cluster stays away, put a good copy in its place, e.g. another gateway's, and "
        "start the gateway again."
    )


def _load(path: Path) -> tuple[QuotaDocument, str | None, Path | None]:
    """The document, why it is not the file's own, and which one it is then; no path: none could be read."""
    try:
        return _read(path), None, None
    except FileNotFoundError:
        return QuotaDocument(), None, None
    except (CorruptDataError, OSError) as error:
        reason = str(getattr(error, "strerror", None) or error)
    previous = path.with_name(path.name + _PREVIOUS)
    try:
        return _read(previous), reason, previous
    except (CorruptDataError, OSError):
        return QuotaDocument(), reason, None


def _read(path: Path) -> QuotaDocument:
    with path.open("rb") as file:
        content = file.read(_BYTES_MAX + 1)
    if len(content) > _BYTES_MAX:
        msg = f"it is larger than {_BYTES_MAX} bytes"
        raise CorruptDataError(msg)
    return read_document(content)


def write_changes(
    path: Path,
    before: QuotaDocument,
    changes: Sequence[KeyChange],
    settings: SettingChanges = NO_SETTINGS,
) -> QuotaDocument:
    """Write the document after these changes, and return it; the one before is kept beside it.

    Raises:
        OSError: it could not be written, and is as it was.
    """
    after = before.with_changes(changes, settings)
    previous = path.with_name(path.name + _PREVIOUS)
    linking = path.with_name(path.name + _PREVIOUS + ".tmp")
    with suppress(OSError):  # there is no file yet, or its disk has no links
        linking.unlink(missing_ok=True)
        os.link(path, linking)
        linking.replace(previous)
    write_whole(path, after.content())
    return after


def lock_quota_file(path: Path) -> BinaryIO | None:
    """See that nobody else writes the file until this one is closed; None: its disk has no locks.

    Raises:
        StoreInUseError: somebody else does already.
    """
    lock = path.with_name(path.name + _LOCK)
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
