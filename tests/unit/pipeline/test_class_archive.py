"""What a JVM has loaded is kept for the next one, if it was written to its end."""

import subprocess
from pathlib import Path

import pytest

from kvota.pipeline import class_archive as module
from kvota.pipeline.class_archive import ClassArchive, class_archive


def jvm(archive: ClassArchive, code: int) -> "subprocess.Popen[bytes]":
    """A process that writes the archive and ends so."""
    script = f'echo classes > "$1"; exit {code}'
    return subprocess.Popen(["sh", "-c", script, "jvm", str(archive.unfinished)])


@pytest.mark.parametrize(("code", "is_kept"), [(0, True), (1, False)])
def test_it_is_kept_when_the_jvm_ended_well(tmp_path: Path, code: int, is_kept: bool) -> None:
    archive = ClassArchive(tmp_path / "kept.jsa", tmp_path / "unfinished.jsa")

    archive.wait_for(jvm(archive, code))

    assert archive.path.exists() is is_kept
    assert not archive.unfinished.exists()


def test_a_jvm_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WRITING_S_MAX", 0.1)
    archive = ClassArchive(tmp_path / "kept.jsa", tmp_path / "unfinished.jsa")
    process = subprocess.Popen(["sleep", "60"])

    archive.wait_for(process)

    assert process.returncode == -9
    assert not archive.path.exists()


def test_the_first_session_writes_it_and_others_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVOTA_CACHE", str(tmp_path / "my cache"))
    first = class_archive(tmp_path)
    if first is None:
        pytest.skip("this Java has no archive of its own classes")
    assert first.option() == f'"-XX:ArchiveClassesAtExit={first.unfinished}"'

    first.path.write_bytes(b"classes")

    assert class_archive(tmp_path) == ClassArchive(first.path, None)
    assert class_archive(tmp_path).option() == f'"-XX:SharedArchiveFile={first.path}"'
