"""A record may lie where only Hadoop reaches it; ``viewfs:`` stands for all such file systems."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kvota.app.cli.main import main
from kvota.model.errors import UsageError
from kvota.pipeline import LAW_COLUMNS, chunks_of_files, law, read_files
from kvota.pipeline.remote_files import find_record
from kvota.record.compact import compact
from kvota.record.found_events import find_events
from kvota.testing.recorded_traffic import EventRow

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

WriteEvents = Callable[..., Path]
ROOT = "viewfs://somewhere/"


@pytest.fixture
def folder(
    spark: SparkSession, recorded_rows: list[EventRow], write_events: WriteEvents
) -> Iterator[Path]:
    """A folder that Hadoop knows as ``viewfs://somewhere/record``; and no other one by default."""
    folder = write_events(recorded_rows[:3_000], files=6, name="[a] b%20c")
    settings = {
        "fs.viewfs.mounttable.somewhere.link./record": folder.as_uri(),
        # Else Hadoop keeps the folder of the first test under this name.
        "fs.viewfs.impl.disable.cache": "true",
        "fs.defaultFS": ROOT,
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield folder
    for name in settings:
        spark.conf.unset(name)


def test_a_record_elsewhere_gives_what_it_gives_here(spark: SparkSession, folder: Path) -> None:
    compact(folder, now_us=0, every_hour=True)
    here, there = find_events([folder]), find_record(spark, [f"{ROOT}record"])

    results = [law(chunks_of_files(spark, found, further=LAW_COLUMNS)) for found in (here, there)]

    assert there.runs == here.runs
    assert results[0] == results[1]
    assert results[0].rows == 3_000
    assert read_files(spark, there.good).count() == 3_000


def test_paths_of_this_machine_are_so_whatever_the_default_is(
    spark: SparkSession, folder: Path
) -> None:
    for place in (folder, str(folder), folder.as_uri(), folder.as_uri().replace("///", "/")):
        found = find_events([place])

        assert found.rows == read_files(spark, found.good).count() == 3_000


def test_files_from_before_footers_named_runs_are_read_elsewhere_too(
    spark: SparkSession, folder: Path
) -> None:
    (folder / "half.parquet").write_bytes(b"PAR1 and no end")

    found = find_record(spark, [f"{ROOT}record"])

    assert found.rows == 3_000
    assert [(item.file, item.reason) for item in found.bad] == [
        (f"{ROOT}record/half.parquet", "not a complete Parquet file (no valid footer)")
    ]


def test_a_part_here_and_a_part_there_make_one_record(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "here").mkdir()
    for file in sorted(folder.iterdir())[:2]:
        file.rename(tmp_path / "here" / file.name)

    found = find_record(spark, [f"{ROOT}record", tmp_path / "here"])

    assert law(chunks_of_files(spark, found, further=LAW_COLUMNS)).rows == 3_000


def test_a_copy_elsewhere_is_refused(spark: SparkSession, folder: Path) -> None:
    with pytest.raises(UsageError, match="every decision would count twice"):
        find_record(spark, [f"{ROOT}record", folder])


def test_a_file_that_is_replaced_elsewhere_is_noticed(spark: SparkSession, folder: Path) -> None:
    found = find_record(spark, [f"{ROOT}record"])
    first, second, *_ = sorted(folder.iterdir())
    first.write_bytes(second.read_bytes())

    with pytest.raises(PySparkException, match="the record changed while it was read"):
        law(chunks_of_files(spark, found, further=LAW_COLUMNS))


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (f"{ROOT}nowhere", f'"{ROOT}nowhere" does not exist'),
        ("s3a://bucket/record", "Spark knows no such file system|could not be reached"),
        ("file://elsewhere/record", "is on elsewhere, not on this machine"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_place_that_is_none_is_named(
    place: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["replay", "--law", "--events", place])

    assert code in {2, 3}
    assert f'\nkvota: "{place}"' in f"\n{capsys.readouterr().err}"


@pytest.mark.usefixtures("folder")
def test_commands_take_a_uri(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "--law", "--events", f"{ROOT}record"]) == 0
    assert "3,000 rows" in capsys.readouterr().out


def test_merging_is_for_folders_of_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "compact", "--events", f"{ROOT}record"]) == 2
    assert "is not on this machine" in capsys.readouterr().err
