"""Checks the law: charges replayed with the recorded quotas give the recorded throttle times."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from tests.oracle.charges import charges, counters, partitions, runs

from kvota.model.decision_sink import OUTCOMES
from kvota.model.event import Outcome
from kvota.pipeline.arrow_columns import arrays
from kvota.pipeline.kernels.law_kernel import STATE_SIZE, TOKENS_SIZE, law_rows

# The columns that the kernel's stage returns, by position.
_REPLAYED = pa.schema(
    [
        ("counter_id", pa.int64()),
        ("seq", pa.int64()),
        ("ts_us", pa.int64()),
        ("value", pa.float64()),
        ("limit", pa.float64()),
        ("throttle_ms", pa.int32()),
        ("outcome", pa.string()),
        ("replayed_throttle_ms", pa.int32()),
        ("replayed_outcome_code", pa.int8()),
        ("judged", pa.bool_()),
    ]
)
_REPLAYED_SPARK = (
    "counter_id long, seq long, ts_us long, value double, limit double, throttle_ms int, "
    "outcome string, replayed_throttle_ms int, replayed_outcome_code byte, judged boolean"
)

# The columns that the kernel reads, in its order.
_KERNEL_COLUMNS = (
    "counter_id",
    "complete",
    "bucket",
    "brief",
    "debt",
    "strict",
    "queues",
    "refused",
    "ts_us",
    "value",
    "limit",
    "floor",
    "samples",
    "sample_ms",
)

# The most differences that a result keeps.
_DIFFERENCES_SHOWN = 10


@dataclass(frozen=True, slots=True)
class LawOfType:
    """The law's result for the rows of one quota type."""

    quota_type: str
    rows: int
    throttled: int  # with throttle_ms > 0 or rejected, as recorded
    differing: int
    unjudged: int  # of counters whose first rows are not in the record

    def __str__(self) -> str:
        """Return one line for people: ``PRODUCE: 1,204 rows, 310 throttled, all equal``."""
        return _sentence(self.quota_type, self)


@dataclass(frozen=True, slots=True)
class Difference:
    """One row whose replay is not what was recorded."""

    gateway: str
    run_id: str
    seq: int
    node_id: int
    quota_type: str
    tags: str
    value: float
    limit: float | None
    throttle_ms: int
    outcome: str
    replayed_throttle_ms: int
    replayed_outcome: str

    def __str__(self) -> str:
        """Return one line for people."""
        return (
            f"{self.quota_type} seq {self.seq} of run {self.run_id} ({self.tags}, node {self.node_id}): "
            f"recorded {self.outcome} {self.throttle_ms} ms, "
            f"replayed {self.replayed_outcome} {self.replayed_throttle_ms} ms"
        )


@dataclass(frozen=True, slots=True)
class LawResult:
    """The law's result for a record, with the first rows that differ."""

    rows: int
    throttled: int
    differing: int
    unjudged: int
    of_types: tuple[LawOfType, ...]
    differences: tuple[Difference, ...] = field(default=())  # the first ones
    missing: int = 0  # rows lost within the runs (gaps in seq)
    repeated: int = 0  # rows there more than once
    not_replayed: int = 0  # rows of quota types without a kernel

    @property
    def holds(self) -> bool:
        """Return whether every judged row is equal, and there is one: no rows prove nothing."""
        return self.differing == 0 and self.rows > self.unjudged

    def __str__(self) -> str:
        """Return one line for people: ``18,204 rows, 1,310 throttled, all equal``."""
        return _sentence("", self)


def _sentence(name: str, result: "LawOfType | LawResult") -> str:
    verdict = f"{result.differing:,} differ" if result.differing else "all equal"
    if result.rows == result.unjudged:
        verdict = "nothing to judge"
    aside = f" ({result.unjudged:,} not judged)" if result.unjudged else ""
    start = f"{name}: " if name else ""
    return f"{start}{result.rows:,} rows, {result.throttled:,} throttled, {verdict}{aside}"


def replay_rows(events: DataFrame) -> DataFrame:
    """Return the law as a table: every charge, replayed with the limit it was recorded with.

    In:  the events table.
    Out: gateway, run_id string, seq long (the key), node_id int, quota_type, tags string, ts_us long,
         value, limit double, throttle_ms int, outcome string (as recorded), replayed_throttle_ms int,
         replayed_outcome string, equal boolean (null: the counter's first rows are not in the
         record, so its contents cannot be known yet).
    """
    columns = charges(events)
    sorted_rows = columns.repartition(partitions(events), "counter_id").sortWithinPartitions(
        "counter_id", "seq"
    )
    replayed = sorted_rows.mapInArrow(_replay_batches, _REPLAYED_SPARK)
    names = F.array(*(F.lit(outcome.value) for outcome in OUTCOMES))
    outcome = F.get(names, F.col("replayed_outcome_code"))
    same = (F.col("throttle_ms") == F.col("replayed_throttle_ms")) & (F.col("outcome") == outcome)
    # Where judged, "same" has to be true; null (a column the file lacks) is not equal.
    return replayed.join(F.broadcast(counters(events)), "counter_id").select(
        "gateway",
        "run_id",
        "seq",
        "node_id",
        "quota_type",
        "tags",
        "ts_us",
        "value",
        "limit",
        "throttle_ms",
        "outcome",
        "replayed_throttle_ms",
        outcome.alias("replayed_outcome"),
        F.when(F.col("judged"), same.eqNullSafe(F.col("judged"))).alias("equal"),
    )


def law(events: DataFrame) -> LawResult:
    """Replay the record and count rows that differ; this runs Spark jobs."""
    rows = replay_rows(events)
    was_throttled = (F.col("throttle_ms") > 0) | (F.col("outcome") == Outcome.REJECTED.value)
    counted = (
        rows.groupBy("quota_type")
        .agg(
            F.count("*").alias("rows"),
            F.count_if(was_throttled).alias("throttled"),
            F.count_if(~F.col("equal")).alias("differing"),
            F.count_if(F.col("equal").isNull()).alias("unjudged"),
        )
        .collect()
    )
    of_types = tuple(LawOfType(**row.asDict()) for row in sorted(counted))
    differing = sum(item.differing for item in of_types)
    gaps = runs(events).agg(
        F.coalesce(F.sum(F.greatest(F.col("missing"), F.lit(0))), F.lit(0)).alias("missing"),
        F.coalesce(F.sum(F.greatest(-F.col("missing"), F.lit(0))), F.lit(0)).alias("repeated"),
        F.coalesce(F.sum("rows"), F.lit(0)).alias("rows"),
    )
    gap = gaps.collect()[0]
    replayed = sum(item.rows for item in of_types)
    return LawResult(
        rows=replayed,
        throttled=sum(item.throttled for item in of_types),
        differing=differing,
        unjudged=sum(item.unjudged for item in of_types),
        of_types=of_types,
        differences=_first_differences(rows) if differing else (),
        missing=gap["missing"],
        repeated=gap["repeated"],
        not_replayed=gap["rows"] - replayed,
    )


def _first_differences(rows: DataFrame) -> tuple[Difference, ...]:
    first = (
        rows.where(~F.col("equal"))
        .orderBy("gateway", "run_id", "seq")
        .limit(_DIFFERENCES_SHOWN)
        .drop("ts_us", "equal")
        .collect()
    )
    return tuple(Difference(**row.asDict()) for row in first)


class _Counter:
    """The running counter of one task, in arrays that the kernel carries from batch to batch."""

    def __init__(self) -> None:
        self.counter_id: int | None = None
        self.state = np.zeros(STATE_SIZE, np.int64)
        self.tokens = np.zeros(TOKENS_SIZE)
        self.starts = np.zeros(12, np.int64)
        self.lasts = np.zeros(12, np.int64)
        self.totals = np.zeros(12)

    def make_room(self, samples_max: int) -> None:
        """Make room for this many samples and the overlapping one; those that are there stay."""
        more = samples_max + 1 - len(self.starts)
        if more > 0:
            self.starts = np.pad(self.starts, (0, more))
            self.lasts = np.pad(self.lasts, (0, more))
            self.totals = np.pad(self.totals, (0, more))


def _replay_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    counter = _Counter()
    for batch in batches:
        if batch.num_rows:
            yield _replay_batch(batch, counter)


def _replay_batch(batch: pa.RecordBatch, counter: _Counter) -> pa.RecordBatch:
    column = arrays(batch, _KERNEL_COLUMNS)
    ids = column["counter_id"]
    first = np.empty(len(ids), np.bool_)
    first[0] = counter.counter_id is None or ids[0] != counter.counter_id
    np.not_equal(ids[1:], ids[:-1], out=first[1:])
    counter.counter_id = int(ids[-1])
    counter.make_room(int(column["samples"].max()))
    throttle_ms = np.empty(len(ids), np.int32)
    outcome = np.empty(len(ids), np.int8)
    judged = np.empty(len(ids), np.bool_)
    law_rows(
        first,
        *(column[name] for name in _KERNEL_COLUMNS[1:]),
        counter.state,
        counter.tokens,
        counter.starts,
        counter.lasts,
        counter.totals,
        throttle_ms,
        outcome,
        judged,
    )
    replayed = {
        "replayed_throttle_ms": throttle_ms,
        "replayed_outcome_code": outcome,
        "judged": judged,
    }
    return pa.RecordBatch.from_arrays(
        [
            pa.array(replayed[field.name]) if field.name in replayed else batch.column(field.name)
            for field in _REPLAYED
        ],
        schema=_REPLAYED,
    )
