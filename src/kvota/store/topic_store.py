"""Quotas that several gateways share: a compacted topic has them, and each gateway follows it.

The topic is the truth. What it has had last is kept in a file, too, for a start without the cluster.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from uuid import UUID

from kvota.client.record_batches import Row, Unread
from kvota.files.whole_file import write_whole
from kvota.model.broker_settings import SettingChanges, Settings, with_changes
from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.clock import Clock
from kvota.session.outside import Refusal, StoreQuotas
from kvota.store.document_file import content_to_write
from kvota.store.file_store import load_snapshot
from kvota.store.quota_document import QuotaDocument
from kvota.store.quota_rows import (
    Changes,
    EncodedRow,
    LastRows,
    LeftOut,
    changes_of,
    encode_rows,
    encode_settings,
)
from kvota.store.quota_store import CHANGES_PER_STEP, Done, InForce, computed, differing, nothing
from kvota.store.quota_topic import QuotaTopic, TopicError, size_bytes
from kvota.store.topic_writer import RETRY_S, TopicWriter, Trouble, is_final
from kvota.store.unread_alterations import Stored, is_any_elsewhere, missing
from kvota.wire.error_code import ErrorCode

log = logging.getLogger(__name__)

# Between two attempts to read what somebody has to mend, or a fault of ours to follow it.
_MENDED_S = 5.0
# Between two attempts to reach the cluster: whoever has a new leader has to be followed within a second.
_RETRY_S_MAX = 0.5
# So often a topic must be missing before it counts as gone: a broker that has just started knows little.
_MISSING_TIMES = 3
# Who has made the topic may take so long to put quotas into it.
_FILLED_S = 2.0
# So often it is looked whether another topic has taken its name.
_LOOK_S = 10.0
# A leader may be out of reach for so long before it is said: brokers take 9 s to see that one is dead.
_OUT_OF_REACH_S = 12.0
# Of rows that cannot be read, and of what is kept, so many are named.
_REASONS_MAX = 20
_SNAPSHOT_S = 1.0


class TopicStore:
    """Appends alterations to the topic, and puts in force what comes from it, its own among them.

    Args:
        topic: where the quotas are.
        snapshot: the file with what the topic has had last.
        clock: rows carry its time.

    Attributes:
        quotas: those in force.
        settings: the gateway's own, which are kept with them.
        may_lag: True; other gateways append to the topic, too.
        on_settings: called when the settings are others.
    """

    may_lag = True

    def __init__(self, topic: QuotaTopic, snapshot: Path, *, clock: Clock) -> None:
        self._topic = topic
        self._writer = TopicWriter(topic, clock=clock)
        self._snapshot = snapshot
        document, problem = load_snapshot(snapshot)
        if problem is not None:
            log.error("%s", problem)
        self.quotas = document.quotas
        self.settings: Settings = document.settings
        self.on_settings: Callable[[], None] = nothing
        self._why_not: str | None = "it has not been read yet"
        self._in_force: InForce
        self._offset = 0  # of the next row
        self._has_followed = False
        self._followed: UUID | None = None
        self._is_made_here = False  # and has not been read since
        self._changed = asyncio.Event()
        self._writing: asyncio.Future[None] | None = None
        self._said: dict[str, None] = {}

    @property
    def refusal(self) -> Refusal | None:
        """Nothing is appended to what cannot be read."""
        if self._why_not is None:
            return None
        words = f"The gateway's quotas are in topic {self._topic.name}: {self._why_not}."
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, words)

    def begin(self, in_force: InForce) -> None:
        """Work from now on, in the running event loop."""
        self._in_force = in_force
        log.info(
            "quotas of topic %s: until it has been read those of %d entities are in force, from %s",
            self._topic.name,
            len(self.quotas),
            self._snapshot,
        )

    def alter(self, errand: StoreQuotas, done: Done) -> None:
        """Append changes; ``done`` is called when they are in force, or could not be appended."""
        if self.refusal is not None:
            done(self.refusal)
        else:
            self._writer.want(errand, done)

    async def follow(self) -> None:
        """Read and write the topic until cancelled."""
        while True:
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._follow())
                    tasks.create_task(self._writer.run())
                    tasks.create_task(self._keep_snapshot())
            except* Exception as group:  # a fault of ours must not end the traffic
                log.exception("topic %s cannot be followed", self._topic.name)
                self._why_not = f"it cannot be followed: {group.exceptions[0]!r}"
                self._writer.is_lost()
            await asyncio.sleep(_MENDED_S)

    async def end(self) -> None:
        """Let go of the cluster, and keep what was in force last."""
        await self._topic.close()
        if self._writing is not None:
            await asyncio.wait([self._writing])  # what is older must not be written last
        if self._changed.is_set():
            await self._write_snapshot()

    # ------------------------------------------------------------------ reading

    async def _follow(self) -> None:
        while True:
            pause_s = _RETRY_S_MAX
            try:
                await self._load()
                await self._read_on(self._followed)
                self._cannot("it is gone, or another topic has its name")
                pause_s = RETRY_S
            except TopicError as error:
                self._cannot(str(error))
                pause_s = _MENDED_S
            except Trouble as error:
                self._cannot(f"it cannot be read: {error}")
            await asyncio.sleep(pause_s)

    async def _load(self) -> None:
        """Read all of the topic, which is made where it is missing; then it is what is in force.

        Raises:
            TopicError: quotas cannot be kept in it.
            UnreachableError: the cluster does not answer.
            BrokerError: it refuses.
        """
        await self._see_that_it_is_there()
        topic_id = self._topic.topic_id
        rows, offset = await self._all_rows()
        if (
            self._is_new(topic_id, offset)
            and not self._is_made_here
            and any(rows.lacking(*self._held()))
        ):
            await asyncio.sleep(_FILLED_S)  # who has made it is quicker
            rows, offset = await self._all_rows()
        if self._is_new(topic_id, offset):
            found, settings = await self._filled(rows)
        else:
            found, settings = await self._found(rows)
        await self._append_missing(topic_id, found, settings)
        await self._put_in_force(await computed(len(found), self.quotas.changes_to, found))
        self._put_settings(settings)
        self._has_followed, self._followed, self._is_made_here = True, topic_id, False
        self._writer.begin(topic_id)
        self._is_in_force_to(offset)
        self._can(f"has been read: quotas of {len(found)} entities are in force")

    async def _see_that_it_is_there(self) -> None:
        """Make it where it is missing."""
        size = 0
        if await self._is_missing():
            self._say_once(
                f"there is no topic {self._topic.name}", "%s; it is made", logging.WARNING
            )
            # What is in force goes into it as one batch: half of it would be taken for all there is.
            size = size_bytes(await _encoded(*LastRows().lacking(*self._held())))
        if await self._topic.find_or_make(batch_bytes=size):
            self._is_made_here = True

    def _is_new(self, topic_id: UUID | None, end: int) -> bool:
        """Whether the rows in it may be less than there was: somebody has deleted it, or nothing was ever in it."""
        if self._is_made_here or end == 0:
            return True
        # Brokers before 2.8 tell of no id.
        return self._has_followed and (topic_id != self._followed or end < self._offset)

    def _held(self) -> tuple[ClientQuotas, Settings]:
        """What is in force, and what is stored besides and was not read back before the topic was gone."""
        return self._writer.unread.on_top_of(self.quotas, self.settings)

    async def _filled(self, rows: LastRows) -> tuple[ClientQuotas, Settings]:
        """Put what is held, and no row tells of, into it, for all who follow it; returns what it says then."""
        held, held_settings = self._held()
        changes, settings = rows.lacking(held, held_settings)
        if changes or settings:
            log.warning(
                "topic %s is new: the quotas of %d entities that are in force are put into it: %s",
                self._topic.name,
                len({change.entity for change in changes}),
                _named([*(f"{key} of {entity}" for entity, key, _ in changes), *settings]),
            )
            await self._writer.append(await _encoded(changes, settings))
        told = rows.changes()
        found = await computed(len(told), held.with_changes, told)
        return found, rows.laid_over(held_settings)

    async def _append_missing(
        self, topic_id: UUID | None, found: ClientQuotas, settings: Settings
    ) -> None:
        """Whoever has made the topic anew may not have had what was answered here last: it gets that, too."""
        unread = self._writer.unread.all
        if not unread:
            return
        _, end = await self._topic.bounds()
        if not is_any_elsewhere(unread, topic_id, end):
            return  # they are read next
        before = self.quotas, self.settings
        lacks = await asyncio.to_thread(missing, unread, (found, settings), before)
        rows = await _encoded(*lacks)
        stored = None
        if rows:
            log.warning(
                "topic %s is another one, without %d values of quotas and settings that were stored here last: they "
                "are put into it",
                self._topic.name,
                len(rows),
            )
            last = await self._writer.append(rows)
            stored = Stored(
                topic_id=topic_id, last=last, quotas=lacks.quotas, settings=lacks.settings
            )
        self._writer.unread.replace(unread, stored)

    async def _all_rows(self) -> tuple[LastRows, int]:
        """What is in it now, and the offset behind."""
        rows = LastRows()
        _, offset = await self._topic.bounds()
        async for decoded in self._topic.all_rows():
            left_out = await computed(len(decoded.rows), rows.add, decoded.rows)
            self._say_left_out(left_out)
            offset = decoded.next_offset
        return rows, offset

    async def _found(self, rows: LastRows) -> tuple[ClientQuotas, Settings]:
        """What the rows say; a quota of which none can be read stays as it is, whoever has written them."""
        kept = rows.kept(self.quotas)
        if kept:
            log.error(
                "topic %s: no row of %d quotas can be read; they stay as they were last: %s",
                self._topic.name,
                len(kept),
                _named([f"{key} of {entity}" for entity, key, _ in kept]),
            )
        changes = [*kept, *rows.changes()]
        found = await computed(len(changes), ClientQuotas().with_changes, changes)
        return found, rows.settings(self.settings)

    async def _is_missing(self) -> bool:
        for _ in range(_MISSING_TIMES):
            if await self._topic.find():
                return False
            await asyncio.sleep(RETRY_S)
        return True

    async def _read_on(self, topic_id: UUID | None) -> None:
        """Put in force what comes, until another topic than this one has its name, or none.

        Raises:
            UnreachableError: it has been out of reach for long.
            BrokerError: it is gone, or refused.
        """
        loop = asyncio.get_running_loop()
        read_s = looked_s = loop.time()
        while True:
            try:
                if loop.time() - looked_s > _LOOK_S:
                    looked_s = loop.time()
                    if not await self._topic.find():
                        return
                if self._topic.topic_id != topic_id:
                    return  # another one has its name
                rows, next_offset = await self._topic.read(self._offset)
            except Trouble as error:
                if is_final(error) or loop.time() - read_s > _OUT_OF_REACH_S:
                    raise
                looked_s = float("-inf")
                await asyncio.sleep(RETRY_S)
                continue
            read_s = loop.time()
            if next_offset > self._offset:
                changes = await self._changes(rows)
                await self._put_in_force(changes.quotas)
                self._put_settings(with_changes(self.settings, changes.settings))
                self._is_in_force_to(next_offset)

    async def _changes(self, rows: Sequence[Row | Unread]) -> Changes:
        work = partial(changes_of, known=self._writer.known)
        changes, left_out = await computed(len(rows), work, rows)
        self._say_left_out(left_out)
        return changes

    async def _put_in_force(self, changes: Sequence[KeyChange]) -> None:
        """Whoever describes quotas, or keeps them, has all of these changes from now on; clients soon after."""
        work = partial(differing, self.quotas)
        altered, self.quotas = await computed(len(changes), work, changes)
        for at in range(0, len(altered), CHANGES_PER_STEP):
            self._in_force(altered[at : at + CHANGES_PER_STEP])
            self._changed.set()
            await asyncio.sleep(0)

    def _is_in_force_to(self, offset: int) -> None:
        self._offset = offset
        self._writer.is_in_force_to(offset)

    def _put_settings(self, settings: Settings) -> None:
        if settings != self.settings:
            self.settings = settings
            self._changed.set()
            self.on_settings()

    # ------------------------------------------------------------------ the snapshot

    async def _keep_snapshot(self) -> None:
        while True:
            await self._changed.wait()
            await self._write_snapshot()
            await asyncio.sleep(_SNAPSHOT_S)

    async def _write_snapshot(self) -> None:
        self._changed.clear()
        quotas, settings = self.quotas, self.settings
        self._writing = asyncio.get_running_loop().run_in_executor(
            None, _write, self._snapshot, quotas, settings
        )
        try:
            await asyncio.shield(self._writing)  # begun is done: it counts as kept
        except OSError as error:
            reason = f"{self._snapshot} cannot be written: {error.strerror or error}"
            self._say_once(reason, "%s; a start without the cluster would have older quotas")

    # ------------------------------------------------------------------ what is said

    def _can(self, what: str) -> None:
        self._why_not = None
        self._said.clear()
        log.info("topic %s %s", self._topic.name, what)

    def _cannot(self, why: str) -> None:
        """What is in force stays; alterations are refused."""
        self._why_not = why
        self._writer.is_lost()
        self._say_once(why, "%s. The quotas in force stay, and alterations are refused meanwhile")

    def _say_left_out(self, left_out: Sequence[LeftOut]) -> None:
        for offset, reason, _ in left_out:
            if reason not in self._said and len(self._said) < _REASONS_MAX:
                self._said[reason] = None
                log.error("topic %s: row %d is left out: %s", self._topic.name, offset, reason)

    def _say_once(self, reason: str, words: str, level: int = logging.ERROR) -> None:
        if reason not in self._said:
            self._said[reason] = None
            log.log(level, words, reason)


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:_REASONS_MAX]) + (", …" if len(names) > _REASONS_MAX else "")


async def _encoded(quotas: Sequence[KeyChange], settings: SettingChanges) -> list[EncodedRow]:
    return await computed(len(quotas), encode_rows, quotas) + encode_settings(settings)


def _write(path: Path, quotas: ClientQuotas, settings: Settings) -> None:
    write_whole(path, content_to_write(QuotaDocument(quotas, settings), path))
