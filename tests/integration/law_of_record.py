"""The law on what a gateway has recorded: by the command as users run it, or in the Spark session that all tests share."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from kvota.pipeline import LAW_COLUMNS, LawResult, chunks_of_files, find_events, law


def law_by_command(record: Path) -> subprocess.CompletedProcess[str]:
    """``kvota replay --law`` as users run it."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "kvota.app.cli.main", "replay", "--law", "--events"),
            str(record),
        ],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def law_of(spark: SparkSession, record: Path) -> LawResult:
    """What the command's work finds."""
    return law(chunks_of_files(spark, find_events([record]), further=LAW_COLUMNS))


def with_limits_off(record: Path, folder: Path, which: Callable[[pa.Table], pa.Array]) -> int:
    """Write the record anew with the limits of some rows a thousandth too high; returns how many rows."""
    count = 0
    for file in record.glob("*.parquet"):
        rows = pq.read_table(file)
        meant = which(rows)
        count += pc.sum(meant).as_py() or 0
        wrong = pc.if_else(meant, pc.multiply(rows["limit"], 1.001), rows["limit"])
        column = rows.schema.get_field_index("limit")
        rows = rows.set_column(column, rows.schema.field("limit"), wrong)
        pq.write_table(rows, folder / file.name)
    return count
