"""What is handed out of folders of events while gateways, compactions and people are at work in them."""

import os
import shutil
import time
from pathlib import Path

from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.unit.record.record_files import LATER_US, ROWS, as_table, put, put_record

from kvota.pipeline.ingest.folder_source import SEPARATOR, FolderReader
from kvota.record.compact import compact
from kvota.record.ingested import IngestFolder, write_ready

Look = dict[str, int]


class Following:
    """Asks as Spark does, batch after batch."""

    def __init__(self, *folders: Path, into: Path, tasks: int = 2) -> None:
        names = SEPARATOR.join(str(folder) for folder in folders)
        self.reader = FolderReader({"folders": names, "into": str(into), "tasks": str(tasks)})
        self.at: Look = self.reader.initialOffset()

    def next(self) -> list[tuple[str, str | None]]:
        """The names of the files of the next batch, each with what is wrong with it; empty: there is none."""
        end = self.reader.latestOffset(self.at, ReadAllAvailable())
        start, self.at = self.at, end
        planned = self.reader.partitions(start, end)
        assert self.reader.partitions(start, end) == planned, "Spark may ask again"
        pieces = [
            piece
            for partition in planned
            for batch in self.reader.read(partition)
            for piece in batch.to_pylist()
        ]
        assert {piece["value"] for piece in pieces} <= {None}
        return sorted((Path(piece["source"]).name, piece["fault"]) for piece in pieces)

    def names(self) -> list[str]:
        return [name for name, _ in self.next()]


def age(path: Path, age_s: float) -> Path:
    then_s = time.time() - age_s
    os.utime(path, (then_s, then_s))
    return path


def test_each_file_is_handed_out_once_also_those_that_come_later(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    first, second = put(one, ROWS[:50]), put(two, ROWS[50:100])
    following = Following(one, two, into=tmp_path / "into")

    assert following.names() == sorted([first.name, second.name])
    assert following.names() == []
    third = put(one, ROWS[100:150])
    assert following.names() == [third.name]
    assert following.at == {"look": 2}
    assert following.names() == []
    assert following.at == {"look": 2}


def test_what_was_there_when_it_began_is_all_where_it_shall_end(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    first = put(folder, ROWS[:50])
    following = Following(folder, into=tmp_path / "into")
    following.reader.prepareForTriggerAvailableNow()
    put(folder, ROWS[50:100])

    assert following.names() == [first.name]
    assert following.names() == []


def test_a_batch_has_about_as_many_rows_as_it_may_the_oldest_files_first(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr("kvota.pipeline.ingest.folder_source.ROWS_MAX", 100)
    folder = put_record(tmp_path / "record", ROWS[:300], each=50)
    following = Following(folder, into=tmp_path / "into")
    batches = [following.names() for _ in range(4)]

    assert [len(names) for names in batches] == [2, 2, 2, 0]
    ordered = [name for names in batches for name in names]
    assert ordered == sorted(ordered)


def test_files_whose_rows_were_all_taken_are_passed_over(tmp_path: Path) -> None:
    folder, into = put_record(tmp_path / "record", ROWS[:200], each=50), tmp_path / "into"
    taken = IngestFolder.open(into)
    name = "events-ingest-q-000000000000-0.parquet"
    taken.publish("q", 0, [write_ready(into, name, as_table(ROWS[:120]))], repeated=0)
    taken.close()

    assert len(Following(folder, into=into).names()) == 2  # from 100 on


def test_a_merged_file_is_handed_out_where_it_has_rows_that_were_not(tmp_path: Path) -> None:
    folder, into = put_record(tmp_path / "record", ROWS[:200], each=50), tmp_path / "into"
    following = Following(folder, into=into)
    following.reader.prepareForTriggerAvailableNow()
    compact(folder, now_us=LATER_US)

    (merged,) = following.names()
    assert merged.startswith("events-hour-")
    taken = IngestFolder.open(into)
    name = "events-ingest-q-000000000000-0.parquet"
    taken.publish("q", 0, [write_ready(into, name, as_table(ROWS[:200]))], repeated=0)
    taken.close()
    assert Following(folder, into=into).names() == []


def test_a_damaged_file_is_told_once_when_it_is_not_being_written(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    whole = put(folder, ROWS[:50])
    content = whole.read_bytes()
    whole.write_bytes(content[:-30])  # somebody copies it
    following = Following(folder, into=tmp_path / "into")

    assert following.next() == []
    age(whole, 3600)
    ((name, fault),) = following.next()
    assert (name, "not a complete Parquet file" in str(fault)) == (whole.name, True)
    assert following.next() == []
    whole.write_bytes(content)
    assert following.next() == [(whole.name, None)]


def test_other_files_and_what_is_removed_are_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    first = put(folder, ROWS[:50])
    shutil.copy(first, folder / "events-gw-run-000000000000-0.parquet.tmp")
    (folder / "_volumes").mkdir()
    shutil.copy(first, folder / "_volumes" / "volumes-gw-1790000000-0.parquet")
    following = Following(folder, into=tmp_path / "into")

    assert following.names() == [first.name]
    first.unlink()
    assert following.names() == []
    second = put(folder, ROWS[50:100])
    end = following.reader.latestOffset(following.at, ReadAllAvailable())
    second.unlink()
    assert following.reader.partitions(following.at, end) == []
