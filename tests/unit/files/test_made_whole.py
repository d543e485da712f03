"""Files and folders that another program makes."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kvota.files.made_whole import made_whole


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_gets_its_name_as_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a"

    with made_whole(path) as made:
        made.write_text("whole")
        assert not path.exists()

    assert path.read_text() == "whole"
    assert names(tmp_path / "new") == ["a"]


def test_a_folder_of_the_same_name_that_another_made_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "classes"

    with made_whole(path) as made:
        for folder, content in ((made, "ours"), (path, "theirs")):
            folder.mkdir()
            (folder / "A.class").write_text(content)

    assert (path / "A.class").read_text() == "theirs"
    assert names(tmp_path) == ["classes"]


def test_a_block_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")

    def make_half() -> None:
        with made_whole(path) as made:
            made.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_half()

    assert path.read_text() == "old"
    assert names(tmp_path) == ["a"]


def test_a_block_that_makes_nothing_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    with (
        pytest.raises(FileNotFoundError, match=r"archive\.jsa"),
        made_whole(tmp_path / "archive.jsa"),
    ):
        pass

    assert names(tmp_path) == []


def test_what_a_killed_process_left_goes_with_the_next_one(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from kvota.files.made_whole import made_whole\n"
        "with made_whole(Path(sys.argv[1])) as made:\n"
        "    made.write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path / "a"], check=False)
    left = names(tmp_path)

    with made_whole(tmp_path / "b") as made:
        made.write_text("whole")

    assert done.returncode == -signal.SIGKILL
    assert len(left) == 1
    assert names(tmp_path) == ["b"]


def test_it_is_made_beside_its_place_where_that_is_on_another_disk(tmp_path: Path) -> None:
    other_disk = Path("/dev/shm") / tmp_path.name
    if not other_disk.parent.is_dir() or other_disk.parent.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("this machine has one file system")
    other_disk.mkdir()
    (tmp_path / "link").symlink_to(other_disk)
    try:
        with made_whole(tmp_path / "link" / "a") as made:
            made.write_text("whole")
        assert names(other_disk) == ["a"]
    finally:
        shutil.rmtree(other_disk)
