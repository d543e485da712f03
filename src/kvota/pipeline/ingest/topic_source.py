"""Spark reads a topic of events: a task for each of its partitions, a row for each block.

Its own data source, so that nothing but Python is needed: Spark keeps the offsets in its checkpoint, and no group of
consumers is asked for or committed to.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kvota.client.broker_error import BrokerError
from kvota.client.properties import cluster_of, read_properties
from kvota.client.record_batches import Row, Unread
from kvota.client.topic_log import TopicLog
from kvota.model.errors import NegativeError, UnreachableError
from kvota.pipeline.ingest.pieces import PIECES_SQL, Piece, piece_batch
from kvota.wire.error_code import ErrorCode

FORMAT = "kvota_topic"

# As the brokers' quotas see who reads it.
CLIENT_ID = "kvota-ingest"

# A batch has so many blocks at most, 4 million events where they are full: it is done in seconds.
BLOCKS_MAX = 400

# Brokers that are away are waited for, so long; then the command ends, and goes on where it was when it is begun again.
_AWAY_S = 120.0
_RETRY_S = 0.5
# So many empty answers in a row, of a partition that has more, are an error.
_EMPTY_MAX = 20

_Told = TypeVar("_Told")
_Offsets = dict[str, int]  # the next one of each partition


@dataclass
class _Range(InputPartition):
    """Offsets of one partition, ``end`` behind the last."""

    partition: int
    begin: int
    end: int

    def __init__(self, partition: int, begin: int, end: int) -> None:
        super().__init__(None)
        self.partition, self.begin, self.end = partition, begin, end


class TopicSource(DataSource):
    """Options: ``topic``, ``servers``, ``command_config`` (a file), ``checkpoint`` (for error texts)."""

    @classmethod
    def name(cls) -> str:
        """As ``spark.readStream.format`` has it."""
        return FORMAT

    def schema(self) -> str:
        """The columns of a piece."""
        return PIECES_SQL

    def streamReader(self, schema: StructType) -> "TopicReader":
        """Return what reads it."""
        return TopicReader(self.options)


class TopicReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are those of Kafka, by the partition's number."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._topic = options["topic"]
        self._servers = options["servers"]
        self._config = options.get("command_config", "")
        self._checkpoint = options.get("checkpoint", "")
        self._until: _Offsets | None = None  # what there was when it began, where it ends with that

    # ------------------------------------------------------------------ how far

    def initialOffset(self) -> dict[str, int]:
        """The first offsets that there are."""
        return {partition: first for partition, (first, _) in self._bounds().items()}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """The last ones, or as far as a batch goes."""
        bounds = self._bounds()
        for partition, begin in start.items():
            self._check(partition, begin, bounds)
        ends = {partition: end for partition, (_, end) in bounds.items()}
        if self._until is not None:
            ends = {partition: min(end, self._until.get(partition, 0)) for partition, end in ends.items()}  # fmt: skip
        begins = {partition: start.get(partition, first) for partition, (first, _) in bounds.items()}  # fmt: skip
        if isinstance(limit, ReadMaxRows):
            each = max(1, limit.max_rows // max(1, len(ends)))
            ends = {partition: min(end, begins[partition] + each) for partition, end in ends.items()}  # fmt: skip
        return {partition: max(begins[partition], end) for partition, end in ends.items()}

    def getDefaultReadLimit(self) -> ReadLimit:
        """So many blocks."""
        return ReadMaxRows(BLOCKS_MAX)

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on there is no more than there is now."""
        self._until = {partition: end for partition, (_, end) in self._bounds().items()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """A task for each partition of the topic."""
        bounds = self._bounds()
        ranges = []
        for partition, last in end.items():
            begin = start.get(partition)
            if begin is None:  # it is new
                begin = bounds[partition][0]
            if last > begin:
                self._check(partition, begin, bounds)
                ranges.append(_Range(int(partition), begin, last))
        return ranges

    def _check(self, partition: str, begin: int, bounds: Mapping[str, tuple[int, int]]) -> None:
        """See that nothing is gone that has not been read.

        Raises:
            NegativeError: the topic has deleted it, or is another one.
        """
        first, end = bounds.get(partition, (0, 0))
        if begin < first:
            raise NegativeError(self._gone(int(partition), begin, first))
        if begin > end:
            msg = (
                f"topic {self._topic}, partition {partition} ends at offset {end}, and {begin} was reached before: it "
                f"is another topic of this name. {self._remedy()}"
            )
            raise NegativeError(msg)

    def _gone(self, partition: int, begin: int, first: int) -> str:
        return (
            f"topic {self._topic}, partition {partition}: the blocks from offset {begin} to {first - 1} are gone, "
            f"deleted (retention.ms, retention.bytes) before they were read. {self._remedy()}"
        )

    def _remedy(self) -> str:
        return (
            f"To go on with what there is, remove the checkpoint ({self._checkpoint}): what was taken already is not "
            "taken twice, and what is missing is told"
        )

    # ------------------------------------------------------------------ what it says

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the blocks of a range."""
        assert isinstance(partition, _Range), "it was planned here"
        with asyncio.Runner() as runner:
            log = self._log()
            try:
                yield from self._read(runner, log, partition)
            finally:
                runner.run(log.close())

    def _read(
        self, runner: asyncio.Runner, log: TopicLog, wanted: _Range
    ) -> Iterator[pa.RecordBatch]:
        offset, empty = wanted.begin, 0
        while offset < wanted.end:
            try:
                rows, next_offset = runner.run(
                    _patiently(log, lambda: log.read(wanted.partition, offset))  # noqa: B023
                )
            except BrokerError as error:
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                first, _ = runner.run(_patiently(log, lambda: log.bounds(wanted.partition)))
                raise NegativeError(self._gone(wanted.partition, offset, first)) from error
            if next_offset == offset:
                empty += 1
                if empty == _EMPTY_MAX:
                    msg = f"topic {self._topic}, partition {wanted.partition}: nothing comes from offset {offset} on"
                    raise UnreachableError(msg)
                continue
            empty, offset = 0, next_offset
            pieces = [self._piece(wanted.partition, row) for row in rows if row.offset < wanted.end]
            if pieces:
                yield piece_batch(pieces)

    def _piece(self, partition: int, row: Row | Unread) -> Piece:
        source = f"{self._topic}/{partition}"
        if isinstance(row, Unread):
            return source, row.offset, None, row.reason
        if row.value is None:
            return source, row.offset, None, "a record without a value"
        return source, row.offset, row.value, None

    # ------------------------------------------------------------------ asking

    def _bounds(self) -> Mapping[str, tuple[int, int]]:
        with asyncio.Runner() as runner:
            return runner.run(self._asked_bounds())

    async def _asked_bounds(self) -> Mapping[str, tuple[int, int]]:
        log = self._log()
        try:
            if not await _patiently(log, log.find):
                msg = (
                    f"there is no topic {self._topic} at {self._servers}. A gateway makes it when it begins to record "
                    "(record.topic in gateway.toml)"
                )
                raise NegativeError(msg)
            return {
                str(partition): await _patiently(log, lambda: log.bounds(partition))  # noqa: B023
                for partition in log.partitions
            }
        finally:
            await log.close()

    def _log(self) -> TopicLog:
        properties = read_properties(Path(self._config)) if self._config else {}
        properties = {**properties, "bootstrap.servers": self._servers}
        return TopicLog(self._topic, cluster_of(properties, client_id=CLIENT_ID))


async def _patiently(log: TopicLog, ask: Callable[[], Coroutine[Any, Any, _Told]]) -> _Told:
    """Ask until the brokers answer.

    Raises:
        UnreachableError: they have not for long.
        BrokerError: they refuse, and will again.
    """
    loop = asyncio.get_running_loop()
    end_s = loop.time() + _AWAY_S
    while True:
        try:
            return await ask()
        except (UnreachableError, BrokerError) as error:
            if isinstance(error, BrokerError) and not error.is_retriable:
                raise
            if loop.time() > end_s:
                raise
        await asyncio.sleep(_RETRY_S)
        try:
            await log.find()  # its leaders may be others
        except (UnreachableError, BrokerError):
            continue
