"""A record is merged hour by hour; readers see every decision once at every moment."""

import json
import os
import signal
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.record.record_files import (
    HOUR_US,
    LATER_US,
    ROWS,
    in_order,
    put,
    put_record,
    rows_of,
)

from kvota.model.errors import UnreachableError, UsageError
from kvota.record import compact as compact_module
from kvota.record import compact_plan
from kvota.record.compact import compact
from kvota.record.event_file import EventFile
from kvota.record.event_files import EventFiles
from kvota.record.event_schema import EVENT_SCHEMA
from kvota.record.found_events import find_events

PROCESS = Path(__file__).with_name("compacting_process.py")
COUNTER = ("quota_type", "tags", "node_id", "gateway", "run_id")


def at_hour(rows: list[tuple], hour: int) -> list[tuple]:
    """The same rows of another run, so many hours later."""
    return [
        (row[0] + hour * HOUR_US, *row[1:3], f"{row[3]}-{hour}", *row[4:]) if hour else row
        for row in rows
    ]


def test_an_hour_becomes_one_file_with_the_same_rows_counter_by_counter(tmp_path: Path) -> None:
    folder = put_record(tmp_path / "record", each=100)

    done = compact(folder, now_us=LATER_US)

    (path,) = folder.glob("*.parquet")
    (step,) = done.steps
    assert (step.files, step.rows, step.bytes_after) == (11, len(ROWS), path.stat().st_size)
    assert rows_of(folder) == in_order(ROWS)
    table = pq.read_table(path)
    keys = list(zip(*(table[name].to_pylist() for name in (*COUNTER, "seq")), strict=True))
    assert keys == sorted(keys)
    assert pq.read_schema(path).remove_metadata() == EVENT_SCHEMA.remove_metadata()


def test_how_much_there_is_to_merge_is_told_first(tmp_path: Path) -> None:
    folder = put_record(tmp_path, [*ROWS[:300], *at_hour(ROWS[:200], 1)])
    told: list[tuple[str, int]] = []

    compact(
        folder,
        now_us=LATER_US + HOUR_US,
        on_plan=lambda rows: told.append(("to merge", rows)),
        on_step=lambda merged: told.append(("merged", merged.rows)),
    )

    assert told == [("to merge", 500), ("merged", 300), ("merged", 200)]


def test_a_second_time_there_is_nothing_to_do(tmp_path: Path) -> None:
    folder = put_record(tmp_path)
    compact(folder, now_us=LATER_US)
    before = {path: path.stat().st_ino for path in folder.glob("*.parquet")}

    done = compact(folder, now_us=LATER_US)

    assert done.steps == ()
    assert {path: path.stat().st_ino for path in folder.glob("*.parquet")} == before


def test_what_comes_late_is_merged_into_its_hour(tmp_path: Path) -> None:
    folder = put_record(tmp_path, ROWS[:600])
    put_record(tmp_path, at_hour(ROWS[600:700], 1))
    compact(folder, now_us=LATER_US)
    put_record(tmp_path, ROWS[700:800])

    done = compact(folder, now_us=LATER_US)

    assert [(step.files, step.rows) for step in done.steps] == [(3, 700)]
    assert len(list(folder.glob("*.parquet"))) == 2
    assert rows_of(folder) == in_order([*ROWS[:600], *at_hour(ROWS[600:700], 1), *ROWS[700:800]])


def test_an_hour_that_is_not_over_waits(tmp_path: Path) -> None:
    folder = put_record(tmp_path, ROWS[:200])
    hour_us = ROWS[0][0] // HOUR_US * HOUR_US

    young = compact(folder, now_us=hour_us + HOUR_US)
    old = compact(folder, now_us=hour_us + HOUR_US + 300_000_000)

    assert (young.steps, young.waiting) == ((), 4)
    assert [step.files for step in old.steps] == [4]
    assert old.waiting == 0


def test_every_hour_is_merged_where_it_is_asked_for(tmp_path: Path) -> None:
    folder = put_record(tmp_path, ROWS[:200])

    done = compact(folder, now_us=0, every_hour=True)

    assert ([step.files for step in done.steps], done.waiting) == ([4], 0)


def test_an_hour_of_many_rows_becomes_several_files_and_stays_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact_plan, "ROWS_MAX", 400)
    folder = put_record(tmp_path, each=90)

    done = compact(folder, now_us=LATER_US)
    again = compact(folder, now_us=LATER_US)

    assert max(step.rows for step in done.steps) <= 400
    assert len(done.steps) == len(list(folder.glob("*.parquet"))) == 3
    assert again.steps == ()
    assert rows_of(folder) == in_order(ROWS)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_however_it_is_cut_and_whenever_it_is_merged_every_row_is_there_once(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("record")
    cuts = data.draw(st.lists(st.integers(1, 399), max_size=12, unique=True))
    bounds = [0, *sorted(cuts), 400]
    parts = [at_hour(ROWS[a:b], data.draw(st.integers(0, 2))) for a, b in pairwise(bounds)]
    compact_after = data.draw(st.sets(st.integers(0, len(parts) - 1)))

    for number, part in enumerate(parts):
        put(folder, part)
        if number in compact_after:
            compact(folder, now_us=data.draw(st.sampled_from([0, LATER_US])), every_hour=True)
    compact(folder, now_us=LATER_US)

    assert rows_of(folder) == in_order([row for part in parts for row in part])
    assert len(list(folder.glob("*.parquet"))) == len({row[0] // HOUR_US for row, *_ in parts})


@pytest.mark.parametrize("call", ["rename", "unlink", "fsync"])
@pytest.mark.parametrize("number", [1, 2, 3, 9])
def test_wherever_it_stops_readers_see_each_row_once_and_the_next_one_ends_it(
    call: str, number: int, tmp_path: Path
) -> None:
    folder = put_record(tmp_path / "record", each=100)
    put_record(folder, at_hour(ROWS[:300], 1), each=100)
    expected = in_order([*ROWS, *at_hour(ROWS[:300], 1)])
    command = [sys.executable, str(PROCESS), str(folder), str(LATER_US), call, str(number)]
    died = subprocess.run(command, timeout=60, check=False).returncode == -signal.SIGKILL

    between = rows_of(folder)
    compact(folder, now_us=LATER_US)

    assert died == (number < {"fsync": 5, "rename": 3, "unlink": 15}[call])
    assert between == expected
    assert rows_of(folder) == expected
    assert len(list(folder.glob("*.parquet"))) == 2
    assert list(folder.glob("*.tmp")) == []


def test_readers_beside_it_see_each_row_once(tmp_path: Path) -> None:
    rows = list(ROWS[:300])
    folder = put_record(tmp_path, rows, each=10)
    over = threading.Event()
    seen: list[int] = []

    def read() -> None:
        while not over.is_set():
            seen.append(find_events([folder]).rows)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        for round_ in range(1, 6):
            compact(folder, now_us=LATER_US)
            later = at_hour(ROWS[:300], round_)
            rows += later
            put_record(folder, later, each=20)
        compact(folder, now_us=LATER_US)
    finally:
        over.set()
        reader.join()

    # While files are added a reader has some of them; what it has seen once it never loses.
    assert seen == sorted(seen)
    assert rows_of(folder) == in_order(rows)


def test_a_gateway_removes_the_oldest_decisions_first_merged_or_not(tmp_path: Path) -> None:
    folder = put_record(tmp_path, ROWS[:200])
    put_record(folder, at_hour(ROWS[200:400], 1))
    old = {path.name for path in folder.glob("*.parquet")}
    done = compact(folder, now_us=(ROWS[0][0] // HOUR_US + 1) * HOUR_US + 300_000_000)
    (merged,) = {path.name for path in folder.glob("*.parquet")} - old
    now_s = ROWS[0][0] / 1e6 + 2 * 3600
    files = EventFiles(folder, gateway="gw", folder_bytes_max=10**9, age_s_max=5_000)

    files.open(now_s=now_s)
    files.remove_old(now_s=now_s)

    assert len(done.steps) == 1
    assert merged not in {path.name for path in folder.glob("*.parquet")}
    assert rows_of(folder) == in_order(at_hour(ROWS[200:400], 1))


def test_a_file_that_a_gateway_removes_meanwhile_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = put_record(tmp_path, ROWS[:400], each=100)
    first = min(folder.glob("*.parquet"))
    is_unchanged = EventFile.is_unchanged

    def removed_meanwhile(file: EventFile) -> bool:
        first.unlink(missing_ok=True)
        return is_unchanged(file)

    monkeypatch.setattr(EventFile, "is_unchanged", removed_meanwhile)

    done = compact(folder, now_us=LATER_US)

    assert [step.files for step in done.steps] == [3]
    assert rows_of(folder) == in_order(ROWS[100:400])


def test_what_cannot_be_merged_stays_and_is_named(tmp_path: Path) -> None:
    folder = put_record(tmp_path, ROWS[:200], each=100)
    damaged, odd = put(folder, ROWS[200:300]), put(folder, ROWS[300:400])
    content = bytearray(damaged.read_bytes())
    content[200] ^= 255
    damaged.write_bytes(content)
    table = pq.read_table(odd)
    pq.write_table(table.append_column("extra", pa.nulls(table.num_rows, pa.int8())), odd)

    done = compact(folder, now_us=LATER_US)

    reasons = {item.file: item.reason for item in done.left}
    assert [step.files for step in done.steps] == [2]
    assert reasons.keys() == {damaged, odd}
    assert "its rows cannot be read" in reasons[damaged]
    assert reasons[odd] == "its columns are not those of the events table"
    assert damaged.exists()
    assert odd.exists()


def test_files_of_version_1_get_their_algorithm(tmp_path: Path) -> None:
    file = put(tmp_path, ROWS[:100])
    table = pq.read_table(file).drop_columns(["algorithm", "owed_ms", "producer_id"])
    pq.write_table(table.replace_schema_metadata({"schema_version": "1"}), file)

    compact(tmp_path, now_us=LATER_US)

    (merged,) = tmp_path.glob("*.parquet")
    rows = pq.read_table(merged, columns=["quota_type", "algorithm"]).to_pylist()
    assert {(row["quota_type"], row["algorithm"]) for row in rows} == {
        ("PRODUCE", "sampled_rate"),
        ("FETCH", "sampled_rate"),
        ("CONTROLLER_MUTATION", "token_bucket"),
    }


def test_times_that_are_none_are_left_alone(tmp_path: Path) -> None:
    folder = put_record(tmp_path, [(2**62, *row[1:]) for row in ROWS[:10]])

    done = compact(folder, now_us=LATER_US)

    assert done.steps == ()
    assert done.left[0].reason == "its decisions have no time between 1970 and 9999"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named_and_stays(tmp_path: Path) -> None:
    folder = put_record(tmp_path / "record")
    folder.chmod(0o500)

    with pytest.raises(UnreachableError, match="Every decision is still in the record"):
        compact(folder, now_us=LATER_US)

    assert rows_of(folder) == in_order(ROWS)


def test_a_record_beside_its_merged_copy_is_refused(tmp_path: Path) -> None:
    first, copy = put_record(tmp_path / "first"), put_record(tmp_path / "copy")
    compact(copy, now_us=LATER_US)
    # The file with the first seq is told by that; the others by their names.
    for file in sorted(first.glob("events-*-000000000000-*.parquet")):
        file.unlink()

    with pytest.raises(UsageError, match="every decision would count twice"):
        find_events([first, copy])


@pytest.mark.parametrize("sources", ["not base64", "", json.dumps(["a"])])
def test_a_footer_that_names_no_sources_hides_nothing(sources: str, tmp_path: Path) -> None:
    folder = put_record(tmp_path, ROWS[:100])
    file = put(folder, ROWS[100:150])
    table = pq.read_table(file)
    metadata = {**table.schema.metadata, "sources": sources}
    pq.write_table(table.replace_schema_metadata(metadata), file)

    assert rows_of(folder) == in_order(ROWS[:150])


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 7},
        {"rows": "50"},
        {"first_seq": 2**80},
        {"gateway": None},
        {"first_us": 2**62},
        {"unknown": 1, "rows": 0},
    ],
)
def test_a_footer_that_lies_about_runs_is_not_believed(
    change: dict[str, object], tmp_path: Path
) -> None:
    file = put(tmp_path, ROWS[:50])
    (true,) = find_events([file]).runs
    table = pq.read_table(file)
    runs = json.loads(table.schema.metadata[b"runs"])
    metadata = {**table.schema.metadata, "runs": json.dumps([runs[0] | change])}
    pq.write_table(table.replace_schema_metadata(metadata), file)

    assert find_events([file]).runs == (true,)


def test_the_footer_says_what_is_in_a_file(tmp_path: Path) -> None:
    folder = put_record(tmp_path, ROWS[780:820], each=40)
    (file,) = find_events([folder]).files
    table = pq.read_table(file.path)

    for run in file.runs:
        mask = pc.equal(table["run_id"], run.run_id)
        seqs, times = (table.filter(mask)[name].to_pylist() for name in ("seq", "ts_us"))
        assert (run.rows, run.first_seq, run.last_seq) == (len(seqs), min(seqs), max(seqs))
        assert (run.first_us, run.last_us) == (min(times), max(times))
    assert {run.run_id for run in file.runs} == {"run-1", "run-2"}


def test_one_file_with_more_rows_than_are_held_at_once_stays_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = put(tmp_path, ROWS[:300])
    put(tmp_path, ROWS[300:400])
    monkeypatch.setattr(compact_module, "FILE_ROWS_MAX", 200)
    monkeypatch.setattr(compact_plan, "FILE_ROWS_MAX", 200)

    done = compact(tmp_path, now_us=LATER_US)

    assert [step.rows for step in done.steps] == [100]
    ((left, reason),) = [(item.file, item.reason) for item in done.left]
    assert left == large
    assert reason == "it has 300 decisions, and more than 200 of one file are not held at once"


def test_a_gateway_at_its_limit_sees_that_the_folder_has_become_smaller(tmp_path: Path) -> None:
    folder = put_record(tmp_path, ROWS[:300], each=20)
    compact(folder, now_us=LATER_US)
    put_record(folder, at_hour(ROWS[:300], 1), each=20)
    size = sum(path.stat().st_size for path in folder.glob("*.parquet"))
    files = EventFiles(folder, gateway="gateway-3", folder_bytes_max=size, age_s_max=1e12)
    files.open(now_s=0)
    compact(folder, now_us=LATER_US + HOUR_US)
    merged = {path.name for path in folder.glob("*.parquet")}
    assert len(merged) == 2

    for number in range(3):  # each is one too many, as far as the gateway knows
        name = f"events-gateway-3-run-{number:012d}-{number}.parquet"
        files.write(name, b"x" * 1_000, now_s=1)
        files.remove_old(now_s=1)

    here = {path.name for path in folder.glob("*.parquet")}
    assert merged < here
    assert len(here) == len(merged) + 3
