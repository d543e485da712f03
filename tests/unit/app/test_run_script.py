"""``./run kvota`` from a folder that is not the clone, and what a gateway says to people in other folders."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[3] / "run"


def run_script(*words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.skipif(
    not (RUN.parent / ".venv" / "ready").exists(),
    reason="the tests do not run in ./run's own .venv",
)
def test_files_are_found_where_the_user_stands_and_hints_can_be_typed_there(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text('[upstream]\nbootstrap_servers = ["127.0.0.1:9"]\n')
    (tmp_path / "quotas.toml").touch()

    done = run_script(RUN, "kvota", "gateway", "reload", "-c", "my.toml", folder=tmp_path)

    assert (done.returncode, done.stdout) == (3, "")
    assert f"To start one: {RUN} kvota gateway -c my.toml" in done.stderr


@pytest.mark.parametrize("name", ["clone", "it's a clone"])
@pytest.mark.parametrize("words", [("./run",), ("../{}/run",), ("sh", "run")])
def test_hints_can_be_typed_as_they_are_and_a_gateways_in_any_other_folder(
    tmp_path: Path, name: str, words: tuple[str, ...]
) -> None:
    clone = clone_that_tells(tmp_path / name)

    told = run_script(*(word.format(name) for word in words), "kvota", folder=clone)

    assert told.returncode == 0, told.stderr
    here, anywhere = told.stdout.splitlines()
    assert shlex.split(anywhere) == [str(clone / "run"), "kvota"]
    for hint, folder in ((here, clone), (anywhere, tmp_path)):
        again = run_script("sh", "-c", hint, folder=folder)
        assert again.stdout.splitlines()[1:] == [anywhere], again.stderr


def clone_that_tells(clone: Path) -> Path:
    """A clone with nothing but the script; its ``kvota`` tells what hints call it."""
    for name in ("pyproject.toml", "requirements/all.txt", "requirements/java.txt"):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).touch()
    script = RUN.read_text()
    python = f"#!/bin/sh\nexec {shlex.quote(sys.executable)}"
    telling = "from kvota.files.command_name import *; print(called()); print(called_anywhere())"
    for name, text in (
        ("run", script),
        (".venv/bin/python", f'{python} "$@"\n'),
        (".venv/bin/kvota", f"{python} -c {shlex.quote(telling)}\n"),
    ):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_text(text)
        (clone / name).chmod(0o755)
    (clone / ".venv" / "with-java").touch()
    summed = run_script("cksum", "/dev/null", folder=clone).stdout.removesuffix(" /dev/null\n")
    (clone / ".venv" / "ready").write_text(f"{clone} {summed}")  # nothing is installed
    return clone
