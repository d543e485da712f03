"""Runs the stream: batch after batch of pieces becomes part of a record."""

import json
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

from kvota.pipeline.ingest import folder_source, topic_source
from kvota.pipeline.ingest.take_pieces import Outcome, take_pieces
from kvota.record.ingested import IngestFolder

# So much of the query's id stands in the names of files.
_ID_CHARS = 12


@dataclass(frozen=True, slots=True)
class Taken:
    """What one batch has brought.

    Attributes:
        batch: its number.
        rows: new ones.
        repeated: those that had been taken before.
        files: so many were written.
        outcome: what was wrong with some pieces.
    """

    batch: int
    rows: int
    repeated: int
    files: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Source:
    """Where pieces come from.

    Attributes:
        reader: Spark's.
        is_repeatable: a batch that is begun again has the same pieces.
        is_whole: nothing was removed before it could be read, so runs come from their first decision on.
    """

    reader: DataStreamReader
    is_repeatable: bool
    is_whole: bool


def read_folders(spark: SparkSession, folders: Sequence[Path], *, into: Path) -> Source:
    """Return a stream of the files in folders."""
    spark.dataSource.register(folder_source.FolderSource)
    names = folder_source.SEPARATOR.join(str(folder) for folder in folders)
    reader = spark.readStream.format(folder_source.FORMAT).options(
        folders=names, into=str(into), tasks=str(spark.sparkContext.defaultParallelism)
    )
    # A gateway removes its own old files, and which ones nobody knows.
    return Source(reader, is_repeatable=False, is_whole=False)


def read_topic(
    spark: SparkSession,
    topic: str,
    *,
    servers: str,
    command_config: Path | None,
    checkpoint: Path,
) -> Source:
    """Return a stream of a topic's blocks; no password is in Spark's plan, only the name of the file that has it.

    Raises:
        NegativeError: there is no such topic.
        UnreachableError: the brokers do not answer.
    """
    spark.dataSource.register(topic_source.TopicSource)
    options = {
        "topic": topic,
        "servers": servers,
        "command_config": "" if command_config is None else str(command_config),
        "checkpoint": str(checkpoint),
    }
    # What an earlier call has begun with has been read without a gap since.
    is_whole = (checkpoint / "offsets").exists() or not any(
        topic_source.TopicReader(options).initialOffset().values()
    )
    reader = spark.readStream.format(topic_source.FORMAT).options(**options)
    return Source(reader, is_repeatable=True, is_whole=is_whole)


class Stream:
    """A query that runs."""

    def __init__(self, query: StreamingQuery, batches: "_Batches") -> None:
        self._query = query
        self._batches = batches

    def wait(self, timeout_s: int) -> bool:
        """Wait until it ends; False: it has not in this time.

        Raises:
            PySparkException: it has failed.
        """
        return bool(self._query.awaitTermination(timeout_s))

    def end(self) -> None:
        """Take nothing more. What is becoming part of the record has become it when this returns."""
        self._batches.end()


def start(
    source: Source,
    folder: IngestFolder,
    *,
    checkpoint: Path,
    every_s: float | None,
    on_batch: Callable[[Taken], None],
) -> Stream:
    """Begin to take what the source has into the record.

    Args:
        source: of ``read_folders`` or ``read_topic``.
        folder: of the record, opened.
        checkpoint: where Spark remembers how far it is.
        every_s: between two looks for something new; None: it ends when all there is has been taken.
        on_batch: called after each batch that was not empty.
    """
    batches = _Batches(folder, checkpoint, on_batch, source)
    writer = source.reader.load().writeStream.foreachBatch(batches.take)
    writer = writer.option("checkpointLocation", checkpoint.as_uri())
    if every_s is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{round(every_s * 1000)} milliseconds")
    return Stream(writer.start(), batches)


class _Batches:
    """Takes each batch once, however often Spark begins it."""

    def __init__(
        self,
        folder: IngestFolder,
        checkpoint: Path,
        on_batch: Callable[[Taken], None],
        source: Source,
    ) -> None:
        self._source = source
        self._folder = folder
        self._checkpoint = checkpoint
        self._on_batch = on_batch
        self._query = ""
        # Workers of a process that was killed may write for a while: no file of theirs has the name of one of ours.
        self._attempt = secrets.token_hex(4)
        # Batches are taken in a thread of Spark's, which goes on for a moment when the main one has been interrupted.
        self._publishing = threading.Lock()
        self._is_over = False

    def take(self, pieces: DataFrame, batch: int) -> None:
        """Take one batch, all of it or nothing."""
        query = self._query_id()
        # Of a topic it has the same blocks as before; in folders there may be other files now, with rows that are new.
        if self._source.is_repeatable and self._folder.has(query, batch):
            return
        outcome = take_pieces(
            pieces,
            into=self._folder.into,
            name=f"events-ingest-{query[:_ID_CHARS]}-{self._attempt}-{batch:012d}",
            taken=self._folder.ledger.runs,
        )
        with self._publishing:
            if self._is_over:
                msg = f"batch {batch} has come to an end after the stream"
                raise RuntimeError(msg)
            self._publish(query, batch, outcome)

    def end(self) -> None:
        """Wait for the batch that is being published, and take none after it."""
        with self._publishing:
            self._is_over = True

    def _publish(self, query: str, batch: int, outcome: Outcome) -> None:
        before = self._folder.progress
        after = self._folder.publish(
            query,
            batch,
            outcome.files,
            repeated=outcome.repeated,
            are_from_first=self._source.is_whole,
        )
        taken = Taken(
            batch=batch,
            rows=after.rows - before.rows,
            repeated=after.repeated - before.repeated,
            files=len(after.files),
            outcome=outcome,
        )
        if taken.rows or taken.repeated or outcome.bad or outcome.gone:
            self._on_batch(taken)

    def _query_id(self) -> str:
        """The id is the checkpoint's: another one counts its batches anew."""
        if not self._query:
            metadata: Mapping[str, str] = json.loads((self._checkpoint / "metadata").read_text())
            self._query = metadata["id"].replace("-", "")
        return self._query
