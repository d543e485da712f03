"""Says when tenants outgrow their quotas, from the days of a record, and makes a table of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from kvota.pipeline.chunks import Chunks
from kvota.pipeline.counters import ID_TYPES
from kvota.pipeline.daily_peaks import daily_peaks
from kvota.pipeline.volume_tables import moment
from kvota.planning.outgrowing import Outgrowing, outgrowing

# So many of those nearest to their limit are looked at; one that grows fast from far below it is not among them.
TENANTS_MAX = 1_000

_TOTALS = ("counter_id", "quota_type", "level", "user", "client_id", "node_id", "enforced")
TENANT_FORECAST = t.StructType(
    [
        t.StructField("as_of", t.TimestampType(), nullable=False),
        t.StructField("counter_id", t.LongType(), nullable=False),
        t.StructField("quota_type", t.StringType()),
        t.StructField("level", t.StringType()),
        t.StructField("user", t.StringType()),
        t.StructField("client_id", t.StringType()),
        t.StructField("node_id", t.IntegerType()),
        t.StructField("enforced", t.BooleanType()),
        t.StructField("throttled", t.BooleanType()),
        t.StructField("limit", t.DoubleType()),
        t.StructField("peak", t.DoubleType()),
        *(t.StructField(f"growth_per_day_p{share}", t.DoubleType()) for share in (10, 50, 90)),
        *(t.StructField(f"days_to_limit_p{share}", t.DoubleType()) for share in (10, 50, 90)),
        t.StructField("days", t.IntegerType()),
        t.StructField("short", t.BooleanType()),
    ]
)


@dataclass(frozen=True, slots=True)
class TenantAhead:
    """One tenant.

    Attributes:
        total: its row of ``usage_total``.
        found: how it grows; None: fewer than two whole days.
    """

    total: Mapping[str, Any]
    found: Outgrowing | None

    @property
    def is_throttled(self) -> bool:
        """Whether its rate is held down, so that it may want more than its days show."""
        return bool(self.total["throttled"] or self.total["rejected"])


@dataclass(frozen=True, slots=True)
class TenantsAhead:
    """Those of a record.

    Attributes:
        rows: what is outgrown first before all others.
        limited: how many have a limit of their own.
        unlimited: how many have none.
        end_s: the last second of the record, Unix.
    """

    rows: Sequence[TenantAhead]
    limited: int
    unlimited: int
    end_s: int


def tenants_ahead(chunks: Chunks, tenants_max: int = TENANTS_MAX) -> TenantsAhead:
    """Forecast the tenants that are nearest to their limits.

    Args:
        chunks: by user, client or both, with ``USAGE_COLUMNS``; new producer ids in it are left out.
        tenants_max: so many are looked at.
    """
    peaks = daily_peaks(chunks.but_types(ID_TYPES), tenants_max)
    rows = []
    for tenant in peaks.tenants:
        total = tenant.total.asDict()
        rows.append(TenantAhead(total, outgrowing(tenant.peaks, total["limit_last"])))
    return TenantsAhead(sorted(rows, key=_order), peaks.limited, peaks.unlimited, peaks.end_s)


def tenant_forecast_table(spark: SparkSession, ahead: TenantsAhead) -> DataFrame:
    """Return the table ``tenant_forecast``: a row for each tenant that was looked at.

    Out: as_of timestamp (the end of the record), counter_id long (both: the key), quota_type, level, user, client_id
         string, node_id int, enforced, throttled boolean, limit double (in force at last), peak double (what its days
         reach now), growth_per_day_p10, _p50, _p90 double (of the peak), days_to_limit_p10, _p50, _p90 double (null:
         never at this growth), days int, short boolean. Peak and growth are null where there are fewer than two days.
    """
    as_of = moment(ahead.end_s * 1_000_000)
    return spark.createDataFrame([(as_of, *_row(row)) for row in ahead.rows], TENANT_FORECAST)


def _row(row: TenantAhead) -> tuple[object, ...]:
    found = row.found
    of_days: tuple[object, ...] = (*[None] * 7, 0, True)
    if found is not None:
        of_days = (
            found.peak,
            found.growth_low,
            found.growth_per_day,
            found.growth_high,
            found.days_p10,
            found.days_p50,
            found.days_p90,
            found.days,
            found.is_short,
        )
    names = (row.total[name] for name in _TOTALS)
    return (*names, row.is_throttled, row.total["limit_last"], *of_days)


def _order(row: TenantAhead) -> tuple[float, float, float]:
    """What is outgrown first; then what is nearest."""
    never = float("inf")
    if row.found is None:
        return never, never, -(row.total["limit_share"] or 0.0)
    middle, early = row.found.days_p50, row.found.days_p10
    return (
        never if middle is None else middle,
        never if early is None else early,
        -row.found.peak / row.total["limit_last"],
    )
