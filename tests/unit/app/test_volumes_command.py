"""``kvota volumes``: what it shows of the disks of this machine, of a source of one's own, and while looks fail."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvota.app.cli.main import main
from kvota.volumes.settings import (
    CHECK_INTERVAL,
    FACTOR_SOURCE,
    FALLBACK,
    HARD_BYTES,
    HARD_USED,
    LOG_DIRS,
    SOFT_BYTES,
    SOURCE,
)

MODULE = """
from pathlib import Path
from kvota.volumes import Volume

class Factor:
    def configure(self, properties):
        self._file = Path(properties["file"])
    def factor(self):
        return float(self._file.read_text())

class Filling(Factor):
    free = 1_000_000_000
    def volumes(self):
        self._file.read_text()
        Filling.free -= 50_000_000
        return [Volume(broker_id=3, log_dir="/data", total_bytes=2_000_000_000, available_bytes=self.free)]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shown_sources.py").write_text(MODULE)
    (tmp_path / "told").write_text("0.5")
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("shown_sources", None)
    return tmp_path


def config(folder: Path, **properties: int | str) -> str:
    lines = [
        "[upstream]",
        'bootstrap_servers = ["127.0.0.1:1"]',
        "[kafka]",
        f'"{CHECK_INTERVAL}" = 1',
    ]
    lines += [f'"{key}" = {json.dumps(value)}' for key, value in properties.items()]
    (folder / "quotas.toml").write_text("")
    (folder / "gateway.toml").write_text("\n".join(lines))
    return str(folder / "gateway.toml")


def filling(folder: Path, **limits: int) -> str:
    own = {SOURCE: "shown_sources.Filling", f"{SOURCE}.file": str(folder / "told")}
    return config(folder, **own, **limits)


def test_when_each_limit_would_be_breached(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = filling(folder, **{SOFT_BYTES[0]: 800_000_000, HARD_BYTES[0]: 100_000_000})

    assert main(["volumes", "-c", path, "--over", "500ms", "--output", "json"]) == 0

    told = json.loads(capsys.readouterr().out)
    (row,) = told.pop("volumes")
    assert told == {
        "status": "SUCCESS",
        "reason": None,
        "factor": 1.0,
        "is_fallback": False,
        "without_size": 0,
    }
    assert (row["broker_id"], row["log_dir"], row["factor"]) == (3, "/data", 1.0)
    growth = row["growth_bytes_per_s"]
    assert 0 < growth <= 100_000_000  # 50 MB in half a second, or somewhat more
    assert row["soft_in_s"] == pytest.approx(100_000_000 / growth)
    assert row["hard_in_s"] == pytest.approx(800_000_000 / growth)


def test_a_breached_limit_ends_with_1(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = filling(folder, **{SOFT_BYTES[0]: 2_000_000_000, HARD_BYTES[0]: 1})

    assert main(["volumes", "-c", path, "--over", "100ms"]) == 1

    assert "of their quota: broker 3 /data decides" in capsys.readouterr().out


@pytest.mark.parametrize(("factor", "code"), [("0.5", 1), ("1", 0)])
def test_a_factor_that_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str], factor: str, code: int
) -> None:
    (folder / "told").write_text(factor)
    path = config(
        folder,
        **{FACTOR_SOURCE: "shown_sources.Factor", f"{FACTOR_SOURCE}.file": str(folder / "told")},
    )

    assert main(["volumes", "-c", path]) == code

    said = capsys.readouterr().out
    assert (
        said == f"producers get {float(factor):.0%} of their quota: shown_sources.Factor says so\n"
    )


def test_the_disks_of_this_machine(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = config(folder, **{LOG_DIRS: str(folder), HARD_USED: 2**62})

    assert main(["volumes", "-c", path, "--over", "100ms"]) == 0
    assert str(folder) in capsys.readouterr().out


def test_a_look_that_fails_ends_it_with_3(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "told").unlink()
    path = filling(folder, **{HARD_BYTES[0]: 1})

    assert main(["volumes", "-c", path]) == 3
    assert "EXCEPTION: shown_sources.Filling raises FileNotFoundError" in capsys.readouterr().err


def test_watching_goes_on_while_looks_fail(folder: Path) -> None:
    path = filling(folder, **{HARD_BYTES[0]: 1, FALLBACK[0]: 0})
    command = [sys.executable, "-m", "kvota.app.cli.main", "volumes", "-c", path]
    command += ["--watch", "--over", "100ms", "--output", "json"]
    source = {"PYTHONPATH": f"{folder}:{':'.join(sys.path)}"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=source, text=True) as watch:
        assert watch.stdout is not None
        try:
            looks = (json.loads(line) for line in watch.stdout)
            assert next(looks)["status"] == "SUCCESS"
            (folder / "told").rename(folder / "away")
            failed = next(look for look in looks if look["status"] == "EXCEPTION")
            assert "FileNotFoundError" in failed["reason"]
            assert (failed["factor"], failed["is_fallback"]) == (1.0, False)
            (folder / "away").rename(folder / "told")
            assert any(look["status"] == "SUCCESS" for look in looks)
        finally:
            watch.kill()
