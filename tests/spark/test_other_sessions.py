"""Bit for bit the same comes out of any session: a cluster whose workers have no kvota, Spark Connect, a session of the
user's own, one core, other settings, a worker that dies.

``KVOTA_SESSIONS=every`` has one core plan, too, and a session of the user's own, and plans over Spark Connect: two
minutes more.
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
from tests.spark.standalone_cluster import JVM, connect_server, standalone_cluster

from kvota.pipeline.any_session import chunk_rows_max
from kvota.record.compact import compact
from kvota.testing.recorded_traffic import RecordedTraffic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

WriteEvents = Callable[..., Path]
Expected = tuple[Path, dict[str, str]]
PROCESS = Path(results_process.__file__)

# What a session cannot change any more.
STATIC = "spark.executor.memory=1g"

LOOPBACK = ["spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1"]
OTHER_SETTINGS = [
    "spark.sql.session.timeZone=Asia/Kolkata",
    "spark.sql.adaptive.enabled=true",
    "spark.sql.shuffle.partitions=3",
    "spark.sql.execution.arrow.maxRecordsPerBatch=20",
]
# As before Spark 4.1, which bounds the bytes of an Arrow batch.
NO_BOUNDS = [
    "spark.sql.execution.arrow.maxBytesPerBatch=2147483646b",
    "spark.sql.execution.arrow.maxRecordsPerBatch=10000",
    "spark.sql.ansi.enabled=false",
]
IS_EVERY = os.environ.get("KVOTA_SESSIONS") == "every"
OTHER_WAYS = {
    "local[1]": ["law,usage,plan" if IS_EVERY else "law,usage", "spark.sql.shuffle.partitions=7"]
}
if IS_EVERY:
    OTHER_WAYS["local[2]"] = [
        "own,rows,usage,plan",
        *OTHER_SETTINGS,
        "spark.sql.ansi.enabled=false",
    ]
ALWAYS = ("rows", "replay", "law", "usage", "table", "saved", "commands", "report")
PARTS = (*ALWAYS, "plan") if IS_EVERY else ALWAYS


@pytest.fixture(scope="module")
def expected(
    spark: SparkSession, write_for_all: WriteEvents, tmp_path_factory: pytest.TempPathFactory
) -> Expected:
    """A record, more than half of it merged, and what comes out of two cores of this machine."""
    folder = tmp_path_factory.mktemp("sessions") / "record"
    merged = [*RecordedTraffic(3, run_id="run-1").rows(2_500)]
    assert compact(write_for_all(folder / "a", merged, files=3), now_us=0, every_hour=True).steps
    write_for_all(
        folder / "b", [*RecordedTraffic(4, run_id="run-2", enforced=True).rows(1_500)], files=2
    )
    return folder, results_process.results(spark, folder, PARTS)


@pytest.fixture(scope="module")
def folder_of_workers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all that have no kvota, so that kernels are compiled once."""
    return tmp_path_factory.mktemp("workers")


def made(folder: Path, master: str, settings: list[str]) -> dict[str, str]:
    """What comes out of a process of its own; with whether it killed a worker."""
    done = subprocess.run(
        [sys.executable, str(PROCESS), str(folder), master, *settings],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    found: dict[str, str] = json.loads(done.stdout)
    return found | ({"killed": "yes"} if "killed a worker" in done.stderr else {})


def kvota(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    code = "import sys; from kvota.app.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def test_a_cluster_whose_workers_have_no_kvota_and_of_which_one_dies(
    expected: Expected, folder_of_workers: Path
) -> None:
    folder, wanted = expected
    with standalone_cluster(folder_of_workers) as cluster:
        environment = [
            f"spark.archives={cluster.environment}#environment",
            "spark.pyspark.python=./environment/bin/python",
        ]
        settings = ["rows,replay,law,usage,kill", *environment, *LOOPBACK, *OTHER_SETTINGS]
        settings += ["spark.executor.memory=512m", f"spark.executor.extraJavaOptions={JVM}"]

        found = made(folder, cluster.master, settings)

    assert found.pop("killed") == "yes"
    assert found == {part: wanted[part] for part in ("rows", "replay", "law", "usage")}


def test_spark_connect(expected: Expected, folder_of_workers: Path) -> None:
    folder, wanted = expected
    with connect_server(folder_of_workers) as url:
        found = made(folder, url, [",".join(PARTS)])
        refused = kvota("usage", "--events", folder, "--master", url, "--conf", STATIC)

    assert found == wanted
    assert found["saved"] == found["usage"]
    assert refused.returncode == 2
    assert f"kvota: {STATIC}: the server at {url} does not take this" in refused.stderr
    away = kvota("usage", "--events", folder, "--master", url)
    assert away.returncode == 3
    assert f"kvota: no Spark Connect server answers at {url}: Connection refused\n" in away.stderr


def test_a_session_with_other_settings_which_keeps_them(
    spark: SparkSession, expected: Expected
) -> None:
    folder, wanted = expected
    other = spark.newSession()
    settings = dict(text.split("=", 1) for text in [*OTHER_SETTINGS, *NO_BOUNDS])
    for name, value in settings.items():
        other.conf.set(name, value)
    before = other.conf.getAll

    assert results_process.results(other, folder, ["rows", "replay"]) == {
        "rows": wanted["rows"],
        "replay": wanted["replay"],
    }
    assert other.conf.getAll == before
    assert chunk_rows_max(other) < chunk_rows_max(spark)


@pytest.mark.parametrize("master", OTHER_WAYS)
def test_other_sessions_of_this_machine(expected: Expected, master: str) -> None:
    folder, wanted = expected

    found = made(folder, master, OTHER_WAYS[master])

    assert found == {part: wanted[part] for part in found}
