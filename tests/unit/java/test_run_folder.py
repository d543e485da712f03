"""Folders of a run: removed with it, by the next one where it was killed, and not before."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvota.java.run_folder import RunFolder


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
        "from kvota.java.run_folder import RunFolder\n"
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
