"""``./run kvota`` from a folder that is not the clone."""

import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parents[3] / "run"


@pytest.mark.skipif(
    not (RUN.parent / ".venv" / "ready").exists(),
    reason="the tests do not run in ./run's own .venv",
)
def test_files_are_found_where_the_user_stands_and_hints_can_be_typed_there(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text('[upstream]\nbootstrap_servers = ["127.0.0.1:9"]\n')
    (tmp_path / "quotas.toml").touch()

    done = subprocess.run(
        [RUN, "kvota", "gateway", "reload", "-c", "my.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
    )

    assert (done.returncode, done.stdout) == (3, "")
    assert f"To start one: {RUN} kvota gateway -c my.toml" in done.stderr
