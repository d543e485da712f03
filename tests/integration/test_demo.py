"""The demo, as a newcomer runs it, only shorter."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kvota.app.cli.main import main
from kvota.app.demo import circle, ending
from kvota.app.demo.screen import WIDTH
from kvota.model.quota_type import QuotaType
from kvota.planning.plan_line import format_quota


@pytest.mark.timeout(600)
def test_the_demo_ends_with_its_table_and_leaves_nothing_running(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark is not None
    folder = tmp_path / "demo"

    done = subprocess.run(
        [sys.executable, "-m", "kvota.app.cli.main", "demo", "--seconds", "8", "--folder", folder],
        capture_output=True,
        text=True,
        timeout=560,
        check=False,
    )

    table = done.stdout[done.stdout.find("Before and after") :]
    for tenant in ("orders", "analytics", "crashloop", "ci-bot"):
        assert f"\n{tenant} " in table, done.stdout + done.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    assert table.count(ending.HELD) == 8, table  # seven limits, and the legend
    held = re.findall(r"the broker held ([0-9]+), then ([0-9]+)", table)
    (before, after), (then, at_the_end) = ((int(a), int(b)) for a, b in held)
    # Without its quota the crash loop brings more ids than are allowed then: else nothing was shown.
    assert after - before > circle.NEW_IDS, table
    # One of 10,000 looks like a known one, and passes uncounted.
    assert 0 < at_the_end - then <= circle.NEW_IDS + 1, table
    assert ", all equal: replayed on Spark" in table
    assert " 0 of them missing" in table
    assert "nothing is left running" in table
    said = f"{done.stderr}\n{done.stdout}".splitlines()
    assert not [line for line in said if len(line) > WIDTH and str(folder) not in line]
    assert "\033" not in done.stdout
    left = [
        path
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if str(folder).encode() in _read(path) and path.parent.name != "self"
    ]
    assert not left
    _same_plan_as_typed(done.stdout, folder, capsys)


def _same_plan_as_typed(shown: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command that stands on the screen gives the limits that stand below it."""
    (typed,) = re.findall(r"^kvota recommend (?:.*\\\n)*.*$", shown, re.MULTILINE)
    words = shlex.split(typed.replace("\\\n", " "))

    code = main([*words[1:], "--output", "json"])

    said = json.loads(capsys.readouterr().out)
    assert words[0] == "kvota"
    assert str(folder) in typed
    assert code == (0 if said["confirmed"] else 1)
    table = shown[shown.index("You say how much") : shown.index("used: its mean rate")]
    limits = re.findall(r"^([\w-]+) +([A-Z_]+) .*?(\S+ \S+|unlimited)  [a-z]", table, re.MULTILINE)
    planned = [
        (
            line["user"],
            line["quota_type"],
            "unlimited"
            if line["proposed_per_s"] is None
            else format_quota(QuotaType(line["quota_type"]), line["proposed_per_s"]),
        )
        for line in said["lines"]
    ]
    assert sorted(limits) == sorted(planned), shown


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended meanwhile
        return b""
