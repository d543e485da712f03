"""Files are read as events, or named and left out."""

import logging
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kvota.model.errors import UsageError
from kvota.model.event import EVENT_COLUMNS
from kvota.pipeline import bad_input, find_events, read_events
from kvota.testing.recorded_traffic import EventRow

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

WriteEvents = Callable[..., Path]


def test_a_cut_or_foreign_file_is_named_and_the_rest_is_read(
    spark: SparkSession,
    recorded_rows: list[EventRow],
    write_events: WriteEvents,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = write_events(recorded_rows[:90], files=3)
    whole = sorted(folder.iterdir())[1]
    (folder / "cut.parquet").write_bytes(whole.read_bytes()[:-20])
    pq.write_table(pa.table({"a": [1]}), folder / "foreign.parquet")
    (folder / "events-being-written.parquet.tmp").write_bytes(b"half")

    with caplog.at_level(logging.WARNING):
        events = read_events(spark, folder)

    files = find_events([folder])
    assert events.count() == files.rows == 90
    assert [(bad.file.name, bad.reason) for bad in files.bad] == [
        ("cut.parquet", "not a complete Parquet file (no valid footer)"),
        (
            "foreign.parquet",
            "not an events file (no column gateway, quota_type, run_id, seq, ts_us, value)",
        ),
    ]
    assert [record.getMessage().split("/")[-1] for record in caplog.records] == [
        str(bad).split("/")[-1] for bad in files.bad
    ]
    table = bad_input(spark, files.bad).collect()
    assert [row["source"] for row in table] == ["events", "events"]
    assert table[0]["sample"][:4] == b"PAR1"


def test_columns_an_older_file_lacks_are_null(
    spark: SparkSession, recorded_rows: list[EventRow], write_events: WriteEvents
) -> None:
    folder = write_events(recorded_rows[:5])
    (file,) = folder.iterdir()
    pq.write_table(pq.read_table(file).drop_columns(["connection", "upstream_throttle_ms"]), file)

    rows = read_events(spark, folder).collect()

    assert [row["connection"] for row in rows] == [None] * 5
    assert rows[0].asDict().keys() == {column.name for column in EVENT_COLUMNS}


# All columns of version 1, in its words.
_VERSION_1 = pa.schema(
    [
        *((name, pa.int64()) for name in ("ts_us", "seq", "connection")),
        *((name, pa.string()) for name in ("gateway", "run_id", "quota_type", "user", "client_id")),
        *((name, pa.string()) for name in ("tags", "outcome")),
        *((name, pa.int32()) for name in ("node_id", "sample_ms", "throttle_ms")),
        *((name, pa.int16()) for name in ("api_key", "api_version", "samples")),
        ("value", pa.float64()),
        ("limit", pa.float64()),
        ("enforced", pa.bool_()),
        ("upstream_throttle_ms", pa.int32()),
    ],
    metadata={"schema_version": "1"},
)


def test_in_a_file_of_version_1_each_type_was_counted_by_its_own_first_algorithm(
    spark: SparkSession, recorded_rows: list[EventRow], write_events: WriteEvents
) -> None:
    folder = write_events(recorded_rows[:5])
    types = ("PRODUCE", "FETCH", "REQUEST", "CONTROLLER_MUTATION", "PRODUCER_ID", "unheard of")
    texts = dict.fromkeys(("gateway", "user", "client_id", "tags"), "a") | {"outcome": "admitted"}
    rows = [
        dict.fromkeys(_VERSION_1.names, 1)
        | texts
        | {"run_id": "old", "quota_type": kind, "enforced": True}
        for kind in types
    ]
    pq.write_table(pa.Table.from_pylist(rows, _VERSION_1), folder / "old.parquet")

    events = read_events(spark, folder).select("run_id", "quota_type", "algorithm").collect()

    assert find_events([folder]).bad == ()
    assert {row["quota_type"]: row["algorithm"] for row in events if row["run_id"] == "old"} == {
        "PRODUCE": "sampled_rate",
        "FETCH": "sampled_rate",
        "REQUEST": "sampled_rate",
        "CONTROLLER_MUTATION": "token_bucket",
        "PRODUCER_ID": "token_bucket",
        "unheard of": None,
    }
    assert len(events) == len(types) + 5


def test_a_column_of_another_type_makes_a_file_foreign(
    recorded_rows: list[EventRow], write_events: WriteEvents
) -> None:
    folder = write_events(recorded_rows[:10], files=2)
    file = min(folder.iterdir())
    table = pq.read_table(file)
    place = table.schema.get_field_index("ts_us")
    pq.write_table(table.set_column(place, "ts_us", table["ts_us"].cast(pa.timestamp("us"))), file)

    (bad,) = find_events([folder]).bad

    assert bad.reason == "not an events file (column ts_us is timestamp[us], expected int64)"


def test_a_newer_schema_version_is_not_guessed_at(
    recorded_rows: list[EventRow], write_events: WriteEvents
) -> None:
    folder = write_events(recorded_rows[:10], files=2)
    file = min(folder.iterdir())
    pq.write_table(pq.read_table(file).replace_schema_metadata({"schema_version": "9"}), file)

    (bad,) = find_events([folder]).bad

    assert bad.reason == "schema_version 9, this kvota reads 1, 2, 3"


def test_odd_names_of_folders_are_only_names(
    spark: SparkSession, recorded_rows: list[EventRow], write_events: WriteEvents
) -> None:
    folder = write_events(recorded_rows[:5], name="a[1]{b,c}*? %20 größe")

    assert read_events(spark, folder).count() == 5


def test_a_file_named_twice_is_read_once(
    spark: SparkSession, recorded_rows: list[EventRow], write_events: WriteEvents
) -> None:
    folder = write_events(recorded_rows[:5])
    (file,) = folder.iterdir()

    assert read_events(spark, folder, file).count() == 5


def test_a_missing_or_empty_folder_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'nowhere" does not exist\. Name the folder'):
        find_events([tmp_path / "nowhere"])
    with pytest.raises(UsageError, match=r"no events in .* \(no \*\.parquet file\)"):
        find_events([tmp_path])


def test_a_folder_with_nothing_but_bad_files_names_them(tmp_path: Path) -> None:
    (tmp_path / "events.parquet").write_bytes(b"PAR1 and nothing more")

    with pytest.raises(UsageError, match=r"events\.parquet: not a complete Parquet file"):
        find_events([tmp_path])
