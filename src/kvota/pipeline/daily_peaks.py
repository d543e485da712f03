"""The largest rate of each day, of the tenants that come nearest to their limit."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Row
from pyspark.sql import functions as F  # noqa: N812

from kvota.pipeline.chunks import Chunks
from kvota.pipeline.usage_tables import span_s, usage, usage_total

_DAY_S = 86_400
# A day at the begin or the end of the record counts where no more than this is missing of it.
_MISSING_S_MAX = 3_600


@dataclass(frozen=True, slots=True)
class TenantDays:
    """One tenant.

    Attributes:
        total: its row of ``usage_total``.
        peaks: of each whole day with traffic, ascending: the day (since 1970), and its largest rate in ten seconds.
    """

    total: Row
    peaks: Sequence[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class DailyPeaks:
    """Those of a record.

    Attributes:
        tenants: the nearest to their limit first.
        limited: how many have a limit of their own.
        unlimited: how many have none.
        end_s: the last second of the record, Unix.
    """

    tenants: Sequence[TenantDays]
    limited: int
    unlimited: int
    end_s: int


def daily_peaks(chunks: Chunks, tenants_max: int) -> DailyPeaks:
    """Return them, of chunks by user, client or both with ``USAGE_COLUMNS``."""
    has_limit = F.col("limit_binds") & F.col("limit_last").isNotNull()
    totals = usage_total(chunks).withColumn("has_limit", has_limit).persist()
    try:
        counts = {
            row["has_limit"]: row["count"] for row in totals.groupBy("has_limit").count().collect()
        }
        order = (F.col("limit_share").desc_nulls_last(), F.col("value_sum").desc(), "counter_id")
        nearest = totals.where("has_limit").orderBy(*order).limit(tenants_max).collect()
    finally:
        totals.unpersist()
    from_s, window_s = span_s(chunks)
    end_s = from_s + window_s
    peaks: dict[int, list[tuple[int, float]]] = {row["counter_id"]: [] for row in nearest}
    if nearest:
        days = usage(chunks.of_counters(peaks), window_s=_DAY_S)
        in_days = days.withColumn("day", F.unix_seconds("window_start") / F.lit(_DAY_S))
        for row in in_days.select("counter_id", "day", "rate_10s_max").collect():
            peaks[row["counter_id"]].append((int(row["day"]), row["rate_10s_max"]))
    tenants = [
        TenantDays(row, _whole_days(sorted(peaks[row["counter_id"]]), from_s, end_s))
        for row in nearest
    ]
    return DailyPeaks(tenants, counts.get(True, 0), counts.get(False, 0), end_s)


def _whole_days(
    peaks: Sequence[tuple[int, float]], from_s: int, end_s: int
) -> list[tuple[int, float]]:
    """Leave out days that the record has a part of only."""
    return [
        (day, rate)
        for day, rate in peaks
        if day * _DAY_S >= from_s - _MISSING_S_MAX and (day + 1) * _DAY_S <= end_s + _MISSING_S_MAX
    ]
