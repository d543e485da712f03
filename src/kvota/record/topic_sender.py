"""A thread appends blocks of events to a topic; what the cluster does not take in time is counted and dropped."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
from crc32c import crc32c

from kvota.client.broker_error import BrokerError
from kvota.client.cluster import Cluster
from kvota.client.producer_state import NO_PRODUCER, ProducerState
from kvota.client.record_batches import encode_batch
from kvota.client.topic_log import TopicLog
from kvota.model.clock import Clock
from kvota.model.errors import KvotaError, UnreachableError
from kvota.record.event_block import block_bytes, halves, read_block
from kvota.record.record_limits import RecordLimits, TopicStatus
from kvota.record.row_batch import ROW_BYTES
from kvota.wire.error_code import ErrorCode

logger = logging.getLogger(__name__)

# As the brokers' quotas see who writes the record.
CLIENT_ID = "kvota-record"

# A block has so many rows and bytes at most; brokers take 1 MiB at once unless told otherwise.
BLOCK_ROWS = 10_000
BLOCK_BYTES_MAX = 900_000

# Between two attempts while the cluster is away; longer where somebody has to mend something.
_RETRY_S, _MENDED_S = 0.5, 5.0
# What ends sooner is not worth a line in the log: a leader that changes.
_SAID_AFTER_S = 3.0
# A topic that has just been made may not be known to every broker for so long.
_LOOKS, _LOOK_S = 50, 0.2

# A broker has forgotten who has sent the block before; it has not taken this one.
_FORGOTTEN = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)


@dataclass(frozen=True, slots=True)
class _Block:
    """Some rows as they are sent."""

    rows: int
    value: bytes

    @classmethod
    def of(cls, table: pa.Table) -> Self:
        return cls(table.num_rows, block_bytes(table))


class TopicSender:
    """Appends what is put in, in its order, each block once; several threads may ask how it stands.

    Blocks wait in memory, as many bytes as the rows of ``buffer_rows`` take before they are packed. When there is
    no room, rows are dropped and counted; whoever puts them in never waits.

    Args:
        topic: its name; where there is none it is made.
        make_cluster: makes a client of the cluster, with the gateway's own login.
        limits: of the record; they say, too, how much a topic keeps that is made here.
        key: all blocks of one key go to the same partition.
        clock: blocks carry its time.
    """

    def __init__(
        self,
        topic: str,
        make_cluster: Callable[[], Cluster],
        *,
        limits: RecordLimits,
        key: str,
        clock: Clock,
    ) -> None:
        self.topic = topic
        self.rows_written = 0
        self.rows_dropped = 0
        self.last_error: str | None = None
        self.is_failing = False
        self._make_cluster = make_cluster
        self._limits = limits
        self._key = key.encode()
        self._clock = clock
        self._waiting: deque[_Block] = deque()
        self._waiting_bytes = 0
        self._bytes_max = limits.buffer_rows * ROW_BYTES
        self._lock = threading.Lock()  # of what waits, and of what is counted
        self._is_closing = False
        self._given_up = False
        self._dropped_said = 0
        self._failing_since_s: float | None = None
        self._partition: int | None = None
        self._producer: ProducerState | None = None
        self._is_found = False
        self._batch: bytes | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_wanted: asyncio.Event
        # The interpreter does not join it: a cluster that hangs must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="kvota-record-topic", daemon=True)

    def status(self) -> TopicStatus:
        """Tell how it stands; any thread may ask."""
        return TopicStatus(
            is_up=self._thread.is_alive() and not self.is_failing,
            rows_written=self.rows_written,
            rows_dropped=self.rows_dropped,
            last_error=self.last_error,
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, table: pa.Table) -> None:
        """Take rows (of ``event_schema.WRITE_SCHEMA``), or count them as dropped; never waits for the cluster."""
        for begin in range(0, table.num_rows, BLOCK_ROWS):
            self._put(table.slice(begin, BLOCK_ROWS))
        self._awaken()

    def drop(self, rows: int) -> None:
        """Count rows that no block can hold."""
        with self._lock:
            self.rows_dropped += rows

    def finish(self, *, timeout_s: float) -> bool:
        """Send what waits, no longer than that; False if some did not get there, which is counted as dropped."""
        self._is_closing = True
        self._awaken()
        self._thread.join(timeout_s)
        with self._lock:
            self._given_up = True
            left = sum(block.rows for block in self._waiting)
            self._waiting.clear()
            self.rows_dropped += left
        return not left

    # ------------------------------------------------------------------ what waits

    def _put(self, table: pa.Table) -> None:
        block = _Block.of(table)
        if len(block.value) > BLOCK_BYTES_MAX and block.rows > 1:
            for half in halves(table):
                self._put(half)
            return
        with self._lock:
            if self._given_up or self._waiting_bytes + len(block.value) > self._bytes_max:
                self.rows_dropped += block.rows
                return
            self._waiting.append(block)
            self._waiting_bytes += len(block.value)

    def _first(self) -> _Block | None:
        with self._lock:
            return self._waiting[0] if self._waiting else None

    def _replace_first(
        self, blocks: Sequence[_Block] = (), *, written: int = 0, dropped: int = 0
    ) -> None:
        """What was first waits no more, but for these."""
        with self._lock:
            if self._given_up:
                return  # its rows are counted already
            self._waiting_bytes -= len(self._waiting.popleft().value)
            self._waiting.extendleft(reversed(blocks))
            self._waiting_bytes += sum(len(block.value) for block in blocks)
            self.rows_written += written
            self.rows_dropped += dropped

    def _awaken(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended meanwhile
                self._loop.call_soon_threadsafe(self._is_wanted.set)

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        asyncio.run(self._send_all())

    async def _send_all(self) -> None:
        self._is_wanted = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        log = TopicLog(self.topic, self._make_cluster())
        try:
            while not self._given_up:
                self._is_wanted.clear()
                block = self._first()
                if block is not None:
                    await self._send(log, block)
                elif self._is_closing:
                    return
                else:
                    await self._is_wanted.wait()
        finally:
            await log.close()

    async def _send(self, log: TopicLog, block: _Block) -> None:
        """Append one block, however long that takes; it is sent again as it was, so that brokers take it once."""
        self._batch = None
        while not self._given_up:
            try:
                await self._append(log, block)
            except Exception as error:  # noqa: BLE001  (whatever it is, recording must go on)
                if self._is_settled(block, error):
                    return
                await asyncio.sleep(_MENDED_S if _is_final(error) else _RETRY_S)
            else:
                self._replace_first(written=block.rows)
                self._succeed()
                return

    async def _append(self, log: TopicLog, block: _Block) -> None:
        partition = await self._partition_of(log)
        if self._producer is None:
            self._producer, self._batch = await log.new_producer(partition), None
        producer = self._producer
        if self._batch is None:
            now_ms = self._clock.now_us() // 1000
            self._batch = encode_batch([(None, block.value)], now_ms=now_ms, producer=producer)
        try:
            await log.append(partition, self._batch)
        except BrokerError as error:
            if error.code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:  # it has had this very block
                raise
        if producer != NO_PRODUCER:
            self._producer = producer.behind(1)

    def _is_settled(self, block: _Block, error: Exception) -> bool:
        """Do what this failure asks for; True where the block need not be tried again."""
        code = error.code if isinstance(error, BrokerError) else None
        if code == ErrorCode.MESSAGE_TOO_LARGE:
            self._cut(block)
            return True
        if code in _FORGOTTEN:
            self._producer = None
            return False
        self._fail(error)
        self._is_found = False
        if self._is_closing and _is_final(error):
            self._replace_first(dropped=block.rows)
            return True
        return False

    async def _partition_of(self, log: TopicLog) -> int:
        """Look for the topic where it is not known, and make it where there is none.

        Raises:
            UnreachableError: no broker answers.
            BrokerError: the brokers refuse.
        """
        partition = self._partition
        if self._is_found and partition is not None:
            return partition
        if not await log.find():
            await self._make(log)
        if partition is None or partition not in log.partitions:
            # Rows of a run stay in their order where they go to one partition; readers do not depend on that.
            partition = log.partitions[crc32c(self._key) % len(log.partitions)]
            self._partition, self._producer = partition, None
        self._is_found = True
        return partition

    async def _make(self, log: TopicLog) -> None:
        kept = {
            "retention.ms": str(round(self._limits.age_s_max * 1000)),
            "retention.bytes": str(self._limits.folder_bytes_max),
            "cleanup.policy": "delete",
            "compression.type": "producer",  # blocks are compressed
        }
        if await log.make(settings=kept):
            logger.warning("there was no topic %s to record to; it was made", self.topic)
        self._partition = self._producer = None
        for _ in range(_LOOKS):
            if await log.find():
                return
            await asyncio.sleep(_LOOK_S)
        msg = "it has been created, and no broker knows it yet"
        raise UnreachableError(msg)

    def _cut(self, block: _Block) -> None:
        """The topic takes less at once: two blocks of half the rows each; a single row is dropped."""
        if block.rows == 1:
            self._fail(UnreachableError("it does not take a single row (max.message.bytes)"))
            self._replace_first(dropped=1)
            return
        self._replace_first([_Block.of(half) for half in halves(read_block(block.value))])

    # ------------------------------------------------------------------ what is said

    def _fail(self, error: Exception) -> None:
        self.last_error = _reason(error)
        now_s = asyncio.get_running_loop().time()
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        # A partition that has another leader now is no news.
        if self.is_failing or not (
            _is_final(error) or now_s - self._failing_since_s >= _SAID_AFTER_S
        ):
            return
        self.is_failing = True
        logger.error(
            "recording stops: topic %s: %s. Traffic goes on; rows wait in memory, then they are dropped and"
            " counted. It is tried again and again",
            self.topic,
            self.last_error,
        )

    def _succeed(self) -> None:
        self._failing_since_s = None
        unsaid = self.rows_dropped - self._dropped_said
        if self.is_failing:
            self.is_failing = False
            logger.warning("recording again: topic %s: %d rows were dropped", self.topic, unsaid)
        elif unsaid:
            logger.warning(
                "recording is behind: decisions come faster than topic %s takes them; %d rows were dropped",
                self.topic,
                unsaid,
            )
        self._dropped_said += unsaid


def _is_final(error: Exception) -> bool:
    """True where somebody has to mend something."""
    if isinstance(error, BrokerError):
        return not error.is_retriable
    return not isinstance(error, UnreachableError | TimeoutError)


def _reason(error: Exception) -> str:
    code = error.code if isinstance(error, BrokerError) else None
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return f"{error}. The gateway's own user needs WRITE and DESCRIBE on it, and CREATE until it is there"
    if code == ErrorCode.INVALID_RECORD:
        return (
            f"{error}. With cleanup.policy=compact it would forget all but the newest block: give it "
            "cleanup.policy=delete, or name another topic in record.topic"
        )
    return str(error) if isinstance(error, KvotaError) else f"{type(error).__name__}: {error}"
