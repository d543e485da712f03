"""Written whole or not at all: on full disks, by many at once, and after a kill."""

import fcntl
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kvota.files.whole_file import remove_if_dead, try_to_write, write_whole

# Dies at the Nth call that makes something durable: the file's content, then the folder's names.
KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
from kvota.files.whole_file import write_whole
calls = 0
def dying(descriptor):
    global calls
    calls += 1
    if calls == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
os.fsync = dying
write_whole(Path(sys.argv[1]), b"by the killed one")
"""
WRITER = """
import sys
from pathlib import Path
from kvota.files.whole_file import write_whole
for number in range(int(sys.argv[2])):
    write_whole(Path(sys.argv[1]), sys.argv[3].encode() * 100_000)
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def modes(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def run(program: str, *arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", program, *map(str, arguments)])


def test_a_new_file_and_a_replaced_one_hold_what_was_written(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", b"first and long")
    write_whole(tmp_path / "a", memoryview(b"second"))

    assert (tmp_path / "a").read_bytes() == b"second"
    assert names(tmp_path) == ["a"]


def test_a_reader_of_the_old_file_reads_it_to_its_end(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", b"old")

    with (tmp_path / "a").open("rb") as reader:
        write_whole(tmp_path / "a", b"new")
        assert reader.read() == b"old"


def test_a_link_stays_a_link_and_permissions_stay(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "real").chmod(0o640)
    (tmp_path / "link").symlink_to("real")

    write_whole(tmp_path / "link", b"new")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"
    assert modes(tmp_path / "real") == 0o640


def test_new_files_get_the_permissions_asked_for_else_those_of_the_process(tmp_path: Path) -> None:
    umask = os.umask(0o027)
    try:
        write_whole(tmp_path / "plain", b"")
        write_whole(tmp_path / "program", b"", mode=0o755)
    finally:
        os.umask(umask)

    assert (modes(tmp_path / "plain"), modes(tmp_path / "program")) == (0o640, 0o755)


def full_disk(folder: Path) -> Path:
    (folder / "a.tmp").symlink_to("/dev/full")
    return folder / "a"


def no_folder(folder: Path) -> Path:
    return folder / "none" / "a"


def a_folder(folder: Path) -> Path:
    (folder / "a").mkdir()
    return folder / "a"


def links_in_a_circle(folder: Path) -> Path:
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    return folder / "a"


def a_name_too_long(folder: Path) -> Path:
    return folder / ("a" * 256)


def an_impossible_name(folder: Path) -> Path:
    return folder / "a\0"


@pytest.mark.parametrize(
    "place",
    [full_disk, no_folder, a_folder, links_in_a_circle, a_name_too_long, an_impossible_name],
)
def test_what_cannot_be_written_is_named_and_nothing_is_left(
    tmp_path: Path, place: Callable[[Path], Path]
) -> None:
    path = place(tmp_path)
    before = [name for name in names(tmp_path) if name != "a.tmp"]

    with pytest.raises(OSError, match=r"^\[Errno \d+\] .+: '") as caught:
        write_whole(path, b"new")

    assert caught.value.filename == str(path)
    assert caught.value.strerror
    assert names(tmp_path) == before


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")

    with pytest.raises(OSError, match=r"No space left on device: '.*/a'$"):
        write_whole(full_disk(tmp_path), b"new")

    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize(
    ("fsync_number", "left"), [(1, ["a.tmp"]), (2, ["a"])], ids=["content", "name"]
)
def test_what_a_killed_process_left_goes_with_the_next_write(
    tmp_path: Path, fsync_number: int, left: list[str]
) -> None:
    assert run(KILLED_WRITER, tmp_path / "a", fsync_number).wait() == -signal.SIGKILL
    assert names(tmp_path) == left

    write_whole(tmp_path / "a", b"next")

    assert (tmp_path / "a").read_bytes() == b"next"
    assert names(tmp_path) == ["a"]


def test_two_that_write_one_file_wait_for_each_other(tmp_path: Path) -> None:
    path = tmp_path / "a"
    writer = threading.Thread(target=write_whole, args=(path, b"second"), daemon=True)

    with (tmp_path / "a.tmp").open("wb") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        first.write(b"first")
        first.flush()
        writer.start()
        writer.join(0.2)
        assert writer.is_alive()
        assert (tmp_path / "a.tmp").read_bytes() == b"first"
        (tmp_path / "a.tmp").rename(path)
    writer.join()

    assert path.read_bytes() == b"second"
    assert names(tmp_path) == ["a"]


def test_of_many_that_write_one_file_at_once_one_is_there_whole_at_every_moment(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a"
    write_whole(path, b"0" * 100_000)
    writers = [run(WRITER, path, 60, letter) for letter in "123"]

    seen = set()
    while any(writer.poll() is None for writer in writers):
        content = path.read_bytes()
        seen.add(content[:1])
        assert content == content[:1] * 100_000

    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert len(seen) > 1
    assert names(tmp_path) == ["a"]


def test_an_unfinished_file_is_removed_only_where_nobody_writes_it(tmp_path: Path) -> None:
    unfinished = tmp_path / "a.tmp"
    unfinished.write_bytes(b"half")

    with unfinished.open("rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        remove_if_dead(unfinished)
        assert unfinished.exists()

    remove_if_dead(unfinished)
    assert names(tmp_path) == []
    remove_if_dead(unfinished)


def test_trying_to_write_leaves_nothing(tmp_path: Path) -> None:
    try_to_write(tmp_path / "a")

    assert names(tmp_path) == []


def test_trying_to_write_finds_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        try_to_write(full_disk(tmp_path))

    assert names(tmp_path) == []
