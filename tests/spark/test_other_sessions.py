"""Bit for bit the same comes out of any session: one core or two, workers of their own, other settings, a worker that dies."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark import every_result

from kvota.testing.recorded_traffic import RecordedTraffic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

WriteEvents = Callable[..., Path]
PROCESS = Path(every_result.__file__)

SESSIONS = {
    "local[1]": [
        "0",
        "spark.sql.session.timeZone=Asia/Kolkata",
        "spark.sql.adaptive.enabled=true",
        "spark.sql.shuffle.partitions=7",
        "spark.sql.execution.arrow.maxRecordsPerBatch=3",
    ],
    "local-cluster[2,1,1024]": ["1", "spark.sql.shuffle.partitions=3"],
}


def start(folder: Path, master: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(PROCESS), str(folder), master, *SESSIONS[master]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_no_bit_depends_on_the_session_or_on_a_worker_that_dies(
    spark: SparkSession, write_events: WriteEvents
) -> None:
    rows = [
        *RecordedTraffic(3, run_id="run-1").rows(2_500),
        *RecordedTraffic(4, run_id="run-2", enforced=True).rows(1_500),
    ]
    folder = write_events(rows, files=5)
    others = {master: start(folder, master) for master in SESSIONS}

    expected = every_result.every_result(spark, folder)

    said = {master: process.communicate(timeout=200) for master, process in others.items()}
    for master, (out, err) in said.items():
        assert others[master].returncode == 0, err[-2_000:]
        assert json.loads(out.splitlines()[-1]) == expected, master
    assert "killed" in said["local-cluster[2,1,1024]"][1]
    assert "all equal" in expected["law"] or "differing=0" in expected["law"]
