"""The session is quiet, local, bounded and leaves nothing behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kvota.pipeline import session

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

SCRIPT = """
from kvota.pipeline import end_session, session
spark = session("local[1]")
print(spark.range(3).count(), spark.conf.get("spark.driver.host"))
end_session(spark)
"""


def test_a_session_prints_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    here, temporary = tmp_path / "here", tmp_path / "temporary"
    here.mkdir()
    temporary.mkdir()

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=here,
        env=os.environ | {"TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("3 127.0.0.1\n", "")
    assert list(here.iterdir()) == []
    assert [path.name for path in temporary.iterdir() if path.name.startswith("kvota-")] == []


def test_the_running_session_is_used_again(spark: SparkSession) -> None:
    assert session() is spark


def test_the_session_counts_in_utc_and_keeps_kernels_apart(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.adaptive.enabled") == "false"
