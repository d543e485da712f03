"""Folders of a run: removed with it, by the next one where it was killed, and not before."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kvota.files.run_folder import RunFolder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVOTA_CACHE", str(tmp_path))
    return tmp_path


def test_it_is_in_the_cache_and_goes_with_all_that_is_in_it(cache: Path) -> None:
    folder = RunFolder("some-")
    (folder.path / "data").mkdir()

    assert folder.path.parent == cache / "run"
    folder.remove()

    assert not folder.path.exists()


def test_what_another_process_uses_stays() -> None:
    script = (
        "import sys\n"
        "from kvota.files.run_folder import RunFolder\n"
        "folder = RunFolder('a-')\n"
        "print(folder.path, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        path = Path(other.stdout.readline().strip())
        RunFolder("b-").remove()
        assert path.exists()
        other.kill()

    RunFolder("c-").remove()

    assert not path.exists()


def test_kept_logs_outlive_the_next_run_and_not_a_week() -> None:
    folder = RunFolder("logs-")
    folder.keep()
    RunFolder("next-").remove()
    assert folder.path.exists()

    os.utime(folder.path / "kept", (0, 0))
    RunFolder("later-").remove()

    assert not folder.path.exists()


def test_what_is_not_ours_is_let_alone(cache: Path) -> None:
    (cache / "run" / "somebodys").mkdir(parents=True)

    RunFolder("next-").remove()

    assert (cache / "run" / "somebodys").exists()


def test_in_a_with_block_it_goes_at_the_end_wherever_it_is(tmp_path: Path) -> None:
    with RunFolder("own-", inside=tmp_path / "elsewhere") as folder:
        (folder.path / "data").mkdir()
        assert folder.path.parent == tmp_path / "elsewhere"

    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_many_that_begin_at_once_leave_each_other_alone(cache: Path) -> None:
    lost: list[Path] = []

    def make_many() -> None:
        for _ in range(100):
            with RunFolder("some-") as folder:
                if not folder.path.exists():
                    lost.append(folder.path)

    threads = [threading.Thread(target=make_many, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert lost == []
    assert list((cache / "run").iterdir()) == []
