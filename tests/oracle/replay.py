"""Replays the recorded charges under many candidate quotas at once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from tests.oracle.charges import By, charges, counters, partitions
from tests.oracle.grid_run import RESULT_SPARK, Grid, grid_stage

from kvota.model.bucket_settings import BucketSettings
from kvota.model.errors import UsageError
from kvota.model.quota_type import Algorithm
from kvota.model.quota_window import QuotaWindow

Mode = Literal["open", "backlog", "think"]

# Kafka's window, for charges from a time when no quota of their type existed.
_DEFAULT_WINDOW = QuotaWindow()
_DEFAULT_BUCKET = BucketSettings()


@dataclass(frozen=True, slots=True)
class Factors:
    """Candidates that are multiples of the limit in force at each row (no limit: unlimited)."""

    factors: Sequence[float]


@dataclass(frozen=True, slots=True)
class OfCounters:
    """Candidates for each counter, by counter_id; a counter without any is left out."""

    quotas: Mapping[int, Sequence[float]]


Candidates = Sequence[float] | Factors | OfCounters


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """How charges are counted in a replay; what is None is as recorded.

    Attributes:
        algorithm: of bandwidth; mutations have but one.
        window: of sampled rates and mutations; Kafka's 11 x 1 s where none was recorded.
        burst_ms: of bandwidth by ``token_bucket``; 1 s where none was recorded.
        debt_max_ms: a Produce that comes while more is owed waits for its turn; no row says it.

    Raises:
        UsageError: a burst below 1 ms, a debt below 0.
    """

    algorithm: Algorithm | None = None
    window: QuotaWindow | None = None
    burst_ms: int | None = None
    debt_max_ms: int = _DEFAULT_BUCKET.debt_max_ms

    def __post_init__(self) -> None:
        """Refuse what cannot be counted with."""
        burst_ms = _DEFAULT_BUCKET.burst_ms if self.burst_ms is None else self.burst_ms
        try:
            BucketSettings(burst_ms=burst_ms, debt_max_ms=self.debt_max_ms)
        except ValueError as error:
            raise UsageError(str(error)) from error


AS_RECORDED = Counted()


def replay(
    events: DataFrame,
    candidates: Candidates,
    *,
    by: By = "counter",
    counted: Counted = AS_RECORDED,
    mode: Mode = "open",
    quota_types: Iterable[str] | None = None,
) -> DataFrame:
    """Replay the recorded charges under candidate quotas; one row per counter and candidate.

    In:  the events table.
    Out: counter_id long, gateway, run_id string, node_id int, quota_type, tags, user, client_id string,
         algorithm, mode string, samples, sample_ms int (the last ones), candidate int, quota double, events long,
         value_sum double, over long, throttle_ms_sum, throttled_ms double (union of the throttled
         spans), worst_ms, value_within double, rejected long, delay_ms_sum, delay_ms_max double
         (closed modes), span_ms, warmup_ms long, share_over, share_throttled double.

    Args:
        events: what was recorded.
        candidates: quotas per second for every counter, or ``Factors``, or ``OfCounters``.
        by: the counters as recorded, or made anew per user, client id or both.
        counted: by which algorithm, and how; else each row as recorded.
        mode: ``open``: requests come when they came; ``backlog``: a throttled client's requests
            wait; ``think``: every throttle shifts all that follows. The truth lies between.
        quota_types: None: all that can be replayed.

    Raises:
        UsageError: a candidate is not above 0.
    """
    rows = ordered_charges(events, by, counted=counted, quota_types=quota_types)
    replayed = replay_ordered(rows, candidates, mode)
    bucket_or_rate = F.when(F.col("bucket"), Algorithm.TOKEN_BUCKET.value).otherwise(
        Algorithm.SAMPLED_RATE.value
    )
    return replayed.join(F.broadcast(counters(events, by)), "counter_id").select(
        "counter_id",
        "gateway",
        "run_id",
        "node_id",
        "quota_type",
        "tags",
        "user",
        "client_id",
        bucket_or_rate.alias("algorithm"),
        F.lit(mode).alias("mode"),
        *(name for name in replayed.columns if name not in {"counter_id", "bucket"}),
    )


def ordered_charges(
    events: DataFrame,
    by: By = "counter",
    *,
    counted: Counted = AS_RECORDED,
    quota_types: Iterable[str] | None = None,
) -> DataFrame:
    """Return the charges as ``replay_ordered`` takes them: a counter in one partition, in order.

    Rows of waits are left out: each of these requests went on later, and is in the record once more.
    The rows are worth keeping (``persist``) where several replays follow.
    """
    debt = F.col("debt")
    if counted.algorithm is not None:
        is_bucket = F.lit(counted.algorithm == Algorithm.TOKEN_BUCKET)
        debt = ~(F.col("bucket") | F.col("brief")) & is_bucket
    rows = charges(events, by, quota_types=quota_types).withColumns(
        {
            "debt": debt,
            # Infinite: nobody waits for a turn.
            "debt_max_ms": F.when(F.col("queues"), float(counted.debt_max_ms)).otherwise(inf),
            "samples": F.when(debt, 1).otherwise(_window_column("samples", counted)),
            "sample_ms": F.when(debt, _burst_column(counted)).otherwise(
                _window_column("sample_ms", counted)
            ),
        }
    )
    order = ("seq",) if by == "counter" else ("ts_us", "run", "seq")
    return (
        rows.where(~F.col("waited"))
        .drop("waited", "queues", "refused", "throttle_ms", "outcome")
        .repartition(partitions(events), "counter_id")
        .sortWithinPartitions("counter_id", *order)
    )


def replay_ordered(rows: DataFrame, candidates: Candidates, mode: Mode = "open") -> DataFrame:
    """Replay prepared rows; the result names a counter by counter_id and bucket only."""
    replayed = rows.mapInArrow(grid_stage(_grid(candidates, mode)), RESULT_SPARK)
    return replayed.withColumns(
        {
            "share_over": F.col("over") / F.greatest(F.col("events"), F.lit(1)),
            "share_throttled": F.least(F.col("throttled_ms") / F.col("span_ms"), F.lit(1.0)),
        }
    )


def _grid(candidates: Candidates, mode: Mode) -> Grid:
    if isinstance(candidates, OfCounters):
        for quotas in candidates.quotas.values():
            _check(quotas)
        of_counters = {key: tuple(quotas) for key, quotas in candidates.quotas.items() if quotas}
        return Grid(of_counters=of_counters, mode=mode)
    relative = isinstance(candidates, Factors)
    quotas = candidates.factors if isinstance(candidates, Factors) else candidates
    if not quotas:
        msg = "no candidate quota was given; write e.g. --candidates 2MB/s,4MB/s"
        raise UsageError(msg)
    _check(quotas)
    return Grid(quotas=tuple(quotas), relative=relative, mode=mode)


def _check(quotas: Sequence[float]) -> None:
    for quota in quotas:
        if not (quota > 0 and isfinite(quota)):
            msg = f"candidate {quota}: a quota has to be above 0 and finite, as in Kafka"
            raise UsageError(msg)


def _window_column(name: str, counted: Counted) -> Column:
    if counted.window is not None:
        return F.lit(getattr(counted.window, name))
    unknown = F.col("debt") | (F.col("samples") == 0)
    return F.when(unknown, F.lit(getattr(_DEFAULT_WINDOW, name))).otherwise(F.col(name))


def _burst_column(counted: Counted) -> Column:
    if counted.burst_ms is not None:
        return F.lit(counted.burst_ms)
    known = F.col("debt") & (F.col("samples") > 0)
    return F.when(known, F.col("sample_ms")).otherwise(F.lit(_DEFAULT_BUCKET.burst_ms))
