"""Ctrl-C and kill -9 at any moment, and a disk that is full: the record stays as it was, nothing goes on running.

``KVOTA_STOPS=20`` tries so many moments of each kind.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.integration.small_disks import small_disks

from kvota.pipeline.kernel_parts import PARTS
from kvota.pipeline.kernels.kept_code import missing
from kvota.testing.recorded_traffic import EventRow, RecordedTraffic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

WriteEvents = Callable[..., Path]
STOPS = int(os.environ.get("KVOTA_STOPS", "2"))

# What lies where a table is saved: one that was saved there before.
OLD_TABLE = {"_kvota-table.json": b'{"table": "usage"}\n', "part-0.parquet": b"old"}

# A moment is a share of the time that a run takes when it is left alone.
MOMENTS = [random.Random(number).random() for number in range(STOPS)]


class Undisturbed(NamedTuple):
    """What it prints and says when it is left alone, and after how long it ends."""

    printed: str
    said: list[str]
    length_s: float


def start(folder: Path, mark: Path, *options: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "kvota.app.cli.main", "usage", "--events", str(folder)]
    return subprocess.Popen(
        # The mark stands in the command line of the JVM.
        [*command, "--master", "local[2]", "--conf", f"spark.kvota.mark={mark}", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until_it_is_at_work(process: "subprocess.Popen[str]") -> None:
    """Until it has loaded what only the command itself loads: a signal before that may meet Python as it starts."""
    while process.poll() is None:
        if b"pyarrow" in Path(f"/proc/{process.pid}/maps").read_bytes():
            return
        time.sleep(0.01)


def without_progress(said: str) -> list[str]:
    return [line for line in said.splitlines() if not line.startswith(("starting", "counting"))]


def running(mark: Path) -> list[str]:
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if str(mark) in line]


def rows_in(files: dict[str, bytes]) -> list[str]:
    """The rows of a saved table, in any order."""
    tables = [
        pq.read_table(pa.BufferReader(content))
        for name, content in files.items()
        if name.endswith(".parquet")
    ]
    return sorted(str(row) for table in tables for row in table.to_pylist())


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture(scope="module")
def folder(
    recorded_rows: list[EventRow],
    write_for_all: WriteEvents,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    return write_for_all(tmp_path_factory.mktemp("stopped"), recorded_rows, files=20)


@pytest.fixture(scope="module")
def undisturbed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """A run that nobody stops; behind one that compiles what all of them run, where nobody has before."""
    for _ in range(2 if missing(PARTS) else 1):
        began = time.monotonic()
        process = start(folder, tmp_path_factory.mktemp("undisturbed"))
        printed, said = process.communicate(timeout=600)
        assert process.returncode == 0
    return Undisturbed(printed, without_progress(said), time.monotonic() - began)


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_leaves_one_word_and_no_jvm(
    moment: float, folder: Path, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    process = start(folder, tmp_path)
    wait_until_it_is_at_work(process)
    time.sleep(moment * undisturbed.length_s)

    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=600)

    words = without_progress(said)
    if process.returncode == 130:
        assert (out, words[-1:]) == ("", ["interrupted"])
        # Before that, what it says first of what it has found, as far as it came.
        assert words[:-1] == undisturbed.said[: len(words) - 1]
    else:  # the signal came after the last word
        assert (process.returncode, out, words) == (0, undisturbed.printed, undisturbed.said)
    assert running(tmp_path) == []


@pytest.mark.parametrize("moment", MOMENTS)
def test_kill_9_leaves_the_record_and_no_jvm(
    moment: float, folder: Path, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    before = contents(folder)
    table = tmp_path / "kept" / "table"
    table.mkdir(parents=True)
    for name, content in OLD_TABLE.items():
        (table / name).write_bytes(content)
    process = start(folder, tmp_path, "--save", str(table))
    time.sleep(moment * undisturbed.length_s)

    process.kill()
    process.communicate()

    while running(tmp_path):  # the JVM notices a moment later
        time.sleep(0.2)
    assert contents(folder) == before
    left = contents(table)
    again = start(folder, tmp_path, "--save", str(table))
    assert again.communicate(timeout=600)[0] == undisturbed.printed
    assert left == OLD_TABLE or rows_in(left) == rows_in(contents(table))
    assert rows_in(contents(table))
    assert [path.name for path in table.parent.iterdir()] == ["table"]


def workers_of(pid: int) -> list[int]:
    """The Python workers below a process: what Spark's daemon of them has forked."""
    command = ["ps", "-ww", "-eo", "pid,ppid,args"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()[1:]]
    parents = {int(child): int(parent) for child, parent, _ in rows}
    daemons = {int(child) for child, _, args in rows if "-m kvota.pipeline.worker_daemon" in args}

    def is_below(child: int) -> bool:
        while child in parents and child != pid:
            child = parents[child]
        return child == pid

    return [one for one in daemons if parents[one] in daemons and is_below(one)]


def test_a_worker_that_vanishes_is_said_and_nothing_is_left(folder: Path, tmp_path: Path) -> None:
    before, aside, kept = contents(folder), tmp_path / "aside", tmp_path / "kept"
    for made in (aside, kept, kept / "table"):
        made.mkdir()
    (kept / "table" / "_kvota-table.json").write_text("{}")  # as saved before
    process = start(
        folder, tmp_path, "--save", str(kept / "table"), "--conf", f"spark.local.dir={aside}"
    )
    while process.poll() is None:
        for pid in workers_of(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    printed, said = process.communicate()

    assert (process.returncode, printed) == (3, "")
    line = without_progress(said)[-1]
    assert line.startswith("kvota: Spark failed: a worker died, perhaps for lack of memory")
    assert "Traceback" not in said
    assert contents(folder) == before
    assert contents(kept / "table") == {"_kvota-table.json": b"{}"}
    assert [path.name for path in kept.iterdir()] == ["table"]
    assert list(aside.iterdir()) == []
    assert running(tmp_path) == []


def test_a_full_disk_is_named_with_what_to_do(write_for_all: WriteEvents, tmp_path: Path) -> None:
    rows = [*RecordedTraffic(9).rows(12_000)]  # more than fits, packed
    folder = write_for_all(tmp_path / "record", rows)
    before = contents(folder)
    with small_disks(tmp_path, 1, 40_960) as (disk,):
        process = start(folder, tmp_path, "--conf", f"spark.local.dir={disk}")
        printed, said = process.communicate(timeout=600)

        line = without_progress(said)[-1]
        assert (process.returncode, printed) == (3, "")
        assert line.startswith(f"kvota: Spark failed: no room is left in {disk}, where Spark keeps")
        assert "--conf spark.local.dir=/path" in line
        assert "Traceback" not in said
    assert contents(folder) == before
    assert running(tmp_path) == []


def test_a_folder_that_may_not_be_written_is_named(folder: Path, tmp_path: Path) -> None:
    before = contents(folder)
    with small_disks(tmp_path, 1, 40_960) as (disk,):
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        process = start(folder, tmp_path, "--conf", f"spark.local.dir={disk}")
        printed, said = process.communicate(timeout=600)

    assert (process.returncode, printed) == (3, "")
    assert f"cannot write to {disk} (Read-only file system)" in without_progress(said)[-1]
    assert "--conf spark.local.dir=/path" in said
    assert "Traceback" not in said
    assert contents(folder) == before
    assert running(tmp_path) == []
