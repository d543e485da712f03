"""Brings the charges of each counter together, packed: what replay, law and usage are made from."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (everybody's name for it)

from kvota.model.errors import UsageError
from kvota.pipeline import chunk_schema as s
from kvota.pipeline import rows_done
from kvota.pipeline.any_session import chunk_rows_max, numbered_tasks, parallelism
from kvota.pipeline.arrow_columns import spark_ddl
from kvota.pipeline.events import hadoop_pattern
from kvota.pipeline.packing_choice import Packing
from kvota.pipeline.ranged import Ranged, counted, ranged
from kvota.pipeline.seconds import Seconds, of_whole_counters, sums_of_rows
from kvota.pipeline.unpack import Rows, unpack
from kvota.pipeline.whole_files import content_packer, file_packer, table_packer, task_list
from kvota.record.event_file import EventFile
from kvota.record.found_events import FoundEvents
from kvota.record.period import ALWAYS, Period
from kvota.record.runs import Run, joined_runs

Batches = Iterator[pa.RecordBatch]

# A task for so many rows, and at least two per core: the last one to end is then a short one.
_ROWS_PER_TASK = 2_000_000
_TASKS_PER_CORE = 2

_FOUND = pa.schema([("rows", pa.int64())])


@dataclass(frozen=True, slots=True)
class Chunks:
    """The charges of a record, packed; a counter's chunks in one partition, in order.

    Attributes:
        table: ``chunk_schema.CHUNK`` and counter_id.
        by: how charges share counters; the order of rows is seq where as recorded, else time.
        runs: of the whole record they were made of.
        period: the part of it that they were made of.
        ranged: the files, where a job may read them range by range in place of the table.
        sums: makes the same table of parts of seconds; None: they are made of charges.
        is_summed: ``table`` has parts of seconds itself, and nobody can tell charges any more.
    """

    table: DataFrame
    by: s.By
    runs: tuple[Run, ...]
    period: Period = ALWAYS
    ranged: Ranged | None = None
    sums: Callable[[], DataFrame] | None = None
    is_summed: bool = False

    def of_types(self, quota_types: Iterable[str]) -> "Chunks":
        """Return those of some quota types."""
        wanted = sorted(quota_types)
        return replace(
            self._where(F.col("quota_type").isin(*wanted)),
            ranged=self.ranged and self.ranged.of_types(wanted),
        )

    def but_types(self, quota_types: Iterable[str]) -> "Chunks":
        """Return those of all other quota types."""
        others = sorted(quota_types)
        return replace(
            self._where(~F.col("quota_type").isin(*others)),
            ranged=self.ranged and self.ranged.but_types(others),
        )

    def of_counters(self, counter_ids: Iterable[int]) -> "Chunks":
        """Return those of a few counters."""
        wanted = tuple(counter_ids)
        return replace(
            self._where(F.col("counter_id").isin(*wanted)),
            ranged=self.ranged and self.ranged.of_counters(wanted),
        )

    def _where(self, condition: Column) -> "Chunks":
        sums = self.sums
        return replace(
            self,
            table=self.table.where(condition),
            sums=None if sums is None else cache(lambda: sums().where(condition)),
        )

    def summed(self) -> "Chunks":
        """Return the same for jobs that ask for seconds only: with less to keep, and nobody's single charges.

        What ``persist`` keeps already stays as it is: these jobs take it, too.
        """
        if self.is_summed or self.sums is None:
            return self
        return replace(self, table=self.sums(), sums=None, is_summed=True)

    def persist(self) -> "Chunks":
        """Return the same, kept for several jobs; ``unpersist`` frees the memory.

        What is read range by range is read anew for each job: that takes no longer than to unpack chunks.
        """
        if self.ranged is not None and self.ranged.cut() is not None:
            return self
        return replace(self, table=self.table.persist(), ranged=None, sums=None)

    def unpersist(self) -> None:
        """Forget what ``persist`` kept."""
        self.table.unpersist()

    def has_rows(self) -> bool:
        """Return whether there are any; this runs Spark jobs."""
        if self.is_summed:
            return bool(self.stage_of_seconds(_one_second, _FOUND).head(1))
        return bool(self.stage(_one_row, _FOUND).head(1))

    def stage(self, work: Callable[[Iterator[Rows]], Batches], schema: pa.Schema) -> DataFrame:
        """Return the table that ``work`` makes, task by task, from the rows of whole counters.

        Raises:
            UsageError: these are sums of seconds.
        """
        if self.is_summed:
            msg = "these chunks are sums of seconds (summed()); this job asks for single charges"
            raise UsageError(msg)
        if self.ranged is not None:
            of_ranges = self._of_ranges(self.ranged, work, schema)
            if of_ranges is not None:
                return of_ranges
        return self._of_chunks(self.table, s.CHARGES, work, schema)

    def stage_of_seconds(
        self, work: Callable[[Iterator[Seconds]], Batches], schema: pa.Schema
    ) -> DataFrame:
        """Return the table that ``work`` makes, task by task, from the seconds of whole counters.

        Raises:
            UsageError: the chunks are by counter, in the order of seq: seconds may come in any order.
        """
        if self.by == "counter":
            msg = "usage is counted by user, client, user-client or tags; the chunks are by counter"
            raise UsageError(msg)

        def of_parts(every: Iterator[Rows]) -> Batches:
            return work(of_whole_counters(every))

        def of_charges(every: Iterator[Rows]) -> Batches:
            return of_parts(sums_of_rows(every))

        if self.ranged is not None:
            of_ranges = self._of_ranges(self.ranged.summed(), of_parts, schema)
            if of_ranges is not None:
                return of_ranges
        summed = self.summed()
        if summed.is_summed:
            return self._of_chunks(summed.table, s.SUMS, of_parts, schema)
        return self._of_chunks(self.table, s.CHARGES, of_charges, schema)

    def _of_ranges(
        self, by_ranges: Ranged, work: Callable[[Iterator[Rows]], Batches], schema: pa.Schema
    ) -> DataFrame | None:
        """Return the table that ``work`` makes of ranges of the files; None where that does not pay."""
        cut = by_ranges.cut()
        if cut is None:
            return None
        spark = self.table.sparkSession
        found = by_ranges.worked_off(spark, cut, work, schema)
        if cut.large:
            large = _together(by_ranges.large_packed(spark, cut), by_ranges.tasks)
            found = found.unionAll(self._of_chunks(large, by_ranges.packing.layout, work, schema))
        return found

    def _of_chunks(
        self,
        table: DataFrame,
        layout: s.Layout,
        work: Callable[[Iterator[Rows]], Batches],
        schema: pa.Schema,
    ) -> DataFrame:
        as_recorded = self.by == "counter"
        folder = rows_done.folder_of(table.sparkSession)

        def of_task(batches: Batches) -> Batches:
            rows = unpack(batches, as_recorded=as_recorded, layout=layout)
            return work(counted(rows, folder))

        return table.mapInArrow(of_task, spark_ddl(schema))


def chunks_of_files(  # noqa: PLR0913  (all but three by keyword)
    spark: SparkSession,
    found: FoundEvents,
    by: s.By = "counter",
    *,
    further: Iterable[str] = (),
    quota_types: Iterable[str] | None = None,
    period: Period = ALWAYS,
    modes_apart: bool = False,
    gateways_apart: bool = False,
) -> Chunks:
    """Pack the charges in a record's files; workers read them without Spark's rows in between.

    Args:
        spark: runs it; its workers have to reach the files.
        found: the files.
        by: the counters as recorded, or made anew per user, client id or both, or per tags.
        further: columns that the job asks for, as ``Packing.further`` says.
        quota_types: None: all.
        period: other rows are left out, and files without any inside are not read.
        modes_apart: counters made anew are two, one for rows that were enforced, one for shadow mode.
        gateways_apart: counters made anew are one per gateway, as quotas are.
    """
    packing = replace(
        _packing(by, found.runs, further, quota_types, period),
        modes_apart=modes_apart,
        gateways_apart=gateways_apart,
        chunk_rows_max=chunk_rows_max(spark),
    )
    wanted = [file for file in found.files if file.is_within(period)]
    remote = [file for file in wanted if file.uri]
    tasks = _tasks(spark, sum(file.rows for file in wanted))
    here = [file for file in wanted if not file.uri]
    contents = _contents(spark, remote) if remote else None  # lists the files: once

    def packed(how: Packing) -> DataFrame:
        chunks = _read_by_workers(spark, here, tasks, how)
        if contents is not None:
            chunks = chunks.unionAll(_content_chunks(contents, remote, how))
        return _together(chunks, tasks)

    by_ranges = None if remote else ranged(here, packing, _least_tasks(spark))
    return Chunks(packed(packing), by, found.runs, period, by_ranges, _sums(packed, packing))


def _sums(packed: Callable[[Packing], DataFrame], packing: Packing) -> Callable[[], DataFrame]:
    """Make the function that packs parts of seconds, where somebody asks for them."""
    return cache(lambda: packed(replace(packing, is_summed=True)))


def _one_second(every: Iterator[Seconds]) -> Batches:
    for _ in every:
        yield pa.RecordBatch.from_arrays([pa.array([1])], schema=_FOUND)
        return


def _one_row(parts: Iterator[Rows]) -> Batches:
    for rows in parts:
        if rows.starts[-1]:
            yield pa.RecordBatch.from_arrays([pa.array([int(rows.starts[-1])])], schema=_FOUND)
            return


def _read_by_workers(
    spark: SparkSession, files: list[EventFile], tasks: int, packing: Packing
) -> DataFrame:
    """Have workers open the files, each some of them."""
    reading = max(1, min(tasks, len(files)))
    packer = file_packer(task_list(files, reading), packing, rows_done.folder_of(spark))
    return numbered_tasks(spark, reading).mapInArrow(packer, spark_ddl(s.CHUNK))


def _contents(spark: SparkSession, files: Iterable[EventFile]) -> DataFrame:
    """Have Spark read the files as they are, by Hadoop."""
    return (
        spark.read.format("binaryFile")
        .load([hadoop_pattern(file.uri) for file in files])
        .select("path", "length", F.unix_millis("modificationTime").alias("ms"), "content")
    )


def _content_chunks(contents: DataFrame, files: Iterable[EventFile], packing: Packing) -> DataFrame:
    """Hand the bytes of files to the workers."""
    return contents.mapInArrow(content_packer(files, packing), spark_ddl(s.CHUNK))


def chunks_of_table(
    events: DataFrame,
    by: s.By = "counter",
    *,
    further: Iterable[str] = (),
    quota_types: Iterable[str] | None = None,
    modes_apart: bool = False,
    gateways_apart: bool = False,
) -> Chunks:
    """Pack the charges of an events table that is no folder of files: filtered, or somebody else's.

    Spark hands every row to Python, which takes about six times as long as reading it; one job more
    looks for the runs.
    """
    runs = _runs_of_table(events)
    packing = replace(
        _packing(by, runs, further, quota_types, ALWAYS),
        modes_apart=modes_apart,
        gateways_apart=gateways_apart,
        chunk_rows_max=chunk_rows_max(events.sparkSession),
    )
    tasks = _tasks(events.sparkSession, sum(run.rows for run in runs))

    def packed(how: Packing) -> DataFrame:
        here = [F.col(name) for name in how.columns() if name in events.columns]
        chunks = events.select(*here).mapInArrow(table_packer(how), spark_ddl(s.CHUNK))
        return _together(chunks, tasks)

    return Chunks(packed(packing), by, runs, sums=_sums(packed, packing))


def _packing(
    by: s.By,
    runs: tuple[Run, ...],
    further: Iterable[str],
    quota_types: Iterable[str] | None,
    period: Period,
) -> Packing:
    places = {
        # A run that began before the period is like one whose first rows are lost.
        (run.gateway, run.run_id): (rank, run.is_complete and run.first_us >= period.since_us)
        for rank, run in enumerate(runs)
    }
    return Packing(
        by=by,
        runs=places,
        further=frozenset(further),
        quota_types=None if quota_types is None else frozenset(quota_types),
        period=period,
    )


def _tasks(spark: SparkSession, rows: int) -> int:
    return max(_least_tasks(spark), rows // _ROWS_PER_TASK)


def _least_tasks(spark: SparkSession) -> int:
    return parallelism(spark) * _TASKS_PER_CORE


def _together(packed: DataFrame, tasks: int) -> DataFrame:
    """Bring each counter's chunks into one partition, in order."""
    identified = packed.withColumn("counter_id", F.xxhash64(*s.COUNTER_COLUMNS))
    return identified.repartition(tasks, "counter_id").sortWithinPartitions("counter_id", "first")


def _runs_of_table(events: DataFrame) -> tuple[Run, ...]:
    """Return the runs in a table; a bounded result: one row per start of a gateway."""
    named = events.withColumns(
        {name: F.coalesce(F.col(name), F.lit("")) for name in ("gateway", "run_id")}
    )
    found = named.groupBy("gateway", "run_id").agg(
        F.min("seq"), F.max("seq"), F.count("*"), F.min("ts_us"), F.max("ts_us")
    )
    return joined_runs(Run(*row) for row in found.collect())
