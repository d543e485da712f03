"""A merged record is worked off range by range, without a shuffle, and not a bit is another one."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kvota.model.errors import UsageError
from kvota.pipeline import (
    LAW_COLUMNS,
    USAGE_COLUMNS,
    Chunks,
    Factors,
    chunks_of_files,
    direct,
    find_events,
    law,
    replay,
    replay_rows,
    usage,
    usage_total,
)
from kvota.pipeline.chunk_schema import COUNTER_COLUMNS, By
from kvota.pipeline.counters import ID_TYPES
from kvota.pipeline.direct import counter_ids
from kvota.record import event_parquet
from kvota.record.compact import compact
from kvota.record.event_schema import EVENT_SCHEMA
from kvota.record.found_events import FoundEvents
from kvota.testing.recorded_traffic import EventRow

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MERGED_FILES = 5
UNMERGED_ROWS = 1_500

WriteEvents = Callable[..., Path]


@pytest.fixture(scope="module")
def merged(
    recorded_rows: list[EventRow],
    write_for_all: WriteEvents,
    tmp_path_factory: pytest.TempPathFactory,
) -> FoundEvents:
    return record_of(recorded_rows, tmp_path_factory.mktemp("merged"), write_for_all)


def record_of(every: list[EventRow], folder: Path, write_for_all: WriteEvents) -> FoundEvents:
    """Write restarted gateways' rows in several merged files, in which counters go on, and some that are not merged."""
    rows, left = every[:-UNMERGED_ROWS], every[-UNMERGED_ROWS:]
    length = -(-len(rows) // MERGED_FILES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_parquet, "_MERGED_GROUP_ROWS", 512)
        for number in range(MERGED_FILES):
            part = rows[number * length : (number + 1) * length]
            (file,) = write_for_all(folder / str(number), part).iterdir()
            file.rename(file.with_name(f"events-part-{number}-000000000000-0.parquet"))
            compact(folder / str(number), now_us=0, every_hour=True)
    write_for_all(folder / "raw", left)
    return find_events([folder])


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "_ROWS_AT_ONCE", 2_000)
    monkeypatch.setattr(direct, "_ROWS_AT_ONCE_MIN", 500)
    monkeypatch.setattr(direct, "_READ_MAX", 9.0)


def content(table: DataFrame) -> list[str]:
    return sorted(map(repr, map(tuple, table.collect())))


def both_ways(chunks: Chunks, *, tasks: int) -> Iterator[Chunks]:
    assert chunks.ranged is not None
    ranged = replace(chunks.ranged, tasks=tasks)
    found = ranged.cut()
    assert found is not None
    assert len(found.tasks) == tasks
    assert sum(map(len, found.tasks)) > tasks
    yield replace(chunks, ranged=ranged)
    yield replace(chunks, ranged=None)


def of_charges(chunks: Chunks) -> Chunks:
    """The same without its own way to sums of seconds: they are made of charges."""
    return replace(chunks, sums=None, ranged=None)


@pytest.mark.parametrize(
    ("by", "mode", "tasks"),
    [
        ("counter", "open", 1),
        ("user", "think", 2),
        ("client", "open", 3),
        ("user-client", "backlog", 4),
    ],
)
def test_a_replay_is_the_same(
    spark: SparkSession, merged: FoundEvents, by: By, mode: str, tasks: int
) -> None:
    chunks = chunks_of_files(spark, merged, by)

    ours, shuffled = (
        content(replay(one, Factors([0.5, 2.0]), mode=mode))
        for one in both_ways(chunks, tasks=tasks)
    )

    assert ours == shuffled
    assert ours


def test_the_law_is_the_same(spark: SparkSession, merged: FoundEvents) -> None:
    chunks = chunks_of_files(spark, merged, further=LAW_COLUMNS)

    ours, shuffled = both_ways(chunks, tasks=2)

    assert law(ours) == law(shuffled)
    assert law(ours).holds
    assert content(replay_rows(ours)) == content(replay_rows(shuffled))


def test_request_time_is_the_same(
    spark: SparkSession,
    recorded_rows: list[EventRow],
    write_for_all: WriteEvents,
    tmp_path: Path,
) -> None:
    rows = [as_request_time(row) for row in recorded_rows]
    found = record_of(rows, tmp_path, write_for_all)
    used = chunks_of_files(spark, found, "user", further=USAGE_COLUMNS)
    charged = chunks_of_files(spark, found, further=LAW_COLUMNS)

    totals = [content(usage_total(one)) for one in both_ways(used, tasks=3)]
    replays = [content(replay(one, Factors([0.5, 2.0]))) for one in both_ways(charged, tasks=2)]
    judged = [law(one) for one in both_ways(charged, tasks=2)]

    assert totals[0] == totals[1]
    assert replays[0] == replays[1]
    assert judged[0] == judged[1]
    of_replay = replay(charged, Factors([0.5, 2.0]))
    assert of_replay.where("quota_type = 'REQUEST' and throttle_ms_sum > 0").count()
    assert any("REQUEST" in line for line in totals[0])


def as_request_time(row: EventRow) -> EventRow:
    """Every second Fetch becomes some request time: what it is charged, and held to, is as if bytes were percents."""
    seq, kind, value, limit = (
        EVENT_SCHEMA.get_field_index(name) for name in ("seq", "quota_type", "value", "limit")
    )
    if row[kind] != "FETCH" or row[seq] % 2:
        return row
    changed = list(row)
    changed[kind], changed[value] = "REQUEST", row[value] / 100
    changed[limit] = None if row[limit] is None else row[limit] / 100
    return tuple(changed)


def test_usage_is_the_same_in_all_and_of_a_few(spark: SparkSession, merged: FoundEvents) -> None:
    every = chunks_of_files(spark, merged, "user", further=USAGE_COLUMNS, modes_apart=True)
    chunks = every.but_types(["FETCH"])

    ours, shuffled = both_ways(chunks, tasks=3)

    totals = usage_total(shuffled)
    assert content(usage_total(ours)) == content(totals)
    assert content(usage_total(of_charges(chunks))) == content(totals)
    few = [row["counter_id"] for row in totals.limit(3).collect()]
    windows = content(usage(ours.of_counters(few), window_s=60))
    assert windows == content(usage(shuffled.of_counters(few), window_s=60))
    assert windows == content(usage(of_charges(chunks).of_counters(few), window_s=60))
    assert windows


def test_sums_that_are_kept_are_the_same_and_tell_no_charges(
    spark: SparkSession, merged: FoundEvents
) -> None:
    every = chunks_of_files(spark, merged, "user", further=USAGE_COLUMNS, modes_apart=True)
    kept = replace(every, ranged=None).summed().persist()
    try:
        assert kept.is_summed
        assert content(usage_total(kept)) == content(usage_total(of_charges(every)))
        mine = usage(kept.of_types(["PRODUCE"]), window_s=60)
        assert content(mine) == content(usage(every.of_types(["PRODUCE"]), window_s=60))
        assert kept.of_types(["PRODUCE"]).has_rows()
        assert not kept.of_types(["NO_SUCH_TYPE"]).has_rows()
        with pytest.raises(UsageError, match="sums of seconds"):
            replay(kept, [1e5])
    finally:
        kept.unpersist()


@pytest.mark.parametrize(("by", "is_streamed"), [("counter", True), ("user-client", False)])
def test_what_is_too_large_for_a_task_is_streamed_or_shuffled(
    spark: SparkSession,
    merged: FoundEvents,
    monkeypatch: pytest.MonkeyPatch,
    by: By,
    is_streamed: bool,
) -> None:
    monkeypatch.setattr(direct, "_ROWS_AT_ONCE", 1_000)
    monkeypatch.setattr(direct, "_BEGUN_MAX", 1_100)
    monkeypatch.setattr(direct, "_SHUFFLED_MAX", 0.95)
    chunks = chunks_of_files(spark, merged, by)
    assert chunks.ranged is not None
    found = chunks.ranged.cut()
    assert found is not None
    assert any(one.is_streamed for ranges in found.tasks for one in ranges) == is_streamed
    assert found.large or is_streamed

    ours = content(replay(chunks, [1e5]))

    assert ours == content(replay(replace(chunks, ranged=None), [1e5]))


def test_it_is_told_without_reading_that_a_quota_type_is_not_there(
    spark: SparkSession, merged: FoundEvents
) -> None:
    all_merged = replace(merged, files=tuple(file for file in merged.files if file.is_compacted))
    chunks = chunks_of_files(spark, all_merged, "user")
    for file in all_merged.files[1:]:
        assert file.path.exists()

    assert chunks.of_types(["FETCH"]).has_rows()
    ids = chunks.of_types(ID_TYPES)
    assert ids.ranged is not None
    assert [len(ranges) for ranges in ids.ranged.cut().tasks] == [0]
    assert not ids.has_rows()


def test_counters_have_the_numbers_that_spark_gives_them(spark: SparkSession) -> None:
    names = [
        "",
        "a",
        "größe",
        "x" * 31,
        "y" * 32,
        "z" * 33,
        "\0\0",
        "ab" * 1_000,
        "abcd",
        "abcdefgh",
    ]
    rows = [
        (name, names[place - 1], place - 2, "PRODUCE", f"user={name}", place % 3 - 1)
        for place, name in enumerate(names)
    ]
    types = (
        "gateway string, run_id string, node_id int, quota_type string, tags string, enforcing int"
    )
    table = spark.createDataFrame(rows, types)

    ids = [row[0] for row in table.select(F.xxhash64(*COUNTER_COLUMNS)).collect()]

    columns = [pa.array(column) for column in zip(*rows, strict=True)]
    columns[2], columns[5] = columns[2].cast(pa.int32()), columns[5].cast(pa.int32())
    assert counter_ids(columns).tolist() == ids
