"""Code that is sent to workers unpacks itself, once, wherever it can."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from kvota.pipeline.sent_code import code_archive

PROGRAM = """
import kvota, kvota.engine.arithmetic
from pathlib import Path
print(kvota.__path__[0], Path(kvota.engine.arithmetic.__file__).exists())
"""


def run_with(archive: Path, folder: Path, **environment: str) -> str:
    """What a Python without kvota says that has the archive."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", PROGRAM],
        cwd=folder,
        env={"PYTHONPATH": f"{archive}:{sysconfig.get_path('purelib')}", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVOTA_CACHE", str(tmp_path / "driver"))
    found = code_archive()
    assert code_archive() == found
    assert list(found.parent.iterdir()) == [found]
    return found


def test_it_is_unpacked_once_for_all_workers_of_a_user(archive: Path, tmp_path: Path) -> None:
    cache = tmp_path / "worker"
    first = run_with(archive, tmp_path, KVOTA_CACHE=str(cache))
    (package,) = cache.glob("code/*/kvota")
    unpacked = package.stat().st_mtime_ns

    assert first == f"{package} True\n"
    assert run_with(archive, tmp_path, KVOTA_CACHE=str(cache)) == first
    assert package.stat().st_mtime_ns == unpacked
    assert not (package / "app").exists()
    assert [path.name for path in (cache / "code").iterdir()] == [package.parent.name]


def test_where_the_cache_cannot_be_written_it_is_unpacked_where_the_worker_runs(
    archive: Path, tmp_path: Path
) -> None:
    no_folder = tmp_path / "file"
    no_folder.write_text("")

    said = run_with(archive, tmp_path, KVOTA_CACHE=str(no_folder))

    assert said.startswith(f"{tmp_path / 'kvota-code'}{os.sep}")
