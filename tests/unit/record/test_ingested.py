"""Rows are taken into a record once, wherever the process is killed between the steps."""

import multiprocessing
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from tests.unit.record.record_files import LATER_US, ROWS, as_table, put_record

from kvota.model.errors import CorruptDataError, UsageError
from kvota.record.check import check
from kvota.record.compact import compact
from kvota.record.found_events import find_events
from kvota.record.ingested import FOLDER, PROGRESS, IngestFolder, ReadyFile, write_ready

TABLE = as_table(ROWS)
NAME = "events-ingest-q-{:012d}-{}.parquet"
QUERY = "q"


def ready(into: Path, batch: int, number: int, rows: pa.Table) -> ReadyFile:
    return write_ready(into, NAME.format(batch, number), rows)


def publish(folder: IngestFolder, batch: int, *tables: pa.Table, repeated: int = 0) -> None:
    files = [ready(folder.into, batch, number, rows) for number, rows in enumerate(tables)]
    folder.publish(QUERY, batch, files, repeated=repeated)


def seqs(into: Path) -> int:
    """How many rows are there; each of them once, and none missing in between."""
    checked = check(find_events([into]))
    assert checked.is_sound, checked
    return checked.rows


def test_published_rows_are_a_record_that_says_whose_they_are(tmp_path: Path) -> None:
    folder = IngestFolder.open(tmp_path / "into")
    publish(folder, 0, TABLE.slice(0, 400), TABLE.slice(400))

    assert seqs(folder.into) == len(ROWS)
    runs = find_events([folder.into]).runs
    assert [(run.gateway, run.run_id, run.rows) for run in runs] == [
        ("gateway 2", "run-2", 300),
        ("gateway-1", "run-1", 800),
    ]
    assert folder.has(QUERY, 0)
    assert not folder.has(QUERY, 1)
    assert not folder.has("another", 0)
    folder.close()


def test_rows_that_two_files_of_a_batch_have_are_there_once(tmp_path: Path) -> None:
    folder = IngestFolder.open(tmp_path)
    publish(folder, 0, TABLE.slice(0, 500), TABLE.slice(300), TABLE.slice(0, 9), repeated=3)

    assert seqs(tmp_path) == len(ROWS)
    assert (folder.progress.rows, folder.progress.repeated) == (len(ROWS), 212)
    assert len(list(tmp_path.glob("*.parquet"))) == 2
    folder.close()


def test_killed_before_it_is_published_a_batch_counts_for_nothing(tmp_path: Path) -> None:
    folder = IngestFolder.open(tmp_path)
    publish(folder, 0, TABLE.slice(0, 100))
    ready(tmp_path, 1, 0, TABLE.slice(100, 100))
    folder.close()

    again = IngestFolder.open(tmp_path)

    assert seqs(tmp_path) == 100
    assert not again.has(QUERY, 1)
    assert [path.name for path in (tmp_path / FOLDER).glob("events*")] == []
    publish(again, 1, TABLE.slice(100))
    assert seqs(tmp_path) == len(ROWS)
    again.close()


def test_killed_before_files_have_their_names_they_get_them_at_the_next_start(
    tmp_path: Path,
) -> None:
    folder = IngestFolder.open(tmp_path)
    publish(folder, 0, TABLE.slice(0, 100), TABLE.slice(100, 100))
    folder.close()
    name = NAME.format(0, 1)  # as it is when the process dies between the two names
    (tmp_path / name).rename(tmp_path / FOLDER / f"{name}.ready")

    again = IngestFolder.open(tmp_path)

    assert again.has(QUERY, 0)
    assert seqs(tmp_path) == 200
    again.close()


def test_what_was_merged_or_removed_meanwhile_is_not_taken_again(tmp_path: Path) -> None:
    folder = IngestFolder.open(tmp_path)
    publish(folder, 0, TABLE.slice(0, 400), TABLE.slice(400))
    compact(tmp_path, now_us=LATER_US)
    folder.close()

    again = IngestFolder.open(tmp_path)

    assert seqs(tmp_path) == len(ROWS)
    assert again.ledger.take(TABLE).num_rows == 0
    for path in tmp_path.glob("*.parquet"):
        path.unlink()
    again.close()
    last = IngestFolder.open(tmp_path)
    assert last.ledger.take(TABLE).num_rows == 0
    last.close()


def test_a_record_that_is_there_already_says_itself_what_has_been_taken(tmp_path: Path) -> None:
    put_record(tmp_path, [*ROWS[:200], *ROWS[300:]])

    folder = IngestFolder.open(tmp_path)

    assert folder.ledger.take(TABLE)["seq"].to_pylist() == list(range(200, 300))
    folder.close()


def test_what_is_removed_from_such_a_record_has_been_taken_all_the_same(tmp_path: Path) -> None:
    put_record(tmp_path, ROWS[:200])
    IngestFolder.open(tmp_path).close()
    for path in tmp_path.glob("*.parquet"):
        path.unlink()

    folder = IngestFolder.open(tmp_path)

    assert folder.ledger.take(TABLE.slice(0, 250))["seq"].to_pylist() == list(range(200, 250))
    folder.close()


def test_the_beginning_of_a_run_is_missing_where_nothing_was_removed_on_purpose(
    tmp_path: Path,
) -> None:
    folder = IngestFolder.open(tmp_path)
    first = ready(tmp_path, 0, 0, TABLE.slice(10, 90))
    folder.publish(QUERY, 0, [first], repeated=0, are_from_first=True)
    assert folder.ledger.missing == 10
    publish(folder, 1, TABLE.slice(150, 50))
    assert folder.ledger.missing == 60
    folder.close()

    again = IngestFolder.open(tmp_path)

    assert [(hole.first_seq, hole.last_seq) for hole in again.ledger.holes()] == [(0, 9), (100, 149)]  # fmt: skip
    publish(again, 2, TABLE.slice(0, 100))
    assert again.ledger.missing == 50
    again.close()


def test_what_was_removed_on_purpose_is_not_missing_when_more_of_its_run_comes(
    tmp_path: Path,
) -> None:
    folder = IngestFolder.open(tmp_path)
    publish(folder, 0, TABLE.slice(10, 90))
    more = ready(tmp_path, 1, 0, TABLE.slice(100, 50))

    folder.publish(QUERY, 1, [more], repeated=0, are_from_first=True)

    assert folder.ledger.missing == 0
    folder.close()


def test_rows_of_a_file_with_gaps_are_looked_at(tmp_path: Path) -> None:
    put_record(tmp_path, ROWS[:200:2], each=200)

    folder = IngestFolder.open(tmp_path)

    assert folder.ledger.take(TABLE.slice(0, 200))["seq"].to_pylist() == list(range(1, 200, 2))
    folder.close()


def test_damaged_progress_is_named_and_may_be_removed(tmp_path: Path) -> None:
    folder = IngestFolder.open(tmp_path)
    publish(folder, 0, TABLE.slice(0, 100))
    folder.close()
    progress = tmp_path / FOLDER / PROGRESS
    for damage in ("", "{", "[]", '{"schema": 2}', '{"schema": 1, "query": "q"}'):
        progress.write_text(damage)
        with pytest.raises(CorruptDataError, match=f"{PROGRESS} cannot be read"):
            IngestFolder.open(tmp_path)

    progress.unlink()
    again = IngestFolder.open(tmp_path)
    assert again.ledger.take(TABLE.slice(0, 150)).num_rows == 50
    again.close()


def _hold(into: Path, events: "multiprocessing.connection.Connection") -> None:
    folder = IngestFolder.open(into)
    events.send("open")
    events.recv()
    folder.close()


def test_only_one_process_takes_rows_into_a_folder(tmp_path: Path) -> None:
    ours, theirs = multiprocessing.Pipe()
    other = multiprocessing.get_context("spawn").Process(target=_hold, args=(tmp_path, theirs))
    other.start()
    assert ours.recv() == "open"

    with pytest.raises(UsageError, match=f"another process \\({other.pid}\\) ingests into"):
        IngestFolder.open(tmp_path)

    other.kill()
    other.join()
    IngestFolder.open(tmp_path).close()
    shutil.rmtree(tmp_path / FOLDER)
