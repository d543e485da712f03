"""Alterations on their way into a topic: each is there whole or not at all, and then in force, or its client is told why not."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from kvota.client import BrokerError
from kvota.client.producer_state import NO_PRODUCER, ProducerState
from kvota.client.record_batches import encode_batch
from kvota.model.clock import Clock
from kvota.model.errors import KvotaError, ProtocolError, UnreachableError
from kvota.session.outside import Refusal, StoreQuotas
from kvota.store.quota_rows import EncodedRow, KnownRows, encode_rows, encode_settings
from kvota.store.quota_store import CHANGES_PER_STEP, Done, altered
from kvota.store.quota_topic import QuotaTopic, TooLargeError, TopicError, size_bytes
from kvota.store.unread_alterations import Stored, UnreadAlterations
from kvota.wire.error_code import ErrorCode

log = logging.getLogger(__name__)

# Between two attempts to reach the topic.
RETRY_S = 0.2
# An alteration may take so long to be appended; and so long to come back, once it is.
_APPEND_S, _BACK_S = 20.0, 10.0
# Small alterations that wait go together; they are refused for the same reasons.
_TOGETHER_BYTES_MAX = 65_536

Trouble = (UnreachableError, BrokerError, ProtocolError)
_ANOTHER = "another topic has its name"
_LACKS_PRODUCER = (
    "the gateway's own user lacks IDEMPOTENT_WRITE on the cluster, so the topic could have it twice"
)
_FINAL = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_OUT_OF_RANGE})
# A broker has forgotten who has sent the batch before, e.g. after days; it has not taken this one.
_FORGOTTEN = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


class _Alteration(NamedTuple):
    errand: StoreQuotas
    done: Done
    rows: Sequence[EncodedRow]


class TopicWriter:
    """Appends what is wanted, a record batch for each alteration: brokers take a batch whole or not at all.

    Args:
        topic: where to.
        clock: rows carry its time.

    Attributes:
        known: what the rows say that are being appended, so that nobody has to read them when they come back.
        unread: what the topic has taken, and has not come back.
    """

    def __init__(self, topic: QuotaTopic, *, clock: Clock) -> None:
        self._topic = topic
        self._clock = clock
        self._wanted: deque[tuple[StoreQuotas, Done]] = deque()
        self._is_wanted = asyncio.Event()
        self._taken: _Alteration | None = None
        self._followed: UUID | None = None
        self._in_force_to = 0  # the next offset
        self._is_followed = False
        self._is_doubtful = False  # after a failure it may be gone
        # None: not known, or what became of its last batch is not.
        self._producer: ProducerState | None = None
        self._moved = asyncio.Event()
        self.known: KnownRows = {}
        self.unread = UnreadAlterations()

    def want(self, errand: StoreQuotas, done: Done) -> None:
        """Append it; ``done`` is called when it is in force, or in the topic and cannot be read back, or not there."""
        self._wanted.append((errand, done))
        self._is_wanted.set()

    def begin(self, topic_id: UUID | None) -> None:
        """This topic is followed now; offsets of another one mean nothing in it."""
        self._is_followed, self._followed, self._in_force_to = True, topic_id, 0

    def is_in_force_to(self, offset: int) -> None:
        """What stands before this offset of it counts now."""
        self._in_force_to = offset
        self.unread.read_to(self._followed, offset)
        self._moved.set()

    def is_lost(self) -> None:
        """The topic cannot be followed: nobody waits for what may not come back, and nothing is appended."""
        self._is_followed, self._in_force_to = False, 0
        self._moved.set()

    async def run(self) -> None:
        """Append until cancelled."""
        while True:
            together: list[_Alteration] = []
            refusal: Refusal | None = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, None)
            try:
                await self._take_next(together)
                refusal = await self._append(together)
            finally:  # whatever becomes of us, nobody waits for good
                self.known = {}
                for errand, done, _ in together:
                    if refusal is None:
                        log.info("%s", altered(errand))
                    done(refusal)

    async def append(self, rows: Sequence[EncodedRow]) -> int:
        """Append rows as one batch; returns the last one's offset.

        Raises:
            TooLargeError: the topic does not take as many at once.
            UnreachableError: it cannot be reached, or the answer was lost: they may be there or not.
            BrokerError: it is refused.
        """
        return await self._topic.append(await self._batch(rows, NO_PRODUCER), len(rows))

    # ------------------------------------------------------------------ one after the other

    async def _take_next(self, together: list[_Alteration]) -> None:
        """Take the next one, and those behind it while all of them are small."""
        together.append(await self._next())
        size = size_bytes(together[0].rows)
        most = min(_TOGETHER_BYTES_MAX, self._topic.batch_bytes_max)
        while self._wanted and size < most:
            alteration = await self._next()
            size += size_bytes(alteration.rows)
            if size > most:
                self._taken = alteration
                break
            together.append(alteration)

    async def _next(self) -> _Alteration:
        if self._taken is not None:
            taken, self._taken = self._taken, None
            return taken
        while not self._wanted:
            self._is_wanted.clear()
            await self._is_wanted.wait()
        errand, done = self._wanted.popleft()
        try:
            if len(errand.changes) > CHANGES_PER_STEP:
                rows = await asyncio.to_thread(encode_rows, errand.changes)
            else:
                rows = encode_rows(errand.changes)
        except BaseException:
            done(Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, None))
            raise
        return _Alteration(errand, done, rows + encode_settings(errand.settings))

    async def _append(self, together: Sequence[_Alteration]) -> Refusal | None:
        """Append them, and wait until they are in force; returns why that failed."""
        rows = [row for alteration in together for row in alteration.rows]
        self.known = {
            row: change
            for errand, _, of_errand in together
            for row, change in zip(of_errand, errand.changes, strict=False)  # settings stand behind
        }
        try:
            topic_id, last = await self._append_at_last(rows)
        except KvotaError as error:
            words = f"The quotas could not be stored in topic {self._topic.name}: {error}."
            log.error("%s", words)  # noqa: TRY400  (its text says all)
            is_too_large = isinstance(error, TooLargeError)
            code = ErrorCode.POLICY_VIOLATION if is_too_large else ErrorCode.UNKNOWN_SERVER_ERROR
            return Refusal(code, words)
        if topic_id == self._followed and last < self._in_force_to:
            return None  # they have come back before the broker's answer
        stored = Stored(
            topic_id=topic_id,
            last=last,
            quotas=[change for errand, _, _ in together for change in errand.changes],
            settings={
                name: text for each in together for name, text in each.errand.settings.items()
            },
        )
        self.unread.add(stored)
        with suppress(TimeoutError):
            async with asyncio.timeout(_BACK_S):
                while stored in self.unread and self._is_followed:
                    self._moved.clear()
                    await self._moved.wait()
        if stored in self.unread:
            log.warning(
                "altered quotas are in topic %s, and not in force here yet: it cannot be read. They are as soon as it "
                "is, or another one is made in its place",
                self._topic.name,
            )
        return None

    async def _batch(self, rows: Sequence[EncodedRow], producer: ProducerState) -> bytes:
        now_ms = self._clock.now_us() // 1000
        if len(rows) > CHANGES_PER_STEP:
            return await asyncio.to_thread(encode_batch, rows, now_ms=now_ms, producer=producer)
        return encode_batch(rows, now_ms=now_ms, producer=producer)

    async def _append_at_last(self, rows: Sequence[EncodedRow]) -> tuple[UUID | None, int]:
        """Append; a broker that has gone gives way to another one. Returns the topic's id, and the last row's offset.

        Where an answer was lost the same batch is sent again, and brokers take it once: a second one behind what another
        gateway has appended meanwhile would undo that.

        Raises:
            KvotaError: it could not be appended; says so where it may be there all the same.
        """
        tries = _Tries()
        try:
            return await asyncio.wait_for(self._append_to_followed(rows, tries), _APPEND_S)
        except TimeoutError:
            words = f"it has not taken them in {_APPEND_S:g} s"
            told = UnreachableError(words if tries.error is None else f"{words} ({tries.error})")
            raise tries.told(told) from None
        except KvotaError as error:
            self._is_doubtful = not isinstance(error, TooLargeError)
            raise tries.told(error) from None

    async def _append_to_followed(
        self, rows: Sequence[EncodedRow], tries: "_Tries"
    ) -> tuple[UUID | None, int]:
        await self._see_that_it_is_followed()
        next_offset = self._in_force_to
        while True:
            followed = self._followed
            last = await self._try(rows, next_offset, tries)
            if last is not None:
                return followed, last
            await self._wait_until_followed()

    async def _try(
        self, rows: Sequence[EncodedRow], next_offset: int, tries: "_Tries"
    ) -> int | None:
        """Append once; None: it may succeed another time. No topic that is followed has it before ``next_offset``.

        Raises:
            KvotaError: it will not.
        """
        might, followed = tries.may_be_there, self._followed
        try:
            if tries.batch is None:
                tries.producer, self._producer = await self._next_producer(), None
                tries.batch = await self._batch(rows, tries.producer)
            tries.may_be_there = True  # until it is known that it is not
            last = await self._topic.append(tries.batch, len(rows))
        except (*Trouble, TopicError) as error:
            tries.error = error
            if _is_refused_whole(error):
                tries.may_be_there = might
            if _is_forgotten(error) and not might:
                tries.batch = None
            elif is_final(error):
                raise
            elif tries.may_be_there and tries.producer == NO_PRODUCER:
                msg = f"{error}. It was not tried again: {_LACKS_PRODUCER}"
                raise UnreachableError(msg) from error
            return None
        # Brokers know it by its name alone.
        if last - len(rows) + 1 < next_offset or self._topic.topic_id != followed:
            raise TopicError(_ANOTHER)
        self._producer = tries.producer.behind(len(rows))
        return last

    async def _next_producer(self) -> ProducerState:
        if self._producer is None or self._producer.producer_id < 0:
            return await self._topic.new_producer()
        return self._producer

    async def _wait_until_followed(self) -> None:
        """Look for its leader, until whoever reads the topic has one, too.

        Raises:
            TopicError: another topic is followed, or found.
        """
        followed = self._followed
        while True:
            await asyncio.sleep(RETRY_S)
            with suppress(*Trouble):  # until the time is over
                await self._topic.find()
            if self._followed != followed or self._topic.topic_id != followed:
                raise TopicError(_ANOTHER)
            if self._is_followed:
                return

    async def _see_that_it_is_followed(self) -> None:
        """What is not the topic that is followed is not appended to: its rows would be taken for all there is.

        Raises:
            KvotaError: it is not, or cannot be looked for.
        """
        if self._is_doubtful:
            if not await self._topic.find():
                msg = "it is gone"
                raise TopicError(msg)
            self._is_doubtful = False
        if self._topic.topic_id != self._followed:
            raise TopicError(_ANOTHER)
        if not self._is_followed:
            msg = "it cannot be followed at the moment"
            raise TopicError(msg)


@dataclass(slots=True)
class _Tries:
    """What is known of a batch while it is tried to append it.

    Attributes:
        error: of the last try.
        may_be_there: whether one of them may have succeeded.
        producer: whose batch it is, so that brokers know it again.
        batch: what is sent, the same each time; None: it is still to be made.
    """

    error: KvotaError | None = None
    may_be_there: bool = False
    producer: ProducerState = NO_PRODUCER
    batch: bytes | None = None

    def told(self, error: KvotaError) -> KvotaError:
        """What is told when this has ended them."""
        if not self.may_be_there:
            return error
        msg = f"{error}. Describe them to see whether it has them: it has all of them or none"
        return UnreachableError(msg)


def _is_refused_whole(error: Exception) -> bool:
    """True where a broker has appended nothing; after any other error it may have."""
    return is_final(error) or (
        isinstance(error, BrokerError) and error.code == ErrorCode.NOT_ENOUGH_REPLICAS
    )


def _is_forgotten(error: Exception) -> bool:
    return isinstance(error, BrokerError) and error.code in _FORGOTTEN


def is_final(error: Exception) -> bool:
    """True where trying again does not help."""
    if isinstance(error, TopicError):
        return True
    return isinstance(error, BrokerError) and (error.code in _FINAL or not error.is_retriable)
