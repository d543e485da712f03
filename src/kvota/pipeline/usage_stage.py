"""Sums up one task's tenants: rows in, windows with exact quantiles out. Pure."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kvota.model.quota_type import QuotaType
from kvota.pipeline import chunk_schema as s
from kvota.pipeline import counters as c
from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.charged import has
from kvota.pipeline.kernels import usage_kernel as k
from kvota.pipeline.unpack import Rows

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
    "events": k.EVENTS,
    "decisions": k.FURTHER,
    "throttled": k.THROTTLED_ROWS,
    "rejected": k.REJECTED_ROWS,
    "throttle_ms_sum": k.TOLD_MS,
}
_FLAGS = {"enforced": k.IS_ENFORCED, "censored": k.IS_CENSORED}

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


def usage_stage(windows: Windows) -> Callable[[Iterator[Rows]], Iterator[pa.RecordBatch]]:
    """Make the function that sums up all tenants of a task."""

    def stage(parts: Iterator[Rows]) -> Iterator[pa.RecordBatch]:
        for seconds in of_whole_counters(parts):
            yield _windows(seconds, windows)

    return stage


@dataclass(frozen=True, slots=True)
class Seconds:
    """What tenants did in the seconds in which they did something; a column per second."""

    names: pa.RecordBatch
    sums: Array
    used: Array

    def part(self, start: int, end: int) -> "Seconds":
        """Return some of the seconds."""
        return Seconds(self.names, self.sums[:, start:end], self.used[:, start:end])


def of_whole_counters(parts: Iterator[Rows]) -> "Iterator[Seconds]":
    """Yield the seconds of all rows, each counter's at once."""
    held: Seconds | None = None
    for rows in parts:
        seconds = _seconds(rows, held)
        last = int(np.searchsorted(seconds.sums[k.OWNER], len(rows.names) - 1))
        if last:
            yield seconds.part(0, last)
        held = seconds.part(last, seconds.sums.shape[1])
    if held is not None and held.sums.shape[1]:
        yield held


def _seconds(rows: Rows, held: Seconds | None) -> Seconds:
    """Sum up seconds; those that are held are of the first tenant, whose last second may go on."""
    length = int(rows.starts[-1])
    before = 0 if held is None else held.sums.shape[1]
    sums = np.empty((k.SUMS, length + before), np.int64)
    used = np.empty((k.USED_ROWS, length + before))
    if held is not None:
        sums[:, :before], used[:, :before] = held.sums, held.used
        sums[k.OWNER, :before] = 0
    columns = rows.columns
    count = k.sum_seconds(
        rows.starts,
        c.is_of(rows.names, QuotaType.FETCH),
        c.is_of(rows.names, QuotaType.PRODUCE),
        columns["ts_us"],
        columns["value"],
        columns["limit"],
        columns["marks"] & s.OUTCOME_MASK,
        has(rows, s.ENFORCED),
        has(rows, s.LIMIT_BINDS),
        has(rows, s.OTHER_TAGS),
        columns["throttle_ms"],
        columns["upstream_ms"],
        before,
        sums,
        used,
    )
    return Seconds(rows.names, sums[:, :count], used[:, :count])


def _windows(seconds: Seconds, windows: Windows) -> pa.RecordBatch:
    sums = seconds.sums
    owner, second = np.ascontiguousarray(sums[k.OWNER]), np.ascontiguousarray(sums[k.SECOND])
    used = np.ascontiguousarray(seconds.used[k.USED])
    rows = len(owner)
    first_rows, starts_s = np.empty(rows + 1, np.int64), np.empty(rows, np.int64)
    rates, ordered = np.empty((k.RATES, rows)), np.empty(rows)
    limits = np.ascontiguousarray(seconds.used[k.LARGEST])
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
    found |= {name: np.maximum.reduceat(sums[place], begin) > 0 for name, place in _FLAGS.items()}
    found["decisions"] += found["events"]
    not_admitted = found["throttled"] + found["rejected"]
    found |= {
        "window_start": (starts_s[:count] * 1_000_000).astype("datetime64[us]"),
        "window_s": np.full(count, windows.window_s, np.int64),
        "busy_s": (end - begin).astype(np.int32),
        "share_throttled": not_admitted / np.maximum(found["decisions"], 1),
        "limit_last": seconds.used[k.LIMIT][end - 1],
        "limit_binds": sums[k.LIMIT_BINDS][end - 1] > 0,
        "has_other_tags": sums[k.HAS_OTHER_TAGS][end - 1] > 0,
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
