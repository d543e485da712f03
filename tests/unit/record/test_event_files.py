"""What stays in a folder of recordings, and what goes."""

import fcntl
import os
from pathlib import Path

import pytest

from kvota.record.event_files import EventFiles

NOW_S = 1_790_000_000.0


def make_files(folder: Path, *, bytes_max: int = 10**9, age_s_max: float = 10**9) -> EventFiles:
    files = EventFiles(folder, gateway="gw", folder_bytes_max=bytes_max, age_s_max=age_s_max)
    files.open(now_s=NOW_S)
    return files


def put(folder: Path, name: str, *, age_s: float = 0, size: int = 100) -> None:
    path = folder / name
    path.write_bytes(b"x" * size)
    os.utime(path, (NOW_S - age_s, NOW_S - age_s))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def event_file(number: int) -> str:
    return f"events-gw-run-{number:012d}-{number}.parquet"


def test_files_beyond_the_size_limit_go_oldest_first(tmp_path: Path) -> None:
    for number in range(10):
        put(tmp_path, event_file(number), age_s=100 - number)
    files = make_files(tmp_path, bytes_max=350)

    files.remove_old(now_s=NOW_S)

    assert names(tmp_path) == [event_file(7), event_file(8), event_file(9)]
    assert (files.count, files.bytes) == (3, 300)


def test_files_beyond_the_age_limit_go(tmp_path: Path) -> None:
    for number in range(10):
        put(tmp_path, event_file(number), age_s=100 - number)
    files = make_files(tmp_path, age_s_max=92)

    files.remove_old(now_s=NOW_S)

    assert names(tmp_path) == [event_file(8), event_file(9)]


def test_files_get_too_old_while_the_recorder_runs(tmp_path: Path) -> None:
    files = make_files(tmp_path, age_s_max=50)
    files.write(event_file(0), b"first", now_s=NOW_S)
    files.write(event_file(1), b"second", now_s=NOW_S + 40)

    files.remove_old(now_s=NOW_S + 60)

    assert names(tmp_path) == [event_file(1)]
    assert (files.count, files.bytes) == (1, 6)


def test_the_newest_file_stays_whatever_the_limits_say(tmp_path: Path) -> None:
    put(tmp_path, event_file(0), age_s=1000)
    put(tmp_path, event_file(1), age_s=500)
    files = make_files(tmp_path, bytes_max=1, age_s_max=1)

    files.remove_old(now_s=NOW_S)

    assert names(tmp_path) == [event_file(1)]


def test_files_of_others_are_never_removed_nor_counted(tmp_path: Path) -> None:
    others = ["data.parquet", "events.parquet", "events-gw-run-1-1.parquet.bak", "notes.tmp"]
    for name in others:
        put(tmp_path, name, age_s=10_000)
    put(tmp_path, event_file(0), age_s=5_000)
    put(tmp_path, event_file(1))
    files = make_files(tmp_path, bytes_max=150, age_s_max=1)

    files.remove_old(now_s=NOW_S)

    assert names(tmp_path) == sorted([*others, event_file(1)])
    assert files.count == 1


def test_more_files_than_are_remembered_still_go_oldest_first(tmp_path: Path) -> None:
    for number in range(2500):
        put(tmp_path, event_file(number), age_s=5000 - number, size=1)
    files = make_files(tmp_path, bytes_max=10)

    files.remove_old(now_s=NOW_S)

    assert names(tmp_path) == [event_file(number) for number in range(2490, 2500)]


def test_a_new_file_is_not_taken_for_an_old_one_that_was_not_remembered(tmp_path: Path) -> None:
    for number in range(1500):
        put(tmp_path, event_file(number), age_s=5000 - number, size=1)
    files = make_files(tmp_path, bytes_max=900)
    files.remove_old(now_s=NOW_S)

    files.write(event_file(1500), b"x" * 850, now_s=NOW_S)
    files.remove_old(now_s=NOW_S)

    # 600 went before the write and 850 after it; only 1,000 of the oldest had been remembered.
    assert names(tmp_path) == [event_file(number) for number in range(1450, 1501)]


def test_files_written_and_files_found_are_counted_together(tmp_path: Path) -> None:
    put(tmp_path, event_file(0), age_s=10)
    files = make_files(tmp_path, bytes_max=205)

    files.write(event_file(1), b"y" * 100, now_s=NOW_S)
    files.remove_old(now_s=NOW_S)
    files.write(event_file(2), b"z" * 100, now_s=NOW_S)
    files.remove_old(now_s=NOW_S)

    assert names(tmp_path) == [event_file(1), event_file(2)]


def test_a_file_that_somebody_else_removed_is_no_fault(tmp_path: Path) -> None:
    for number in range(3):
        put(tmp_path, event_file(number), age_s=100 - number)
    files = make_files(tmp_path, bytes_max=150)
    (tmp_path / event_file(0)).unlink()

    files.remove_old(now_s=NOW_S)

    assert names(tmp_path) == [event_file(2)]


def test_what_a_dead_run_left_half_done_is_removed_at_the_start(tmp_path: Path) -> None:
    put(tmp_path, event_file(0) + ".tmp")
    put(tmp_path, event_file(1))

    make_files(tmp_path)

    assert names(tmp_path) == [event_file(1)]


def test_what_a_living_run_is_writing_is_left_alone(tmp_path: Path) -> None:
    put(tmp_path, event_file(0) + ".tmp")

    with (tmp_path / (event_file(0) + ".tmp")).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        make_files(tmp_path)

    assert names(tmp_path) == [event_file(0) + ".tmp"]


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    files = make_files(tmp_path)
    (tmp_path / (event_file(0) + ".tmp")).symlink_to("/dev/full")

    with pytest.raises(OSError, match="No space left"):
        files.write(event_file(0), b"content", now_s=NOW_S)

    assert names(tmp_path) == []
    assert files.count == 0
