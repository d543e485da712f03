"""Makes a table of a plan, for those who keep plans beside the other tables."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from kvota.pipeline.recommendation import Recommendation

_TEXTS = ("plan_id", "quota_type", "level")
RECOMMENDATION = t.StructType(
    [
        *(t.StructField(name, t.StringType(), nullable=False) for name in _TEXTS),
        t.StructField("user", t.StringType()),
        t.StructField("client_id", t.StringType()),
        t.StructField("weight", t.DoubleType()),
        t.StructField("need", t.DoubleType()),
        t.StructField("need_low", t.DoubleType()),
        t.StructField("need_high", t.DoubleType()),
        t.StructField("censored", t.BooleanType()),
        t.StructField("fair_share", t.DoubleType()),
        t.StructField("current", t.DoubleType()),
        t.StructField("proposed", t.DoubleType()),
        t.StructField("reason", t.StringType()),
        t.StructField("behaves", t.BooleanType()),
        t.StructField("share_open", t.DoubleType()),
        t.StructField("share_closed", t.DoubleType()),
        t.StructField("events_holdout", t.LongType()),
        t.StructField("events", t.LongType()),
        t.StructField("days", t.DoubleType()),
        t.StructField("guardrails", t.ArrayType(t.StringType())),
        t.StructField("evidence", t.StringType()),
    ]
)


def recommendation_table(spark: SparkSession, recommendation: Recommendation) -> DataFrame:
    """Return the table ``recommendation``: a row for each tenant that was planned for.

    Out: plan_id, quota_type, level, user, client_id string (the key; user or client_id null: not part of the
         level), weight, need, need_low, need_high double (need null: not known), censored boolean, fair_share,
         current, proposed double (null: none), reason string, behaves boolean, share_open, share_closed double
         (null: without proof), events_holdout, events long, days double, guardrails array of strings,
         evidence string. Quotas and needs are per second, in the quota type's unit.
    """
    names = RECOMMENDATION.fieldNames()
    doubles = {field.name for field in RECOMMENDATION if field.dataType == t.DoubleType()}
    rows = [
        tuple(_value(row[name], is_double=name in doubles) for name in names)
        for row in recommendation.rows()
    ]
    return spark.createDataFrame(rows, RECOMMENDATION)


def _value(value: object, *, is_double: bool) -> object:
    return float(value) if is_double and isinstance(value, int) else value
