"""The quotas of one gateway in a file of its own: one JSON document, there whole or as it was before."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from kvota.model.broker_settings import NO_SETTINGS, SettingChanges, Settings
from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.errors import CorruptDataError, UsageError
from kvota.session.outside import Refusal, StoreQuotas
from kvota.store.document_file import DocumentFile, lock_quota_file, previous_of, read_file
from kvota.store.quota_document import QuotaDocument
from kvota.store.quota_store import CHANGES_PER_STEP, Done, InForce, altered, nothing
from kvota.wire.error_code import ErrorCode

log = logging.getLogger(__name__)

_Waiting = Sequence[tuple[StoreQuotas, Done]]


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
        self._file = DocumentFile(path)
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

    async def read_again(self) -> str | None:
        """Put in force what somebody else has written into the file; says what was done, None: nobody has.

        Raises:
            UsageError: it cannot be in force; says why. What is in force stays.
        """
        if self.problem is not None:
            return None  # it is to be mended, and the gateway started again
        try:
            found = await self._loop.run_in_executor(self._writer, self._edited)
        except (CorruptDataError, OSError) as error:
            msg = (
                f"{self._path} has been written by somebody else, and cannot be used: "
                f"{getattr(error, 'strerror', None) or error}. Its quotas in force stay, and the next alteration "
                "writes them there again"
            )
            raise UsageError(msg) from None
        if found is None:
            return None
        changes = self.quotas.changes_to(found.quotas)
        names = {**self.settings, **found.settings}
        settings = {
            name: after
            for name in names
            if (after := found.settings.get(name)) != self.settings.get(name)
        }
        done: asyncio.Future[Refusal | None] = self._loop.create_future()
        self.alter(StoreQuotas(changes, f"hand in {self._path}", settings), done.set_result)
        refusal = await done
        if refusal is not None:
            self._file.forget()
            raise UsageError(str(refusal.message))
        return (
            f"{self._path} has been written by somebody else: {len(changes)} values of quotas and "
            f"{len(settings)} settings are others"
        )

    def _edited(self) -> QuotaDocument | None:
        return self._file.read() if self._file.is_another else None

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
            self._writer, write_changes, self._file, self._document, changes, settings
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
            are_settings_others = before.settings != self._document.settings
            self._put_in_force(batch, changes, 0, are_settings_others=are_settings_others)
        else:
            self._end_batch(batch, self._refusal_of(error))

    def _put_in_force(
        self,
        batch: _Waiting,
        changes: Sequence[KeyChange],
        at: int,
        *,
        are_settings_others: bool = False,
    ) -> None:
        """Many changes come into force in steps, so that nobody waits for them."""
        behind = at + CHANGES_PER_STEP
        try:
            if are_settings_others:
                self.on_settings()
            self._in_force(changes[at:behind])
        except Exception as error:  # a fault of ours must not end the store
            words = (
                f"The quotas are stored in {self._path}, and not all of them are in force: {error!r}. "
                "Start the gateway again"
            )
            log.exception("%s", words)
            self._end_batch(batch, Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"{words}."))
            return
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
    anew = "" if path.exists() else f" To begin without quotas take {previous} away, too."
    return document, (
        f"{problem} In force are the {len(document.quotas)} entities of {previous}, as they were before "
        f"the last alteration; alterations are refused. Put a good copy in place of {path}, e.g. that "
        f"one, and start the gateway again.{anew}"
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
    is_missing = False
    try:
        return read_file(path), None, None
    except FileNotFoundError:
        is_missing, reason = True, "it is not there"
    except (CorruptDataError, OSError) as error:
        reason = str(getattr(error, "strerror", None) or error)
    previous = previous_of(path)
    try:
        return read_file(previous), reason, previous
    except FileNotFoundError:
        # Without the one before there has been none yet.
        return QuotaDocument(), None if is_missing else reason, None
    except (CorruptDataError, OSError) as error:
        if is_missing:
            why = getattr(error, "strerror", None) or error
            reason = f"{reason}, and {previous} cannot be read: {why}"
        return QuotaDocument(), reason, None


def write_changes(
    file: DocumentFile,
    before: QuotaDocument,
    changes: Sequence[KeyChange],
    settings: SettingChanges = NO_SETTINGS,
) -> QuotaDocument:
    """Write the document after these changes, and return it; the one before is kept beside it.

    Raises:
        OSError: it could not be written, and is as it was.
    """
    after = before.with_changes(changes, settings)
    file.write(after)
    return after
