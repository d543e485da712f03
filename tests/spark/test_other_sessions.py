"""Bit for bit the same comes out of any session: one core or two, workers of their own, other settings, a worker that dies.

``KVOTA_SESSIONS=every`` has one core judge and plan, too: a minute more.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark import results_process

from kvota.testing.recorded_traffic import RecordedTraffic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

WriteEvents = Callable[..., Path]
PROCESS = Path(results_process.__file__)

CLUSTER = "local-cluster[2,1,1024]"

# What each session makes, and its settings.
SESSIONS = {
    CLUSTER: [
        "rows,usage,kill",
        "spark.sql.session.timeZone=Asia/Kolkata",
        "spark.sql.adaptive.enabled=true",
        "spark.sql.shuffle.partitions=3",
        "spark.sql.execution.arrow.maxRecordsPerBatch=20",
    ],
}
if os.environ.get("KVOTA_SESSIONS") == "every":
    SESSIONS["local[1]"] = ["law,usage,plan", "spark.sql.shuffle.partitions=7"]
PARTS = sorted({part for parts, *_ in SESSIONS.values() for part in parts.split(",")} - {"kill"})


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

    expected = results_process.results(spark, folder, PARTS)

    said = {master: process.communicate(timeout=360) for master, process in others.items()}
    for master, (out, err) in said.items():
        assert others[master].returncode == 0, err[-2_000:]
        found = json.loads(out)
        assert found == {part: expected[part] for part in found}, master
    assert "killed a worker" in said[CLUSTER][1]
