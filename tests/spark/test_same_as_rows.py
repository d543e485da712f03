"""From chunks comes what comes from rows moved and sorted by Spark, bit for bit, however files are cut."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.oracle import law as law_of_rows
from tests.oracle import replay as replay_of_rows
from tests.oracle import usage as usage_of_rows

from kvota.model.quota_type import Algorithm
from kvota.model.quota_window import QuotaWindow
from kvota.pipeline import (
    LAW_COLUMNS,
    USAGE_COLUMNS,
    Counted,
    Factors,
    chunks_of_files,
    find_events,
    law,
    read_events,
    replay,
    replay_rows,
    usage,
    usage_total,
)
from kvota.pipeline.chunk_schema import By
from kvota.pipeline.replay_tables import Mode
from kvota.pipeline.row_groups import FILE_CHANGED
from kvota.record.compact import compact
from kvota.record.period import Period
from kvota.testing.recorded_traffic import EventRow

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

WriteEvents = Callable[..., Path]
TS_US = 0


@pytest.fixture(scope="module")
def cut_anyhow(
    recorded_rows: list[EventRow],
    write_for_all: WriteEvents,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The same rows, in files that hold any of them in any order; half of them are merged."""
    rows = random.Random(3).sample(recorded_rows, len(recorded_rows))
    folder, half = tmp_path_factory.mktemp("cut"), len(rows) // 2
    write_for_all(folder / "raw", rows[:half], files=3)
    for file in (folder / "raw").iterdir():
        file.rename(file.with_name(f"raw-{file.name}"))
    write_for_all(folder / "merged", rows[half:], files=4)
    done = compact(folder / "merged", now_us=0, every_hour=True)
    assert sum(step.files for step in done.steps) == 4
    return folder


@pytest.fixture
def other_settings(spark: SparkSession) -> Iterator[None]:
    """A session as somebody else may have it."""
    settings = {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "5",
        "spark.sql.session.timeZone": "Asia/Kolkata",
    }
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


def content(table: DataFrame, columns: list[str]) -> list[tuple[object, ...]]:
    return sorted(map(tuple, table.select(*columns).collect()), key=repr)


def assert_same(found: DataFrame, expected: DataFrame) -> None:
    columns = [name for name in expected.columns if name != "counter_id"]
    rows = content(expected, columns)
    assert content(found, columns) == rows
    assert rows


@pytest.mark.parametrize(
    ("by", "mode"),
    [
        ("counter", "open"),
        ("counter", "backlog"),
        ("user", "think"),
        ("client", "open"),
        ("user-client", "backlog"),
    ],
)
def test_replay_is_the_same(
    spark: SparkSession, recorded: DataFrame, cut_anyhow: Path, by: By, mode: Mode
) -> None:
    chunks = chunks_of_files(spark, find_events([cut_anyhow]), by)

    assert_same(
        replay(chunks, [1e4, 1e5, 1e6], mode=mode),
        replay_of_rows.replay(recorded, [1e4, 1e5, 1e6], by=by, mode=mode),
    )


@pytest.mark.usefixtures("other_settings")
@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_replay_is_the_same_where_it_is_counted_otherwise(
    spark: SparkSession, recorded: DataFrame, cut_anyhow: Path, algorithm: Algorithm
) -> None:
    how = {
        "algorithm": algorithm,
        "window": QuotaWindow(5, 700),
        "burst_ms": 900,
        "debt_max_ms": 50,
    }

    chunks = chunks_of_files(spark, find_events([cut_anyhow]), "client")

    assert_same(
        replay(chunks, Factors([0.5, 2.0]), counted=Counted(**how)),
        replay_of_rows.replay(
            recorded,
            replay_of_rows.Factors([0.5, 2.0]),
            by="client",
            counted=replay_of_rows.Counted(**how),
        ),
    )


@pytest.mark.usefixtures("other_settings")
def test_the_law_is_the_same_row_by_row(
    spark: SparkSession, recorded: DataFrame, cut_anyhow: Path
) -> None:
    chunks = chunks_of_files(spark, find_events([cut_anyhow]), further=LAW_COLUMNS)

    result, expected = law(chunks), law_of_rows.law(recorded)

    assert str(result) == str(expected)
    assert [str(item) for item in result.of_types] == [str(item) for item in expected.of_types]
    assert_same(replay_rows(chunks), law_of_rows.replay_rows(recorded))


def test_the_first_differences_are_the_same(
    spark: SparkSession, recorded_rows: list[EventRow], write_events: WriteEvents
) -> None:
    limit = 13
    bent = [
        (*row[:limit], row[limit] and row[limit] * 1.001, *row[limit + 1 :])
        for row in recorded_rows
    ]
    folder = write_events(bent, files=4)

    result = law(chunks_of_files(spark, find_events([folder]), further=LAW_COLUMNS))

    expected = law_of_rows.law(read_events(spark, folder))
    assert [str(item) for item in result.differences] == [
        str(item) for item in expected.differences
    ]
    assert result.differing == expected.differing > 100


@pytest.mark.usefixtures("other_settings")
@pytest.mark.parametrize("by", ["user", "client", "user-client"])
def test_usage_is_the_same(
    spark: SparkSession, recorded: DataFrame, cut_anyhow: Path, by: By
) -> None:
    chunks = chunks_of_files(spark, find_events([cut_anyhow]), by, further=USAGE_COLUMNS)

    assert_same(usage_total(chunks), usage_of_rows.usage_total(recorded, by))
    assert_same(usage(chunks, window_s=300), usage_of_rows.usage(recorded, by, window_s=300))


def test_a_part_of_the_record_is_counted_as_if_it_were_all(
    spark: SparkSession, recorded: DataFrame, cut_anyhow: Path, recorded_rows: list[EventRow]
) -> None:
    times = sorted(row[TS_US] for row in recorded_rows)
    since_us, until_us = times[9_000], times[20_000]
    inside = recorded.where(recorded["ts_us"].between(since_us, until_us - 1))

    chunks = chunks_of_files(
        spark,
        find_events([cut_anyhow]),
        "user",
        further=USAGE_COLUMNS,
        period=Period(since_us, until_us),
    )

    assert_same(usage_total(chunks), usage_of_rows.usage_total(inside))


def test_a_file_that_has_gone_or_changed_is_named(
    spark: SparkSession, recorded_rows: list[EventRow], write_events: WriteEvents
) -> None:
    folder = write_events(recorded_rows[:300], files=3)
    found = find_events([folder])
    first, second, *_ = sorted(folder.iterdir())
    kept = second.read_bytes()

    first.unlink()
    with pytest.raises(PySparkException, match=f"{FILE_CHANGED}.*is gone"):
        law(chunks_of_files(spark, found, further=LAW_COLUMNS))
    found = find_events([folder])
    second.write_bytes(kept[:-1])
    with pytest.raises(PySparkException, match=f"{FILE_CHANGED}.*is another one now"):
        law(chunks_of_files(spark, found, further=LAW_COLUMNS))
