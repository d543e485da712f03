"""One at a time; the next one is told before it waits."""

import errno
import fcntl
import threading
from pathlib import Path

import pytest

from kvota.files.folder_lock import folder_lock


def test_the_folder_is_made_and_the_lock_is_free_again_after_the_block(tmp_path: Path) -> None:
    told: list[str] = []

    for _ in range(2):
        with folder_lock(tmp_path / "new", before_waiting=lambda: told.append("waits")):
            assert (tmp_path / "new").is_dir()

    assert told == []


def test_who_comes_second_is_told_and_waits(tmp_path: Path) -> None:
    steps: list[str] = []
    waits = threading.Event()

    def second() -> None:
        with folder_lock(tmp_path, before_waiting=waits.set):
            steps.append("second")

    thread = threading.Thread(target=second, daemon=True)
    with folder_lock(tmp_path):
        thread.start()
        assert waits.wait(10)
        thread.join(0.1)
        steps.append("first")
    thread.join()

    assert steps == ["first", "second"]


def test_where_there_are_no_locks_it_works_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)

    with folder_lock(tmp_path / "new"):
        assert (tmp_path / "new").is_dir()
