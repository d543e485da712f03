"""A saved table is there whole, or the one before it is."""

import json
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from tests.integration.small_disks import small_disks, taken_by_others
from tests.looks import TOTAL_BYTES, write_looks

from kvota.app.cli.exit_codes import DONE, NEGATIVE, WRONG_USE
from kvota.app.cli.main import main
from kvota.app.cli.spark_events import spark_errors
from kvota.model.errors import UnreachableError, UsageError
from kvota.pipeline import save_table
from kvota.pipeline.saved_tables import check_place
from kvota.testing.recorded_traffic import RecordedTraffic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


@pytest.fixture
def numbers(spark: SparkSession) -> DataFrame:
    return spark.range(5)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def ids_in(folder: Path) -> list[int]:
    return sorted(pq.read_table(folder)["id"].to_pylist())


def test_a_table_takes_the_place_of_the_one_before(tmp_path: Path, numbers: DataFrame) -> None:
    place = tmp_path / "a table é"
    save_table(numbers, "numbers", str(place))
    assert ids_in(place) == [0, 1, 2, 3, 4]

    save_table(numbers.where("id < 2"), "numbers", place.as_uri())

    assert ids_in(place) == [0, 1]
    assert names_in(tmp_path) == [place.name]


def test_a_job_that_fails_leaves_the_table_before(tmp_path: Path, numbers: DataFrame) -> None:
    place = tmp_path / "table"
    save_table(numbers, "numbers", str(place))
    fails = numbers.select(F.when(F.col("id") > 3, F.raise_error(F.lit("no"))).otherwise("id"))

    with pytest.raises(Exception, match="no"):
        save_table(fails, "numbers", str(place))

    assert ids_in(place) == [0, 1, 2, 3, 4]
    assert names_in(tmp_path) == [place.name]


@pytest.mark.parametrize("there", ["file", "folder", "link"])
def test_what_is_no_saved_table_stays(there: str, tmp_path: Path, numbers: DataFrame) -> None:
    place = tmp_path / "mine"
    (tmp_path / "elsewhere").mkdir()
    if there == "file":
        place.write_text("notes")
    elif there == "folder":
        place.mkdir()
        (place / "notes").write_text("notes")
    else:
        place.symlink_to(tmp_path / "elsewhere")
    before = names_in(tmp_path)

    with pytest.raises(UsageError, match="is there already, and is no table"):
        save_table(numbers, "numbers", str(place))

    assert names_in(tmp_path) == before


def test_a_disk_without_room_is_named_and_the_table_before_stays(
    tmp_path: Path, spark: SparkSession, numbers: DataFrame
) -> None:
    many = spark.range(300_000).select(F.rand(1).alias("id"))
    with small_disks(tmp_path, 1, 1024**2) as (disk,), spark_errors(spark):
        place = disk / "table"
        save_table(numbers, "numbers", str(place))

        said = rf"could not be written to {place}: No space left on device\. What was there"
        with pytest.raises(UnreachableError, match=said):
            save_table(many, "numbers", str(place))
        assert (ids_in(place), names_in(disk)) == ([0, 1, 2, 3, 4], ["table"])

        with taken_by_others(disk, 0), pytest.raises(UnreachableError, match=said):
            check_place(str(place))


def test_a_place_that_may_only_be_read_is_named_before_spark_starts(
    tmp_path: Path, numbers: DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    with small_disks(tmp_path, 1, 1024**2) as (disk,):
        save_table(numbers, "numbers", str(disk / "table"))
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        for place in (disk / "table", f"delta:{disk}/table"):
            asked = ["usage", "--events", str(tmp_path / "record"), "--save", str(place)]
            assert main([*asked, "--master", "no such Spark"]) == WRONG_USE
            said = capsys.readouterr().err
            assert f"{place} cannot be written: Read-only file system. Name a folder" in said
        assert (
            main(["usage", "--events", str(tmp_path / "record"), "--save", str(disk)]) == WRONG_USE
        )
        assert "is where a disk is mounted" in capsys.readouterr().err
        assert ids_in(disk / "table") == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("place", "needed"),
    [
        ("delta:FOLDER/table", "io.delta:delta-spark"),
        ("iceberg:lake.kvota.usage", "iceberg-spark-runtime"),
        ("iceberg:usage", "CATALOG.DATABASE.TABLE"),
        ("delta:", "delta:FOLDER"),
    ],
)
def test_what_a_format_needs_is_named(
    place: str, needed: str, tmp_path: Path, numbers: DataFrame
) -> None:
    with pytest.raises(UsageError, match=needed):
        save_table(numbers, "numbers", place.replace("FOLDER", str(tmp_path)))


def test_commands_save_their_tables(
    spark: SparkSession,
    write_for_all: object,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = str(write_for_all(tmp_path / "record", list(RecordedTraffic(3).rows(300))))
    used, tried = tmp_path / "used", tmp_path / "tried"

    candidates = ["--candidates", "2MB/s,5/s", "--top", "1"]
    assert main(["usage", "--events", folder, "--top", "1", "--save", str(used)]) == DONE
    assert main(["replay", "--events", folder, *candidates, "--save", str(tried)]) == DONE
    assert main(["replay", "--events", folder, "--law", "--save", str(tried)]) == WRONG_USE

    said = capsys.readouterr().err
    assert f"the table usage is in {used}" in said
    assert "--law makes no table" in said
    users = set(pq.read_table(used)["user"].to_pylist())
    assert len(users) > 1
    types = set(pq.read_table(tried)["quota_type"].to_pylist())
    assert {"PRODUCE", "CONTROLLER_MUTATION"} <= types


def test_the_forecast_of_volumes_is_saved(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(write_looks(tmp_path / "record"))
    saved = tmp_path / "forecast"
    place = ["--events", folder, "--horizon", "40d"]

    said = []
    for options in (["--save", str(saved)], []):
        assert main(["forecast", *place, "--output", "json", *options]) == NEGATIVE
        said.append(capsys.readouterr())

    assert f"the table forecast is in {saved}" in said[0].err
    assert said[0].out == said[1].out
    (limit,) = json.loads(said[0].out)["limits"]
    (row,) = spark.read.parquet(str(saved)).collect()
    assert row["total_bytes"] == row["limit_bytes"] == TOTAL_BYTES
    assert (row["hours_to_limit_p10"], row["hours_to_limit_p90"], row["probability"]) == (
        limit["reached_p10_h"],
        limit["reached_p90_h"],
        limit["reached_ratio"],
    )
    assert row["growth_per_day_p50"] == limit["growth_p50_bytes_per_day"]
    assert row["horizon_h"] == 40 * 24
