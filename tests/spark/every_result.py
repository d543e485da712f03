"""All that the pipeline makes of a record, as text; run as a program, in a Spark session of its own.

usage: every_result.py FOLDER MASTER KILL [NAME=VALUE ...]

``KILL`` is 1 where a worker of a local-cluster is to die in the midst; on stdout is one JSON object.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from hashlib import blake2b
from pathlib import Path

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
    replay,
    replay_rows,
    session,
    usage,
    usage_total,
)
from kvota.planning.guardrails import Guardrails

# What Spark calls the process of a worker.
_WORKER = "CoarseGrainedExecutorBackend"
_CAPACITIES = {QuotaType.PRODUCE: 100_000.0, QuotaType.CONTROLLER_MUTATION: 50.0}


def every_result(spark: SparkSession, folder: Path) -> dict[str, str]:
    """What each command's tables hold, to the last bit."""
    found = find_events([folder])
    by_counter = chunks_of_files(spark, found, further=LAW_COLUMNS)
    by_user = chunks_of_files(spark, found, "user", further=USAGE_COLUMNS, modes_apart=True)
    result = law(by_counter)
    plan = recommend(
        chunks_of_files(spark, found, "client", further=USAGE_COLUMNS),
        read_events(spark, folder),
        ConfiguredQuotas(),
        _CAPACITIES,
        Wishes(
            level="client",
            guardrails=Guardrails(hours_min=0, events_min=1, keeps_median=False),
            counters_max=12,
        ),
    )
    return {
        "law": repr((result, result.of_types)),
        "rows": _text(replay_rows(by_counter)),
        "replay": _text(replay(by_counter, [2e4, 1e6], mode="backlog")),
        "replay by user": _text(replay(by_user, [2e4, 1e6], mode="think")),
        "usage": _text(usage(by_user)),
        "usage in all": _text(usage_total(by_user)),
        "plan": repr((plan.rows(), plan.notes, plan.effects)),
    }


def _text(table: DataFrame) -> str:
    """The rows in an order of their own; a long text is as good as its hash."""
    if "window_start" in table.columns:  # on its way to Python a time becomes a local one
        table = table.withColumn("window_start", F.unix_micros("window_start"))
    lines = sorted(repr(tuple(row)) for row in table.collect())
    return f"{len(lines)} rows {blake2b(chr(10).join(lines).encode()).hexdigest()}"


def kill_a_worker() -> None:
    """Wait for Python workers, so that a task runs, and kill the JVM above them."""
    for _ in range(3_000):
        listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True)
        rows = [line.split(None, 2) for line in listed.stdout.splitlines()[1:]]
        parents = {int(pid): int(parent) for pid, parent, _ in rows}
        for pid, parent, args in rows:
            if "pyspark.daemon" in args and _is_below(int(parent), parents):
                (jvm,) = [line for number, _, line in rows if number == parent]
                assert _WORKER in jvm
                os.kill(int(parent), signal.SIGKILL)
                print("killed", pid, file=sys.stderr)
                return
        time.sleep(0.02)


def _is_below(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        if pid == os.getpid():
            return True
        pid = parents[pid]
    return False


if __name__ == "__main__":
    place, master, kill, *settings = sys.argv[1:]
    running = session(master, short=True, settings=dict(text.split("=") for text in settings))
    try:
        if kill == "1":
            threading.Thread(target=kill_a_worker, daemon=True).start()
        print(json.dumps(every_result(running, Path(place))))
    finally:
        end_session(running)
