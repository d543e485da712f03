"""Reads the charges of the record, each with its counter and its place in that counter's order."""

import operator
from collections.abc import Iterable
from functools import reduce
from typing import Literal

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (everybody's name for it)

from kvota.model.event import Outcome
from kvota.model.quota_type import BYTE_RATE_TYPES, FACTS, Algorithm, QuotaType, types_counted_by
from kvota.model.strict_mutations import STRICT_FROM
from kvota.model.tags import CLIENT_ID_TAG, USER_TAG, sanitise

# Charges share counters as they did in the gateway, or anew per user, client id or both.
By = Literal["counter", "user", "client", "user-client"]

COUNTER_COLUMNS = ("gateway", "run_id", "node_id", "quota_type", "tags")

# The columns that make a counter. Counters made anew span all gateways and runs.
_KEYS: dict[By, tuple[str, ...]] = {
    "counter": COUNTER_COLUMNS,
    "user": ("node_id", "quota_type", "user"),
    "client": ("node_id", "quota_type", "client_id"),
    "user-client": ("node_id", "quota_type", "user", "client_id"),
}

# The quota types that can be replayed so far; others have no kernel yet. Bandwidth can be counted by
# either algorithm, request time by Kafka's sampled rate only and mutations by its token bucket.
BANDWIDTH_TYPES = tuple(kind.value for kind in BYTE_RATE_TYPES)
REQUEST_TIME_TYPES = (QuotaType.REQUEST.value,)
BUCKET_TYPES = tuple(kind.value for kind in types_counted_by(Algorithm.TOKEN_BUCKET))

# A run counts as complete if it begins with this seq or a lower one. seq counts from 0, and one lost
# row would hardly change anything.
_FIRST_SEQ_MAX = 1


def charges(
    events: DataFrame, by: By = "counter", *, quota_types: Iterable[str] | None = None
) -> DataFrame:
    """Return one row per charge that can be replayed, with its counter and its order.

    In:  the events table, whole: whether a run is complete is seen from its first row. Of it only
         the ``quota_types`` asked for, if any.
    Out: counter_id long, run int (rank of gateway and run_id), seq long, ts_us long, bucket boolean
         (the token bucket of mutations), brief boolean (no throttle is longer than a sample), debt boolean (the one of bandwidth; neither: a sampled rate),
         strict boolean, queues boolean (a Produce: it waits for its turn where the debt is large),
         value double, limit double, floor double (a limit below it blocks), samples int, sample_ms
         int, complete boolean (the run's first row is in the record), refused boolean (bandwidth that
         was rejected), waited boolean (the row is of a wait, the request has another one), throttle_ms
         int, outcome string.

    Within a counter the order is seq; for counters made anew (ts_us, gateway, run_id, seq).
    """
    # Where counters are kept as recorded, seq alone is the order, and the rank is not asked for.
    ranked = F.dense_rank().over(Window.orderBy("gateway", "run_id"))
    of_runs = runs(events).select(
        "gateway",
        "run_id",
        (F.lit(0) if by == "counter" else ranked).alias("run"),
        (F.col("first_seq") <= _FIRST_SEQ_MAX).alias("complete"),
    )
    wanted = {*BANDWIDTH_TYPES, *REQUEST_TIME_TYPES, *BUCKET_TYPES}
    if quota_types is not None:
        wanted &= set(quota_types)
    is_known = F.col("algorithm").isin(*(algorithm.value for algorithm in Algorithm))
    chosen = events.where(F.col("quota_type").isin(*sorted(wanted)) & is_known)
    with_run = chosen.join(F.broadcast(of_runs), ["gateway", "run_id"])
    return with_run.select(
        counter_id(by).alias("counter_id"),
        "run",
        "seq",
        "ts_us",
        F.col("quota_type").isin(*BUCKET_TYPES).alias("bucket"),
        F.col("quota_type").isin(*REQUEST_TIME_TYPES).alias("brief"),
        _is_debt().alias("debt"),
        _is_strict().alias("strict"),
        (F.col("quota_type") == QuotaType.PRODUCE.value).alias("queues"),
        "value",
        "limit",
        _floor().alias("floor"),
        F.coalesce(F.col("samples").cast("int"), F.lit(0)).alias("samples"),
        F.coalesce(F.col("sample_ms"), F.lit(0)).alias("sample_ms"),
        "complete",
        _is_refused().alias("refused"),
        is_wait().alias("waited"),
        "throttle_ms",
        "outcome",
    )


def counters(events: DataFrame, by: By = "counter") -> DataFrame:
    """Return one row per counter.

    Out: counter_id long, gateway string, run_id string, node_id int, quota_type string, tags string,
         user string, client_id string (null: not part of the counter).

    Two counters with one id fail loudly: they are never merged.
    """
    # Few rows, and they are broadcast afterwards: one partition spares a shuffle.
    keys = events.select(counter_id(by).alias("counter_id"), *_KEYS[by]).distinct().coalesce(1)
    same_id = F.count("*").over(Window.partitionBy("counter_id"))
    collision = F.raise_error(F.lit("two counters have the same counter_id")).cast("boolean")
    checked = (
        keys.withColumn("same_id", same_id)
        .where(F.when(F.col("same_id") > 1, collision).otherwise(F.col("same_id") == 1))
        .drop("same_id")
    )
    named = checked if by == "counter" else _tagged(checked, by)
    return named.select(
        "counter_id",
        *COUNTER_COLUMNS,
        _unless_empty(tag_value(USER_TAG)).alias("user"),
        _unless_empty(tag_value(CLIENT_ID_TAG)).alias("client_id"),
    )


def runs(events: DataFrame) -> DataFrame:
    """Return one row per run of a gateway.

    Out: gateway, run_id string, first_seq, last_seq, rows, missing long.

    ``seq`` has no gaps, so ``missing`` rows were lost (negative: some are there twice).
    """
    rows = events.groupBy("gateway", "run_id").agg(
        F.min("seq").alias("first_seq"), F.max("seq").alias("last_seq"), F.count("*").alias("rows")
    )
    missing = F.col("last_seq") - F.col("first_seq") + 1 - F.col("rows")
    return rows.coalesce(1).withColumn("missing", missing)


def counter_id(by: By) -> Column:
    """Return a number for a charge's counter, the same in every job."""
    return F.xxhash64(*_KEYS[by])


def _tagged(keys: DataFrame, by: By) -> DataFrame:
    user = F.lit("") if by == "client" else _encoded("user")
    client_id = F.lit("") if by == "user" else _encoded("client_id")
    return keys.withColumns(
        {
            "gateway": F.lit(""),
            "run_id": F.lit(""),
            # As ``model.tags.tags_text`` writes these two.
            "tags": F.concat(F.lit(f"{CLIENT_ID_TAG}="), client_id, F.lit(f",{USER_TAG}="), user),
        }
    )


def partitions(events: DataFrame) -> int:
    """Return how many tasks share the counters."""
    return int(events.sparkSession.conf.get("spark.sql.shuffle.partitions") or "2")


def _is_strict() -> Column:
    key, version = F.col("api_key"), F.col("api_version")
    strict = [(key == api) & (version >= since) for api, since in STRICT_FROM.items()]
    is_mutation = F.col("quota_type") == QuotaType.CONTROLLER_MUTATION.value
    return F.coalesce(is_mutation & reduce(operator.or_, strict), F.lit(col=False))


def _is_debt() -> Column:
    is_bucket = F.col("algorithm").eqNullSafe(Algorithm.TOKEN_BUCKET.value)
    return is_bucket & F.col("quota_type").isin(*BANDWIDTH_TYPES)


def is_waiting_fetch() -> Column:
    """Return a column that is true for the row of a Fetch that waited, or got an empty answer; never null.

    In shadow mode neither happens: a rejected row is its request's only one.
    """
    return (F.col("quota_type") == QuotaType.FETCH.value) & _is_refused() & _is_held()


def is_waiting_produce() -> Column:
    """Return a column that is true for the row of a Produce that waited for its turn; never null.

    In shadow mode nobody waits: a rejected row is its request's only one.
    """
    return (F.col("quota_type") == QuotaType.PRODUCE.value) & _is_refused() & _is_held()


def is_wait() -> Column:
    """Return a column that is true for rows of waits: the request has another row where it went on."""
    return is_waiting_fetch() | is_waiting_produce()


def _is_held() -> Column:
    return F.coalesce(F.col("enforced"), F.lit(col=False))


def _is_refused() -> Column:
    is_bandwidth = F.col("quota_type").isin(*BANDWIDTH_TYPES)
    return is_bandwidth & F.col("outcome").eqNullSafe(Outcome.REJECTED.value)


def _encoded(column: str) -> Column:
    """Percent-encode a name as the engine's tags are (Kafka ``Sanitizer``)."""
    plus_for_space = F.url_encode(F.coalesce(F.col(column), F.lit("")))
    return F.replace(F.replace(plus_for_space, F.lit("+"), F.lit("%20")), F.lit("*"), F.lit("%2A"))


def tag_value(key: str) -> Column:
    """The plain value of one of the tags; null where they have no such key. Any key can be asked for."""
    pairs = F.str_to_map("tags", F.lit(","), F.lit("="))
    return F.try_url_decode(F.try_element_at(pairs, F.lit(sanitise(key))))


def _unless_empty(value: Column) -> Column:
    """Null for an empty text: Kafka's own tags always have both keys, an unused one is empty."""
    return F.when(value != "", value)


def _floor() -> Column:
    floors = F.create_map(
        *(F.lit(entry) for kind, facts in FACTS.items() for entry in (kind.value, facts.floor))
    )
    return F.coalesce(F.try_element_at(floors, F.col("quota_type")), F.lit(0.0))
