"""Makes tables of looks at volumes, and of when volumes reach their limits."""

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from kvota.model.volume_row import VOLUME_COLUMNS
from kvota.pipeline.events import hadoop_pattern, schema_of
from kvota.record.volume_looks import left_out, look_files
from kvota.volumes.limits_ahead import Ahead, LimitAhead

logger = logging.getLogger(__name__)

OBSERVATIONS = schema_of(VOLUME_COLUMNS)
FORECAST = t.StructType(
    [
        t.StructField("as_of", t.TimestampType(), nullable=False),
        t.StructField("observer", t.StringType()),
        t.StructField("broker_id", t.IntegerType()),
        t.StructField("log_dirs", t.ArrayType(t.StringType()), nullable=False),
        t.StructField("device", t.StringType()),
        t.StructField("limit_kind", t.StringType(), nullable=False),
        t.StructField("limit_bytes", t.LongType()),
        t.StructField("used_bytes", t.LongType()),
        t.StructField("total_bytes", t.LongType()),
        *(t.StructField(f"growth_per_day_p{share}", t.DoubleType()) for share in (10, 50, 90)),
        *(t.StructField(f"hours_to_limit_p{share}", t.DoubleType()) for share in (10, 50, 90)),
        t.StructField("probability", t.DoubleType()),
        t.StructField("horizon_h", t.IntegerType()),
        t.StructField("history_h", t.IntegerType()),
        t.StructField("resets", t.IntegerType()),
        t.StructField("method", t.StringType()),
        t.StructField("skill", t.DoubleType()),
    ]
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(unix_us: int) -> datetime:
    """Return a moment to the microsecond, which floating seconds would round."""
    return _EPOCH + timedelta(microseconds=int(unix_us))


def read_observations(spark: SparkSession, *places: Path | str) -> DataFrame:
    """Read the table ``volume_observation`` from folders of a record; bad files are left out, with a warning logged.

    Out: the columns of ``model.volume_row.VOLUME_COLUMNS``, null where a file lacks one. A look that has failed is
         a row without a volume.

    Raises:
        UsageError: a folder is not there, or not on this machine.
    """
    patterns = []
    for path in look_files(places):
        try:
            pq.read_schema(path)
        except (OSError, pa.ArrowException) as error:
            if path.exists():  # else removed by the gateway meanwhile, because it was old
                logger.warning("%s", left_out(path, error))
            continue
        patterns.append(hadoop_pattern(f"file:{path.absolute()}"))
    if not patterns:
        return spark.createDataFrame([], OBSERVATIONS)
    return spark.read.schema(OBSERVATIONS).parquet(*patterns)


def forecast_table(spark: SparkSession, ahead: Ahead) -> DataFrame:
    """Return the table ``forecast``: a row for each limit of each volume.

    Out: as_of timestamp (the last look), observer string (whose machine it is of; null: a broker's), broker_id int,
         log_dirs array of strings, limit_kind string (all these: the key), device string, limit_bytes, used_bytes,
         total_bytes long, growth_per_day_p10, _p50, _p90 double (bytes), hours_to_limit_p10, _p50, _p90 double
         (null: later than the horizon), probability double (within it; null: too few looks), horizon_h, history_h,
         resets int, method string, skill double (null: not tried).
    """
    return spark.createDataFrame([_row(row) for row in ahead.rows], FORECAST)


def _row(row: LimitAhead) -> tuple[object, ...]:
    history, forecast, reached = row.history, row.forecast, row.reached
    return (
        moment(forecast.as_of_us),
        history.observer or None,
        history.broker_id,
        list(history.log_dirs),
        history.device,
        row.kind,
        round(row.limit_bytes),
        round(forecast.used_bytes),
        int(history.total_bytes[-1]),
        *(forecast.growth_per_day(share) for share in (0.1, 0.5, 0.9)),
        reached.hours_p10,
        reached.hours_p50,
        reached.hours_p90,
        reached.probability,
        len(forecast.paths[0]),
        forecast.history_h,
        forecast.resets,
        forecast.method,
        forecast.skill,
    )
