"""One process holds a file; others learn who, and a killed one leaves nothing that matters."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvota.files.process_lock import HeldError, ProcessLock, holder, told

PROGRAM = """
import sys
from pathlib import Path
from kvota.files.process_lock import ProcessLock
lock = ProcessLock.take(Path(sys.argv[1]))
print("held", flush=True)
if sys.stdin.readline() == "tell\\n":
    lock.tell(("1 accepted", "x" * 1000, "end"))
    print("told", flush=True)
    sys.stdin.readline()
lock.tell(("2 accepted", "end"))
lock.release()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gateway.pid"


@pytest.fixture
def other(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the file."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_the_holder_is_known_and_nobody_else_gets_it(
    path: Path, other: subprocess.Popen[str]
) -> None:
    with pytest.raises(HeldError) as refused:
        ProcessLock.take(path)

    assert refused.value.pid == other.pid == holder(path)
    assert path.read_text() == f"{other.pid}\n"


def test_what_a_killed_process_has_left_means_nothing(
    path: Path, other: subprocess.Popen[str]
) -> None:
    other.kill()
    other.wait()
    assert path.exists()

    assert holder(path) is None
    lock = ProcessLock.take(path)

    assert path.read_text() == f"{os.getpid()}\n"
    lock.release()
    assert not path.exists()


def test_what_the_holder_tells_stands_behind_the_first_line(
    path: Path, other: subprocess.Popen[str]
) -> None:
    assert other.stdin is not None
    assert other.stdout is not None
    other.stdin.write("tell\n")
    other.stdin.flush()
    assert other.stdout.readline() == "told\n"

    assert told(path) == ("1 accepted", "x" * 1000, "end")
    assert path.read_text().startswith(f"{other.pid}\n")


def test_less_is_told_than_before_and_nothing_of_that_is_left(path: Path) -> None:
    lock = ProcessLock.take(path)
    lock.tell(("a long line", "end"))

    lock.tell(("end",))

    assert path.read_text() == f"{os.getpid()}\nend\n"
    lock.release()


def test_nobody_holds_what_is_not_there(path: Path) -> None:
    assert holder(path) is None


def test_a_file_that_was_removed_and_made_again_is_another_one(path: Path) -> None:
    lock = ProcessLock.take(path)
    path.unlink()
    path.write_text("somebody else's\n")

    lock.release()

    assert path.read_text() == "somebody else's\n"


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ProcessLock.take(tmp_path / "nowhere" / "gateway.pid")
