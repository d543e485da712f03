"""Saves a table to Delta Lake or Iceberg, replaces it, and reads it back; run by ``spark_versions`` in another environment.

usage: lake_tables.py FOLDER PLACE NAME=VALUE ...

``FOLDER`` has a record, ``PLACE`` is what ``--save`` and ``--table`` are given. On stdout is one JSON object that says of
each step whether it did what the documentation promises.
"""

import io
import json
import sys
from contextlib import redirect_stdout
from math import isclose

from pyspark.sql import DataFrame, SparkSession

from kvota.app.cli.exit_codes import DONE
from kvota.app.cli.main import main
from kvota.pipeline import (
    USAGE_COLUMNS,
    chunks_of_files,
    end_session,
    find_events,
    save_table,
    usage,
    usage_total,
)
from kvota.pipeline.saved_tables import DELTA, ICEBERG

MAPPING = "ts=window_start,user=user,value=value_sum"


def steps(spark: SparkSession, record: str, place: str) -> dict[str, bool]:
    chunks = chunks_of_files(spark, find_events([record]), "user", further=USAGE_COLUMNS)
    produce = chunks.of_types(["PRODUCE"])
    totals = usage_total(produce).drop("busy_s", "decisions")
    minutes = usage(produce)
    save_table(totals, "usage", place)
    written = alike(read_back(spark, place), totals)
    save_table(minutes, "usage", place)
    return {
        "written": written,
        "replaced, with other columns": alike(read_back(spark, place), minutes),
        "what was there is in its history": versions(spark, place) >= 2,
        "read by --table": isclose(used_by_command(place), sum_of(minutes), rel_tol=1e-12),
    }


def read_back(spark: SparkSession, place: str) -> DataFrame:
    if place.startswith(ICEBERG):
        return spark.table(place.removeprefix(ICEBERG))
    return spark.read.format("delta").load(place.removeprefix(DELTA))


def versions(spark: SparkSession, place: str) -> int:
    if place.startswith(ICEBERG):
        return spark.table(f"{place.removeprefix(ICEBERG)}.snapshots").count()
    return spark.sql(f"DESCRIBE HISTORY delta.`{place.removeprefix(DELTA)}`").count()


def alike(one: DataFrame, other: DataFrame) -> bool:
    """Whether they have the same columns and rows, to the last bit."""
    rows = [sorted(map(repr, table.collect())) for table in (one, other)]
    return one.columns == other.columns and rows[0] == rows[1] != []


def used_by_command(place: str) -> float:
    """What ``kvota usage --table`` says was used in all."""
    said = io.StringIO()
    words = ["--table", place, "--map", MAPPING, "--const", "quota_type=PRODUCE"]
    with redirect_stdout(said):
        assert main(["usage", *words, "--top", "100000", "--output", "json"]) == DONE
    return float(sum(row["value_sum"] for row in json.loads(said.getvalue())["rows"]))


def sum_of(minutes: DataFrame) -> float:
    return float(sum(row["value_sum"] for row in minutes.collect()))


def make(record: str, place: str, *options: str) -> None:
    settings = dict(text.split("=", 1) for text in options)
    builder = SparkSession.builder.master("local[2]").config(map=settings)
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    try:
        sys.stdout.write(json.dumps(steps(spark, record, place)))
    finally:
        end_session(spark)


if __name__ == "__main__":
    make(*sys.argv[1:])
