"""What ``kvota ingest`` refuses before it makes a folder or starts Spark."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvota.app.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--topic", "t"), "--topic needs --bootstrap-server"),
        (("--events", "{}", "--every", "1s"), "--every means nothing without --follow"),
        (("--events", "{}/none"), "is no folder"),
        (("--events", "{}"), "lie in each other"),
        (("--events", "{}", "--bootstrap-server", "a:1"), "means nothing without --topic"),
        (("--events", "{}", "--master", "sc://a:1"), "--master sc://a:1: ingest cannot be done over Spark Connect"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(
    arguments: tuple[str, ...], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [argument.format(tmp_path) for argument in arguments]

    assert main(["ingest", *given, "--into", str(tmp_path / "into")]) == 2

    assert words in capsys.readouterr().err
    assert not (tmp_path / "into").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--bytes-max", "0"), '"0" is not above 0'),
        (("--bytes-max", "1Mb"), '"1Mb" is not a size'),
        (("--age-max", "30"), '"30" is not a time'),
    ],
)
def test_limits_of_the_record_have_to_be_some(
    arguments: tuple[str, ...], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--events", str(tmp_path), "--into", str(tmp_path / "into"), *arguments]

    with pytest.raises(SystemExit) as ended:
        main(["ingest", *given])

    assert ended.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(("version", "is_refused"), [("3.5.0", True), ("4.1.4", True), ("4.2.0", False), ("5.0.0.dev1", False)])  # fmt: skip
def test_a_spark_that_is_too_old_is_refused(version: str, is_refused: bool, tmp_path: Path) -> None:
    # No more of another Spark than what says its version: whatever is imported of it beyond that fails.
    package = tmp_path / "other" / "pyspark"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f'__version__ = "{version}"\n')
    into = tmp_path / "into"

    done = subprocess.run(
        [sys.executable, "-m", "kvota.app.cli.main", "ingest", "--events", str(tmp_path), "--into", str(into)],
        env=os.environ | {"PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip

    words = f"ingest needs Spark 4.2 or newer, and this is {version}"
    assert (words in done.stderr, done.returncode) == (is_refused, 2)
    assert not into.exists()
