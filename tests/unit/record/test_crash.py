"""kill -9 and a full disk, on real processes: files are whole or not there."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PROCESS = Path(__file__).parent / "recording_process.py"


@contextmanager
def start(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, PROCESS, folder, *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()  # whatever became of the test, nothing stays behind


def complete_files(folder: Path) -> list[Path]:
    return list(folder.glob("*.parquet"))


def unfinished_files(folder: Path) -> list[Path]:
    return list(folder.glob("*.tmp"))


@pytest.mark.parametrize(
    ("call", "unfinished", "complete"),
    [
        (("die-at-fsync", "1"), 1, 0),  # the content may be in the file, its name is not
        (("die-at-rename", "1"), 1, 0),
        (("die-at-fsync", "2"), 0, 1),  # after the rename: of the folder
        (("die-at-fsync", "5"), 1, 2),
    ],
)
def test_a_process_killed_in_mid_write_leaves_whole_files_and_one_unfinished(
    call: tuple[str, str], unfinished: int, complete: int, tmp_path: Path, rows_in
) -> None:
    with start(tmp_path, *call) as process:
        process.communicate()

    assert process.returncode == -9
    assert (len(unfinished_files(tmp_path)), len(complete_files(tmp_path))) == (
        unfinished,
        complete,
    )
    seqs = [row["seq"] for row in rows_in(tmp_path)]
    assert seqs == list(range(len(seqs)))
    assert len(seqs) >= complete  # no file is empty


def test_the_next_start_removes_what_the_killed_one_left(
    tmp_path: Path, make_recorder, make_memo, rows_in
) -> None:
    with start(tmp_path, "die-at-fsync", "5") as process:
        process.communicate()
    before = rows_in(tmp_path)

    recorder = make_recorder()
    recorder.start()

    assert unfinished_files(tmp_path) == []
    assert rows_in(tmp_path) == before
    assert recorder.status().files == 2


@pytest.mark.parametrize("files", [1, 4, 9])
def test_a_kill_at_any_moment_leaves_only_whole_files(
    files: int, tmp_path: Path, rows_in, eventually
) -> None:
    with start(tmp_path, "endless") as process:
        eventually(lambda: len(complete_files(tmp_path)) >= files)
        process.kill()
        process.communicate()

    seqs = [row["seq"] for row in rows_in(tmp_path)]
    assert seqs == list(range(len(seqs)))
    assert len(seqs) >= files
    assert len(unfinished_files(tmp_path)) <= 1
    others = {path.suffix for path in tmp_path.iterdir()} - {".parquet", ".tmp", ".lock"}
    assert others == set()


def test_when_files_cannot_grow_recording_stops_is_counted_and_goes_on_later(
    tmp_path: Path, rows_in
) -> None:
    with start(tmp_path, "small-files", "1000") as process:
        out, log = process.communicate()

    # Four batches of 100 rows waited in memory, the other 600 rows were dropped.
    assert out.splitlines() == [
        "ready",
        "False|0|600|File too large",
        "False|410|600|File too large",
    ]
    assert [row["seq"] for row in rows_in(tmp_path)] == [*range(400), *range(1000, 1010)]
    assert unfinished_files(tmp_path) == []
    assert len(log.splitlines()) == 2
    assert "600 rows were dropped" in log.splitlines()[1]


def test_pandas_is_never_imported_though_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "pandas").mkdir()
    (tmp_path / "pandas" / "__init__.py").write_text("raise SystemExit('pandas was imported')")
    code = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(PROCESS.parent)!r}]\n"
        "from pathlib import Path\n"
        "from recording_process import make_recorder, record\n"
        f"recorder = make_recorder(Path({str(tmp_path / 'events')!r}))\n"
        "recorder.start(); record(recorder, 250); recorder.close()\n"
        "print(recorder.status().rows_written, 'pandas' in sys.modules)\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("250 False\n", "")
