"""The session is quiet, local, bounded and leaves nothing behind."""

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kvota.pipeline import session
from kvota.pipeline.class_archive import class_archive

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

SCRIPT = """
from kvota.pipeline import end_session, session
spark = session("local[1]", memory="800m", settings={"spark.sql.shuffle.partitions": "7"})
print(spark.range(3).count(), spark.conf.get("spark.driver.host"))
print(*(spark.conf.get(name) for name in (
    "spark.driver.memory",
    "spark.sql.shuffle.partitions",
    "spark.sql.session.timeZone",
    "spark.sql.autoBroadcastJoinThreshold",
)))
end_session(spark)
"""


# What a user keeps beside Spark: it gives way to what is asked for, then to kvota, and holds otherwise.
DEFAULTS = """
spark.driver.memory 700m
spark.sql.shuffle.partitions 9
spark.sql.session.timeZone Asia/Kolkata
spark.sql.autoBroadcastJoinThreshold 12345
"""


def test_a_session_prints_nothing_and_leaves_nothing_and_heeds_the_users_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, temporary = tmp_path / "here", tmp_path / "temporary"
    here.mkdir()
    temporary.mkdir()
    cache, conf = tmp_path / "cache", tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(DEFAULTS)
    monkeypatch.setenv("KVOTA_CACHE", str(cache))
    archive = class_archive(tmp_path)
    if archive is not None:
        archive.path.write_bytes(b"of another Java, or damaged")

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=here,
        env=os.environ
        | {
            "TMPDIR": str(temporary),
            "KVOTA_CACHE": str(cache),
            "SPARK_CONF_DIR": str(conf),
        },
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("3 127.0.0.1\n800m 7 UTC 12345\n", "")
    assert list(here.iterdir()) == []
    assert [path.name for path in temporary.iterdir() if path.name.startswith("kvota-")] == []


def test_the_running_session_is_used_again(spark: SparkSession) -> None:
    assert session() is spark


def test_the_session_counts_in_utc_and_keeps_kernels_apart(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.adaptive.enabled") == "false"


def test_what_workers_have_imported_is_no_garbage_to_look_through(spark: SparkSession) -> None:
    def frozen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_arrays([pa.array([gc.get_freeze_count()])], names=["id"])

    (found,) = spark.range(0, 1, 1, numPartitions=1).mapInArrow(frozen, "id long").collect()

    assert found["id"] > 50_000  # NumPy, pyarrow, Numba, and all of kvota that workers run


INTERRUPTED = """
import sys
from kvota.pipeline import session
from kvota.pipeline.class_archive import class_archive
try:
    print("starting", flush=True)
    session("local[1]", short=True, settings={"spark.kvota.test": sys.argv[1]})
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("after_s", [0.0, 0.5, 1.2])
def test_a_session_that_is_interrupted_while_it_starts_leaves_no_jvm(
    after_s: float, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "starting\n"
    time.sleep(after_s)

    process.send_signal(signal.SIGINT)

    assert process.communicate(timeout=120) == ("interrupted\n", "")
    commands = subprocess.run(
        ["ps", "-eo", "args"], capture_output=True, text=True, check=True
    ).stdout
    assert str(tmp_path) not in commands


# In place of a JVM: it answers nothing, and what it was sent is unread when it ends, so the connection is reset.
MUTE_JVM = """
import socket, time
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    connection, _ = server.accept()
    time.sleep(60)
"""

ASKING = """
import os, signal, subprocess, sys, threading
from py4j.clientserver import ClientServer, JavaParameters
from kvota.pipeline.interrupts import interruptible
jvm = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
client = ClientServer(JavaParameters(port=int(jvm.stdout.readline()), auto_convert=True))
main = threading.main_thread().ident
threading.Timer(0.5, signal.pthread_kill, [main, signal.SIGINT]).start()
try:
    with interruptible(jvm):
        client.jvm.java.lang.System.nanoTime()
except KeyboardInterrupt:
    print("interrupted", flush=True)
os._exit(0)  # py4j has a thread that awaits calls of the JVM
"""


def test_a_call_that_is_under_way_when_ctrl_c_ends_the_jvm_says_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASKING, MUTE_JVM],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("interrupted\n", "")
