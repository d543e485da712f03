"""Any table in place of a record, as people and programs see it."""

import gzip
import json
import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kvota.app.cli.main import main
from kvota.record.check import check
from kvota.record.found_events import find_events

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

Said = Callable[..., tuple[int, str, str]]
MAP = ("--map", "ts=at,user=principal,client_id=app,value=bytes", "--const", "quota_type=PRODUCE")
JSON = ("--output", "json", "--top", "99")
ROWS = 3_000
BEGAN_MS = 1_795_271_400_000


@pytest.fixture
def say(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Said:
    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def some_rows() -> list[dict[str, Any]]:
    """Return charges of three users over five minutes, in no order."""
    rng = random.Random(16)
    rows = [
        {
            "at": BEGAN_MS + 100 * number,
            "principal": f"User:user-{number % 3}",
            "app": "<script>alert(1)</script>" if number % 2 else None,
            "bytes": rng.randrange(10_000),
        }
        for number in range(ROWS)
    ]
    rng.shuffle(rows)
    return rows


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    return some_rows()


@pytest.fixture
def folder(tmp_path: Path, rows: list[dict[str, Any]]) -> Path:
    """A folder of two files of Parquet, each with several row groups."""
    folder = tmp_path / "parquet"
    folder.mkdir()
    for number in (0, 1):
        table = pa.Table.from_pylist(rows[number::2])
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=400)
    return folder


def in_parquet(rows: list[dict[str, Any]], folder: Path) -> list[object]:
    times = pa.array([row["at"] * 1_000_000 + 7 for row in rows]).cast(pa.timestamp("ns"))
    path = folder / "ns.parquet"
    pq.write_table(pa.Table.from_pylist(rows).set_column(0, "at", times), path)
    return [path, "--ts-zone", "UTC"]


def in_parquet_by_spark(rows: list[dict[str, Any]], folder: Path) -> list[object]:
    return [f"parquet:{in_parquet(rows, folder)[0]}"]


def in_json_lines(rows: list[dict[str, Any]], folder: Path) -> list[object]:
    path = folder / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [path]


def in_csv(rows: list[dict[str, Any]], folder: Path) -> list[object]:
    path = folder / "t.csv.gz"
    cells = [";".join("" if cell is None else str(cell) for cell in row.values()) for row in rows]
    path.write_bytes(gzip.compress(("at;principal;app;bytes\n" + "\n".join(cells)).encode()))
    return [path]


@pytest.mark.parametrize("written", [in_parquet, in_parquet_by_spark, in_json_lines, in_csv])
def test_a_table_is_the_same_however_it_is_written(
    written: Callable[..., list[object]], tmp_path: Path, rows: list[dict[str, Any]], say: Said
) -> None:
    code, out, err = say("usage", "--table", *written(rows, tmp_path), *MAP, *JSON)

    assert code == 0, err
    assert summed(out) == expected(rows)


def expected(rows: list[dict[str, Any]]) -> dict[str, tuple[int, float, int]]:
    """Return requests, bytes and the first second of each user."""
    found = {}
    for number in range(3):
        own = [row for row in rows if row["principal"].endswith(str(number))]
        began_us = min(row["at"] for row in own) // 1000 * 1_000_000
        found[f"user-{number}"] = (len(own), sum(row["bytes"] for row in own), began_us)
    return found


def summed(out: str) -> dict[str, tuple[int, float, int]]:
    return {
        row["user"]: (row["events"], row["value_sum"], row["start_us"])
        for row in json.loads(out)["rows"]
    }


def test_its_events_are_kept(
    folder: Path, tmp_path: Path, rows: list[dict[str, Any]], say: Said
) -> None:
    kept = tmp_path / "kept"

    code, of_table, err = say("usage", "--table", folder, *MAP, *JSON, "--keep-events", kept)
    _, of_events, said = say("usage", "--events", kept, *JSON)

    assert code == 0, err
    assert summed(of_table) == expected(rows)
    assert json.loads(of_events) == json.loads(of_table)
    assert check(find_events([kept])).is_sound
    assert (
        "kvota: record: 1 files of 1 gateways and 1 runs, 3,000 decisions, 2026-11-21 14:30" in said
    )
    assert "kvota:   users at its begin: user-0, user-1, user-2" in said
    assert "kvota: read 3,000 decisions in 1 of 1 files" in said
    assert "record:" not in err


def test_what_is_found_is_said_before_and_counts_after(folder: Path, say: Said) -> None:
    _, _, err = say("usage", "--table", folder, *MAP, *JSON)

    # What takes long on a busy machine is said, too.
    said = [line for line in err.splitlines() if line.startswith("kvota:")]
    assert said[0].startswith("kvota: table: 2 files of Parquet,")
    assert "3,000 rows, 2026-11-21 14:30:00 to 2026-11-21 14:34:59 UTC" in said[0]
    assert said[1] == "kvota:   ts: at, milliseconds since 1970 by their size (--ts-unit)"
    assert "quota_type: PRODUCE in every row; value: bytes" in said[2]
    assert said[3] == "kvota:   users in its first rows: user-0, user-1, user-2"
    assert sum("PRODUCE" in line and line.endswith(" bytes") for line in said[5:10]) == 3
    assert "kvota: 3,000 rows became 3,000 events; 0 could not be read" in said


def test_rows_are_in_order_and_those_that_charge_nothing_have_their_place(
    tmp_path: Path, rows: list[dict[str, Any]], say: Said
) -> None:
    table, bad_file, kept = tmp_path / "t.jsonl", tmp_path / "bad.json", tmp_path / "kept"
    for number, value in ((1700, -1), (1800, None), (1900, "x")):
        rows[number]["bytes"] = value
    texts = [json.dumps(row) for row in rows]
    texts[2000] = texts[2000][:20]
    table.write_text("\n".join(texts))
    place = ("--table", table, *MAP, "--bad-file", bad_file)

    code, _, err = say("usage", *place, "--keep-events", kept)
    strict, nothing, refused = say("usage", *place, "--max-bad", "0.1%")

    assert code == 0, err
    assert "3,000 rows became 2,996 events; 4 could not be read" in err
    bad = [json.loads(line) for line in bad_file.read_text().splitlines()]
    content = table.read_text()
    assert {content[one["offset"] :].partition("\n")[0] for one in bad} == {
        texts[number] for number in (1700, 1800, 1900, 2000)
    }
    assert {one["reason"].partition(" (")[0] for one in bad} == {
        "its value is below 0",
        "it has no value",
        "its value is no number",
        "it is no JSON",
    }
    assert (strict, nothing) == (3, "")
    assert "4 of 3,000 rows of the table cannot be read (0.1%), more than --max-bad 0.1%" in refused
    events = [
        row for file in find_events([kept]).files for row in pq.read_table(file.path).to_pylist()
    ]
    keys = [(row["ts_us"], row["value"]) for row in sorted(events, key=lambda row: row["seq"])]
    assert keys == sorted(keys)
    assert min(row["ts_us"] for row in events) == BEGAN_MS * 1000


def test_another_unit_deep_in_the_table_is_an_error(
    tmp_path: Path, rows: list[dict[str, Any]], say: Said
) -> None:
    table = tmp_path / "t.jsonl"
    rows[2500]["at"] //= 1000
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))

    code, out, err = say("usage", "--table", table, *MAP)

    assert (code, out) == (2, "")
    assert "different units" in err


def test_a_table_of_a_catalog(spark: SparkSession, say: Said) -> None:
    moment = datetime(2026, 11, 21, 14, 30, tzinfo=UTC)
    values = [(moment, "alice", 5.0), (moment, "bob", float("nan"))]
    spark.createDataFrame(
        values, "`event time` timestamp, user string, `a.b` double"
    ).createOrReplaceGlobalTempView("charges")
    place = ("--table", "global_temp.charges", "--const", "quota_type=FETCH,node_id=3")

    wrong, _, told = say("usage", *place, "--map", "ts=event_time,user=user,value=a.b")
    code, out, err = say(
        "usage", *place, "--map", "ts=event time,user=user,value=a.b", "--max-bad", "50%", *JSON
    )

    assert wrong == 2
    assert 'no column "event_time". Did you mean "event time"?' in told
    assert code == 0, err
    assert "its value is no number (NaN)" in err
    (row,) = json.loads(out)["rows"]
    assert (row["user"], row["quota_type"], row["node_id"], row["value_sum"]) == (
        "alice",
        "FETCH",
        3,
        5,
    )


def test_replay_and_recommend_take_a_table(folder: Path, say: Said) -> None:
    place = ("--table", folder, *MAP)

    replayed, out, _ = say("replay", *place, "--candidates", "100B/s", "--output", "json")
    planned, plan, err = say(
        "recommend", *place, "--capacity", "PRODUCE=1MB/s", "--min-hours", "0", "--min-events", "10"
    )

    assert replayed == planned == 0, err
    assert {row["quota_per_s"] for row in json.loads(out)["rows"]} == {100}
    assert "user-0" in plan
