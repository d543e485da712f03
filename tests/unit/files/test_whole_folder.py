"""A folder of a name is there whole, wherever the process that replaces it dies, and whatever the disk says."""

import errno
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.integration.small_disks import small_disks, taken_by_others
from tests.unit.files import replacing_process
from tests.unit.files.replacing_process import number_in, put

from kvota.files.whole_folder import settle, try_to_make, whole_folder

DISK_BYTES = 1024**2
PROCESS = [sys.executable, replacing_process.__file__]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_kill_at_any_moment_leaves_a_whole_folder(tmp_path: Path) -> None:
    path = tmp_path / "a [folder]"
    put(path, 0)
    rng = random.Random(14)
    numbers = []
    for _ in range(4):
        # It dies of its first rename: names are exchanged, and no moment is without a folder.
        with subprocess.Popen([*PROCESS, str(path), "1"], stdout=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"ready\n"
            time.sleep(0.02 + rng.random() * 0.2)
            process.kill()
        numbers.append(number_in(path))

    assert max(numbers) > 1
    put(path, 0)
    assert (names_in(tmp_path), number_in(path)) == ([path.name], 0)


@pytest.mark.parametrize(("rename", "is_there"), [(1, True), (2, False), (3, True)])
def test_where_names_are_not_exchanged_the_one_before_comes_back(
    rename: int, is_there: bool, tmp_path: Path
) -> None:
    path = tmp_path / "folder"
    put(path, 0)

    command = [*PROCESS, str(path), str(rename), "no-exchange"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=20)

    assert (done.returncode, path.exists()) == (-9, is_there)
    settle(path)
    assert (names_in(tmp_path), number_in(path)) == ([path.name], int(rename > 2))


def test_what_a_living_one_makes_is_not_swept(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with whole_folder(path) as new:
        new.mkdir()
        settle(path)
        (new / "file").write_text("x")
        put(path, 7)

    assert (names_in(tmp_path), names_in(path)) == (["folder"], ["file"])


def test_who_fails_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    put(path, 3)

    with pytest.raises(FileNotFoundError), whole_folder(path) as new:
        (new / "file").write_text("there is no such folder yet")

    assert (names_in(tmp_path), number_in(path)) == (["folder"], 3)


def test_on_a_full_disk_the_one_before_stays(tmp_path: Path) -> None:
    with small_disks(tmp_path, 1, DISK_BYTES) as (disk,):
        path = disk / "folder"
        put(path, 3)
        try_to_make(path)
        with taken_by_others(disk, 0):
            for make in (lambda: put(path, 4), lambda: try_to_make(path)):
                with pytest.raises(OSError, match="No space left") as refused:
                    make()
                assert refused.value.errno == errno.ENOSPC
        assert (names_in(disk), number_in(path)) == (["folder"], 3)
        put(path, 5)
        assert number_in(path) == 5


def test_a_disk_that_may_only_be_read_is_told_early(tmp_path: Path) -> None:
    with small_disks(tmp_path, 1, DISK_BYTES) as (disk,):
        put(disk / "folder", 3)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)

        for path in (disk / "folder", disk / "not" / "there"):
            with pytest.raises(OSError, match="Read-only") as refused:
                try_to_make(path)
            assert refused.value.errno == errno.EROFS
        assert number_in(disk / "folder") == 3
