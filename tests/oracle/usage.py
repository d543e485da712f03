"""Computes each tenant's use: exact sums of seconds, their quantiles, and the share throttled."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from tests.oracle.charges import (
    By,
    counter_id,
    counters,
    is_wait,
    is_waiting_fetch,
    is_waiting_produce,
    partitions,
)

from kvota.model.errors import UsageError
from kvota.model.event import Outcome
from kvota.pipeline.arrow_columns import Array, arrays
from kvota.pipeline.kernels import usage_kernel as k

WINDOW_S = 60

# The latest of several rows has the largest time, then the largest seq; both fit a long until 2112.
_SEQ_PLACES = 2048

_RATES = {
    "value_sum": k.VALUE,
    "rate_mean": k.MEAN,
    "rate_p50": k.P50,
    "rate_p95": k.P95,
    "rate_p99": k.P99,
    "rate_max": k.MOST,
    "rate_10s_max": k.MOST_10S,
}
_SUMS = ("events", "decisions", "throttled", "rejected", "throttle_ms_sum")
_FLAGS = ("enforced", "censored")

_WINDOWS = pa.schema(
    [
        ("counter_id", pa.int64()),
        ("window_start_s", pa.int64()),
        ("window_s", pa.int64()),
        *((name, pa.float64()) for name in _RATES),
        ("busy_s", pa.int32()),
        *((name, pa.int64()) for name in _SUMS),
        *((name, pa.bool_()) for name in _FLAGS),
        ("limit_last", pa.float64()),
    ]
)
_WINDOWS_SPARK = (
    "counter_id long, window_start_s long, window_s long, "
    + ", ".join(f"{name} double" for name in _RATES)
    + ", busy_s int, "
    + ", ".join(f"{name} long" for name in _SUMS)
    + ", "
    + ", ".join(f"{name} boolean" for name in _FLAGS)
    + ", limit_last double"
)

_KEY = ("quota_type", "level", "user", "client_id", "node_id", "window_start")


def usage(events: DataFrame, by: By = "user", *, window_s: int = WINDOW_S) -> DataFrame:
    """Return what each tenant used per window; windows in which it did nothing have no row.

    In:  the events table.
    Out: quota_type, level, user, client_id string (null: not part of the level), node_id int,
         window_start timestamp (the key), window_s int, events long, value_sum, rate_mean, rate_p50,
         rate_p95, rate_p99, rate_max, rate_10s_max double (per second; quantiles of the exact sums of
         seconds, nearest rank, quiet seconds are zeros), busy_s int, throttled, rejected,
         throttle_ms_sum long, share_throttled double, enforced boolean (false: would be throttled),
         censored boolean (it was throttled, so it may have wanted more), limit_last double.

    Charges that were rejected and enforced used nothing; give-backs are subtracted. A Produce that
    waited for its turn counts where it went on; until then it is only a sign of wanting more (censored).

    Raises:
        UsageError: ``window_s`` is below 1.
    """
    if window_s < 1:
        msg = f"window_s: {window_s} is below 1 second"
        raise UsageError(msg)
    windows = F.lit(window_s).cast("long")
    return _usage(
        events,
        by,
        seconds(events, by).withColumns({"from_s": F.lit(0).cast("long"), "window_s": windows}),
    )


def usage_total(events: DataFrame, by: By = "user") -> DataFrame:
    """Return what each tenant used over the whole record, with the columns of ``usage``.

    The one window spans the record from its first to its last second, for every tenant.
    """
    span = events.agg(
        F.min(_second()).alias("from_s"),
        (F.max(_second()) - F.min(_second()) + 1).alias("window_s"),
    )
    return _usage(events, by, seconds(events, by).crossJoin(F.broadcast(span)))


def seconds(events: DataFrame, by: By = "user") -> DataFrame:
    """Return exact sums of each second in which a tenant did something.

    Out: counter_id, second long, value_sum double, events, throttled, rejected, throttle_ms_sum long,
         enforced, censored boolean, limit_last double.
    """
    was_rejected = F.col("outcome") == Outcome.REJECTED.value
    # A request that waited is in the record twice: when its wait began, and where it went on. The
    # second row of a Produce says that it was throttled; that of a Fetch may come when there is room.
    waited = is_wait()
    rejected = was_rejected & ~waited
    throttled = is_waiting_fetch() | (F.col("outcome") == Outcome.THROTTLED.value)
    used = F.when(was_rejected & F.col("enforced"), 0.0).otherwise(F.col("value"))
    censored = (F.coalesce(F.col("upstream_throttle_ms"), F.lit(0)) > 0) | (
        F.col("enforced") & (was_rejected | throttled)
    )
    told_ms = F.greatest(F.col("throttle_ms"), F.lit(0))
    latest = F.col("ts_us") * _SEQ_PLACES + F.pmod(F.col("seq"), F.lit(_SEQ_PLACES))
    return events.groupBy(counter_id(by).alias("counter_id"), _second().alias("second")).agg(
        F.sum(used).alias("value_sum"),
        F.count_if((F.col("value") >= 0) & ~waited).alias("events"),
        F.count_if(((F.col("value") >= 0) & ~waited) | throttled | rejected).alias("decisions"),
        F.count_if(throttled).alias("throttled"),
        F.count_if(rejected).alias("rejected"),
        F.sum(F.when(is_waiting_produce(), 0).otherwise(told_ms)).alias("throttle_ms_sum"),
        F.max("enforced").alias("enforced"),
        F.max(censored).alias("censored"),
        F.max_by("limit", latest).alias("limit_last"),
    )


def _second() -> Column:
    return F.floor(F.col("ts_us") / 1_000_000)


def _usage(events: DataFrame, by: By, rows: DataFrame) -> DataFrame:
    windows = (
        rows.repartition(partitions(events), "counter_id")
        .sortWithinPartitions("counter_id", "second")
        .mapInArrow(_window_batches, _WINDOWS_SPARK)
    )
    named = windows.join(F.broadcast(counters(events, by)), "counter_id").withColumns(
        {
            "level": F.lit(by),
            "window_start": F.timestamp_seconds("window_start_s"),
            "window_s": F.col("window_s").cast("int"),
            "share_throttled": (F.col("throttled") + F.col("rejected"))
            / F.greatest(F.col("decisions"), F.lit(1)),
        }
    )
    return named.select(
        *_KEY,
        "window_s",
        "events",
        "decisions",
        *_RATES,
        "busy_s",
        "throttled",
        "rejected",
        "throttle_ms_sum",
        "share_throttled",
        *_FLAGS,
        "limit_last",
    )


def _window_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Make windows of rows sorted by counter and second, whenever a counter is complete."""
    buffered: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        ids = batch.column("counter_id").to_numpy()
        # Up to here counters are complete; the last one may go on in the next batch.
        cut = int(np.searchsorted(ids, ids[-1])) if ids[0] != ids[-1] else 0
        if buffered and (cut or buffered[-1].column("counter_id")[-1].as_py() != ids[0]):
            complete = [*buffered, batch.slice(0, cut)]
            yield _windows_of(complete)
            buffered = []
        elif cut:
            yield _windows_of([batch.slice(0, cut)])
        buffered.append(batch.slice(cut))
    if buffered:
        yield _windows_of(buffered)


def _windows_of(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches)
    column = arrays(table)
    rows = len(column["second"])
    first_rows = np.empty(rows + 1, np.int64)
    starts_s = np.empty(rows, np.int64)
    rates = np.empty((k.RATES, rows))
    window = (column["second"] - column["from_s"]) // column["window_s"]
    ordered = column["value_sum"][np.lexsort((column["value_sum"], window, column["counter_id"]))]
    count = k.usage_windows(
        column["counter_id"],
        column["second"],
        column["value_sum"],
        np.full(rows, np.inf),  # the share of the limit has tests of its own
        ordered,
        column["from_s"],
        column["window_s"],
        first_rows,
        starts_s,
        rates,
    )
    begin, end = first_rows[:count], first_rows[1 : count + 1]
    result: dict[str, Array] = {
        "counter_id": column["counter_id"][begin],
        "window_start_s": starts_s[:count],
        "window_s": column["window_s"][begin],
        "busy_s": end - begin,
        "limit_last": column["limit_last"][end - 1],
    }
    result |= {name: rates[place, :count] for name, place in _RATES.items()}
    result |= {name: np.add.reduceat(column[name], begin) for name in _SUMS}
    result |= {name: np.logical_or.reduceat(column[name], begin) for name in _FLAGS}
    return pa.RecordBatch.from_arrays(
        [
            pa.array(result[field.name], field.type, from_pandas=field.name == "limit_last")
            for field in _WINDOWS
        ],
        schema=_WINDOWS,
    )
