"""What the pipeline makes of a record, as text; run as a program, in a Spark session of its own.

usage: results_process.py FOLDER MASTER PARTS [NAME=VALUE ...]

``PARTS`` are of ``results``, with commas between; with ``kill`` among them a worker of this test's cluster dies when its
first task runs, with ``own`` the session is one that a user makes, with none of kvota's settings. On stdout is one JSON object.
"""

import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from hashlib import blake2b
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kvota.app.cli.exit_codes import DONE
from kvota.app.cli.main import main
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_type import QuotaType
from kvota.pipeline import (
    LAW_COLUMNS,
    USAGE_COLUMNS,
    Factors,
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
        "replay": lambda: _text(replay(by_counter, Factors([0.5, 2.0]))),
        "plan": lambda: _plan(spark, found, folder),
        "commands": lambda: _said_by_commands(folder),
        "report": lambda: _reported(folder),
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


def _said_by_commands(folder: Path) -> str:
    """In the session that runs."""
    said = io.StringIO()
    with redirect_stdout(said):
        assert main(["usage", "--events", str(folder), "--output", "json"]) == DONE
        assert main(["replay", "--events", str(folder), "--rows", "--output", "json"]) == DONE
    return said.getvalue()


def _reported(folder: Path) -> str:
    """What ``forecast --tenants`` says, and the numbers of a report."""
    said = io.StringIO()
    with tempfile.TemporaryDirectory() as own, redirect_stdout(said):
        assert main(["forecast", "--tenants", "--events", str(folder), "--output", "json"]) < 2
        forecast = said.getvalue()
        page = Path(own, "report.html")
        assert main(["report", "--events", str(folder), "--plots", "1", "-o", str(page)]) == DONE
        numbers = re.search(r'id="numbers">(.*?)</script>', page.read_text(), re.DOTALL)
        assert numbers is not None
        return forecast + numbers[1]


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
            if is_worker and _is_beside(pid, parents):
                os.kill(int(parent), signal.SIGKILL)
                sys.stderr.write("killed a worker\n")
                return
        time.sleep(0.02)


def _is_beside(pid: str, parents: dict[str, str]) -> bool:
    """A cluster was started by who started this process."""
    while pid in parents:
        if pid == str(os.getppid()):
            return True
        pid = parents[pid]
    return False


def own_session(master: str, settings: dict[str, str]) -> SparkSession:
    """What a notebook begins with."""
    builder = SparkSession.builder.master(master).config(map=settings)
    return builder.config("spark.ui.enabled", "false").getOrCreate()


def make(place: str, master: str, parts: str, *options: str) -> None:
    settings = dict(text.split("=", 1) for text in options)
    wanted = parts.split(",")
    if "own" in wanted:
        running = own_session(master, settings)
    else:
        running = session(master, short=True, settings=settings)
    try:
        if "kill" in wanted:
            threading.Thread(target=kill_a_worker, daemon=True).start()
        made = [part for part in wanted if part not in {"own", "kill"}]
        sys.stdout.write(json.dumps(results(running, Path(place), made)))
    finally:
        end_session(running)


if __name__ == "__main__":
    make(*sys.argv[1:])
