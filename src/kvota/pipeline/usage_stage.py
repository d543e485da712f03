"""Sums up one task's tenants: seconds in, windows with exact quantiles out. Pure."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kvota.pipeline import chunk_schema as s
from kvota.pipeline import counters as c
from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.kernels import second_sums as of
from kvota.pipeline.kernels import usage_kernel as k
from kvota.pipeline.seconds import Seconds

_RATES = {
    "value_sum": k.VALUE,
    "rate_mean": k.MEAN,
    "rate_p50": k.P50,
    "rate_p95": k.P95,
    "rate_p99": k.P99,
    "rate_max": k.MOST,
    "rate_10s_max": k.MOST_10S,
    "limit_share": k.LIMIT_SHARE,
}
_SUMS = {
    "events": of.OF_EVENTS,
    "decisions": of.OF_FURTHER,
    "throttled": of.OF_THROTTLED,
    "rejected": of.OF_REJECTED,
    "throttle_ms_sum": of.OF_TOLD_MS,
}

# NaN stands for null in these.
_MAY_LACK = ("limit_last", "limit_share")

WINDOWS = pa.schema(
    [
        ("counter_id", pa.int64()),
        ("quota_type", pa.string()),
        ("level", pa.string()),
        ("user", pa.string()),
        ("client_id", pa.string()),
        ("tags", pa.string()),
        ("node_id", pa.int32()),
        ("window_start", pa.timestamp("us", tz="UTC")),
        ("window_s", pa.int64()),
        ("events", pa.int64()),
        ("decisions", pa.int64()),
        *((name, pa.float64()) for name in _RATES),
        ("busy_s", pa.int32()),
        ("throttled", pa.int64()),
        ("rejected", pa.int64()),
        ("throttle_ms_sum", pa.int64()),
        ("share_throttled", pa.float64()),
        ("enforced", pa.bool_()),
        ("censored", pa.bool_()),
        ("limit_last", pa.float64()),
        ("limit_binds", pa.bool_()),
        ("has_other_tags", pa.bool_()),
    ]
)


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of ``window_s`` seconds, counted from ``from_s`` (Unix seconds) on."""

    level: s.By
    from_s: int
    window_s: int


def usage_stage(windows: Windows) -> Callable[[Iterator[Seconds]], Iterator[pa.RecordBatch]]:
    """Make the function that makes windows of all tenants of a task."""

    def stage(every: Iterator[Seconds]) -> Iterator[pa.RecordBatch]:
        for seconds in every:
            yield _windows(seconds, windows)

    return stage


def _windows(seconds: Seconds, windows: Windows) -> pa.RecordBatch:
    sums, doubles = seconds.sums, seconds.doubles
    owner, second = seconds.row(of.OF_OWNER), seconds.row(of.OF_SECOND)
    used = seconds.used
    rows = len(owner)
    first_rows, starts_s = np.empty(rows + 1, np.int64), np.empty(rows, np.int64)
    rates, ordered = np.empty((k.RATES, rows)), np.empty(rows)
    limits = np.ascontiguousarray(doubles[of.OF_LARGEST])
    k.order_windows(owner, second, used, windows.from_s, windows.window_s, ordered)
    count = k.usage_windows(
        owner,
        second,
        used,
        limits,
        ordered,
        np.full(rows, windows.from_s),
        np.full(rows, windows.window_s),
        first_rows,
        starts_s,
        rates,
    )
    begin, end = first_rows[:count], first_rows[1 : count + 1]
    found: dict[str, Array] = {name: rates[place, :count] for name, place in _RATES.items()}
    found |= {name: np.add.reduceat(sums[place], begin) for name, place in _SUMS.items()}
    found["decisions"] += found["events"]
    not_admitted = found["throttled"] + found["rejected"]
    marks = np.bitwise_or.reduceat(sums[of.OF_MARKS], begin)
    last_marks = sums[of.OF_MARKS][end - 1]
    found |= {
        "window_start": (starts_s[:count] * 1_000_000).astype("datetime64[us]"),
        "window_s": np.full(count, windows.window_s, np.int64),
        "busy_s": (end - begin).astype(np.int32),
        "share_throttled": not_admitted / np.maximum(found["decisions"], 1),
        "enforced": (marks & s.ENFORCED) > 0,
        "censored": (marks & s.CENSORED) > 0,
        "limit_last": doubles[of.OF_LIMIT][end - 1],
        "limit_binds": (last_marks & s.LIMIT_BINDS) > 0,
        "has_other_tags": (last_marks & s.OTHER_TAGS) > 0,
    }
    owners = pa.array(owner[begin])
    named = c.named(seconds.names).take(owners)
    return pa.RecordBatch.from_arrays(
        [_column(part, found, named, windows.level) for part in WINDOWS],
        schema=WINDOWS,
    )


def _column(
    part: pa.Field, found: dict[str, Array], named: pa.RecordBatch, level: s.By
) -> pa.Array:
    if part.name == "level":
        return pa.array([level]).take(pa.array(np.zeros(len(named), np.int64)))
    if part.name == "tags" and level != "tags":  # they would be made of the names
        return pa.nulls(len(named), part.type)
    if part.name not in found:
        return named.column(part.name)
    values = found[part.name]
    mask = np.isnan(values) if part.name in _MAY_LACK else None
    return pa.array(values, mask=mask).cast(part.type)
