"""The files of a merged record, to be worked off range by range where that pays."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kvota.files.threads import in_threads
from kvota.pipeline import chunk_schema as s
from kvota.pipeline import rows_done
from kvota.pipeline.any_session import numbered_tasks
from kvota.pipeline.arrow_columns import Array, spark_ddl
from kvota.pipeline.direct import cut_for_tasks, rows_in
from kvota.pipeline.key_ranges import Cut, KeyRange, RowGroup
from kvota.pipeline.pack import pack
from kvota.pipeline.packing_choice import Packing
from kvota.pipeline.row_groups import GroupFile, GroupReader, group_file, groups_of
from kvota.pipeline.unpack import Rows
from kvota.record.event_file import EventFile

Batches = Iterator[pa.RecordBatch]

# Every task reads rows that are not merged yet: where there are more of them, that cannot pay.
_UNMERGED_MAX = 0.5

_THREADS = 8


@dataclass(frozen=True, slots=True)
class Ranged:
    """The row groups of a record's files.

    Attributes:
        files: by number.
        groups: of all files.
        packing: what is wanted of them.
        tasks: so many at most.
        counter_ids: of the counters that are wanted; None: all.
    """

    files: tuple[GroupFile, ...]
    groups: tuple[RowGroup, ...]
    packing: Packing
    tasks: int
    counter_ids: frozenset[int] | None = None

    def of_types(self, quota_types: Iterable[str]) -> "Ranged":
        """Return those of some quota types."""
        wanted = frozenset(quota_types)
        if self.packing.quota_types is not None:
            wanted &= self.packing.quota_types
        return replace(self, packing=replace(self.packing, quota_types=wanted))

    def but_types(self, quota_types: Iterable[str]) -> "Ranged":
        """Return those of all other quota types."""
        others = self.packing.other_types | frozenset(quota_types)
        return replace(self, packing=replace(self.packing, other_types=others))

    def of_counters(self, counter_ids: Iterable[int]) -> "Ranged":
        """Return those of a few counters."""
        wanted = frozenset(counter_ids)
        if self.counter_ids is not None:
            wanted &= self.counter_ids
        return replace(self, counter_ids=wanted)

    def summed(self) -> "Ranged":
        """Return the same, of which parts of seconds are made."""
        return replace(self, packing=replace(self.packing, is_summed=True))

    def cut(self) -> Cut | None:
        """Cut the record for tasks; None where that does not pay."""
        wanted = [
            group
            for group in self.groups
            if group.last is None or self.packing.wants_type_between(group.first[0], group.last[0])
        ]
        return cut_for_tasks(wanted, self.tasks, sum(group.rows for group in self.groups))

    def worked_off(
        self,
        spark: SparkSession,
        found: Cut,
        work: Callable[[Iterator[Rows]], Batches],
        schema: pa.Schema,
    ) -> DataFrame:
        """Return the table that ``work`` makes of all ranges but the large ones, from rows or from parts of seconds."""
        folder = rows_done.folder_of(spark)
        files, packing, tasks = self.files, self.packing, found.tasks
        wanted = None if self.counter_ids is None else np.array(sorted(self.counter_ids), np.int64)

        def stage(batches: Batches) -> Batches:
            ranges = chain.from_iterable(tasks[number] for number in _numbers(batches))
            rows = rows_in(GroupReader(files, packing, folder), ranges)
            return work(counted(_chosen(rows, wanted), folder))

        return numbered_tasks(spark, len(tasks)).mapInArrow(stage, spark_ddl(schema))

    def large_packed(self, spark: SparkSession, found: Cut) -> DataFrame:
        """Return the chunks of the large ranges, ``chunk_schema.CHUNK``, of charges or of parts of seconds."""
        folder = rows_done.folder_of(spark)
        files, packing = self.files, self.packing
        ranges_of: dict[RowGroup, list[KeyRange]] = {}
        for one in found.large:
            for group in one.groups:
                ranges_of.setdefault(group, []).append(one)
        groups = list(ranges_of.items())
        tasks = min(self.tasks, len(groups))

        def stage(batches: Batches) -> Batches:
            reader = GroupReader(files, packing, folder)
            for number in _numbers(batches):
                first, end = number * len(groups) // tasks, (number + 1) * len(groups) // tasks
                for group, ranges in groups[first:end]:
                    for events in reader.events_in_each(group, ranges):
                        chunks = pack(events, packing)
                        if chunks is not None:
                            yield chunks

        table = numbered_tasks(spark, tasks).mapInArrow(stage, spark_ddl(s.CHUNK))
        if self.counter_ids is None:
            return table
        return table.where(F.xxhash64(*s.COUNTER_COLUMNS).isin(*self.counter_ids))


def ranged(files: Iterable[EventFile], packing: Packing, tasks: int) -> Ranged | None:
    """Look at the row groups of files of this machine; None where working off ranges cannot pay."""
    # Files in the order of time: rows of a counter are then nearly in order when ranges are read.
    ordered = sorted(files, key=lambda file: (file.first_us, str(file.path)))
    total = sum(file.rows for file in ordered)
    unmerged = sum(file.rows for file in ordered if not file.is_compacted)
    if not total or unmerged > _UNMERGED_MAX * total:
        return None
    try:
        numbered = list(enumerate(ordered))
        found = in_threads(lambda item: groups_of(item[0], item[1], packing), numbered, _THREADS)
        groups = tuple(chain.from_iterable(found))
    # It has gone, or a text of its statistics is damaged: the workers will say so.
    except (OSError, pa.ArrowException, UnicodeDecodeError):
        return None
    return Ranged(tuple(group_file(file, packing) for file in ordered), groups, packing, tasks)


def _chosen(parts: Iterator[Rows], wanted: Array | None) -> Iterator[Rows]:
    for rows in parts:
        if wanted is None:
            yield rows
        else:
            is_wanted = np.isin(rows.names.column("counter_id").to_numpy(), wanted)
            yield rows.where(rows.spread(is_wanted))


def counted(parts: Iterator[Rows], folder: str) -> Iterator[Rows]:
    """Count rows that were worked off."""
    for rows in parts:
        yield rows
        rows_done.count(folder, "worked", rows.charges)


def _numbers(batches: Batches) -> Iterator[int]:
    return chain.from_iterable(batch.column(0).to_pylist() for batch in batches)
