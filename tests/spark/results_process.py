"""What the pipeline makes of a record, as text; run as a program, in a Spark session of its own.

usage: results_process.py FOLDER MASTER PARTS [NAME=VALUE ...]

``PARTS`` are of ``results``, with commas between; with ``kill`` among them a worker dies when its first task runs.
On stdout is one JSON object.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from hashlib import blake2b
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_type import QuotaType
from kvota.pipeline import (
    LAW_COLUMNS,
    USAGE_COLUMNS,
    Wishes,
    chunks_of_files,
    end_session,
    find_events,
    law,
    read_events,
    recommend,
    replay_rows,
    session,
    usage,
)
from kvota.planning.guardrails import Guardrails
from kvota.record.found_events import FoundEvents

# What Spark calls the process of a worker.
_WORKER = "CoarseGrainedExecutorBackend"


def results(spark: SparkSession, folder: Path, parts: Iterable[str]) -> dict[str, str]:
    """What these commands' tables hold, to the last bit."""
    found = find_events([folder])
    by_counter = chunks_of_files(spark, found, further=LAW_COLUMNS)
    by_user = chunks_of_files(spark, found, "user", further=USAGE_COLUMNS, modes_apart=True)
    made: dict[str, Callable[[], str]] = {
        "rows": lambda: _text(replay_rows(by_counter)),
        "law": lambda: str(law(by_counter)),
        "usage": lambda: _text(usage(by_user)),
        "plan": lambda: _plan(spark, found, folder),
    }
    return {part: made[part]() for part in parts}


def _plan(spark: SparkSession, found: FoundEvents, folder: Path) -> str:
    plan = recommend(
        chunks_of_files(spark, found, "client", further=USAGE_COLUMNS),
        read_events(spark, folder),
        ConfiguredQuotas(),
        {QuotaType.CONTROLLER_MUTATION: 50.0},
        Wishes(
            level="client",
            guardrails=Guardrails(hours_min=0, events_min=1, keeps_median=False),
            counters_max=2,
        ),
    )
    return repr((plan.rows(), plan.notes, plan.effects))


def _text(table: DataFrame) -> str:
    """The rows in an order of their own; a long text is as good as its hash."""
    if "window_start" in table.columns:  # on its way to Python a time becomes a local one
        table = table.withColumn("window_start", F.unix_micros("window_start"))
    lines = sorted(repr(tuple(row)) for row in table.collect())
    return f"{len(lines)} rows {blake2b(chr(10).join(lines).encode()).hexdigest()}"


def kill_a_worker() -> None:
    """Wait for Python workers, so that a task runs, and kill the JVM above them."""
    while True:
        command = ["ps", "-ww", "-eo", "pid,ppid,args"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rows = [line.split(None, 2) for line in listed.splitlines()[1:]]
        parents = {pid: parent for pid, parent, _ in rows}
        args_of = {pid: args for pid, _, args in rows}
        for pid, parent, args in rows:
            is_worker = "pyspark.worker" in args and _WORKER in args_of.get(parent, "")
            if is_worker and _is_below(pid, parents):
                os.kill(int(parent), signal.SIGKILL)
                sys.stderr.write("killed a worker\n")
                return
        time.sleep(0.02)


def _is_below(pid: str, parents: dict[str, str]) -> bool:
    while pid in parents:
        if pid == str(os.getpid()):
            return True
        pid = parents[pid]
    return False


if __name__ == "__main__":
    place, master, parts, *settings = sys.argv[1:]
    running = session(master, short=True, settings=dict(text.split("=") for text in settings))
    try:
        if "kill" in parts:
            threading.Thread(target=kill_a_worker, daemon=True).start()
        wanted = [part for part in parts.split(",") if part != "kill"]
        sys.stdout.write(json.dumps(results(running, Path(place), wanted)))
    finally:
        left = Path(pyspark.__file__).parent / "work" / running.sparkContext.applicationId
        end_session(running)
        shutil.rmtree(left, ignore_errors=True)  # of a local-cluster, which knows no other place
