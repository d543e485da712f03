"""Starts one Spark session: bounded, on loopback, quiet, leaving nothing in the current folder."""

import atexit
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from kvota.files.run_folder import RunFolder
from kvota.java.find import spark_java_home
from kvota.model.errors import UnreachableError, UsageError
from kvota.pipeline import rows_done
from kvota.pipeline.class_archive import ClassArchive, class_archive
from kvota.pipeline.connect_session import CONNECT, connected
from kvota.pipeline.interrupts import interruptible, interrupts_later
from kvota.pipeline.kernel_parts import PARTS, shares
from kvota.pipeline.kernels import kept_code
from kvota.pipeline.sent_code import send_code

# Rows per Arrow batch. Larger ones gain nothing any more, smaller ones pay Python's overhead per batch.
ARROW_BATCH_ROWS = 65_536

# The JVM's own habits are for servers that run for days. Here half of a run's CPU went into the
# optimising compiler (measured: 61 against 30 s for a record of 24,000 rows, everything included). So
# it gets only code that is ten times as hot as usual (a replay of 3 million rows was no slower so),
# and for a short job nothing at all (another third less, but 1.6 times more for those 3 million).
_JVM_OPTIONS = (
    "-XX:+UseSerialGC -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
_JVM_OPTIONS_SHORT = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"

# A JVM of its own puts the other one's command together.
_LAUNCHER_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"

_LOG_OPTION = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"

# A job over at most this many rows counts as short.
SHORT_ROWS_MAX = 1_000_000

# How much of the JVM's log an error message quotes.
_LOG_LINES_QUOTED = 15


class _Started:
    """What belongs to the JVM that this process has started."""

    archive: ClassArchive | None = None


_started = _Started()


def session(
    master: str = "local[*]",
    *,
    memory: str | None = None,
    short: bool = False,
    settings: Mapping[str, str] | None = None,
    kernels: Collection[str] = tuple(PARTS),
) -> SparkSession:
    """Return the running Spark session of this process, or start one.

    Settings hold in this order: ``settings`` and ``memory``, ours, ``spark-defaults.conf``, Spark's own. Where
    workers are on other machines, kvota's code is sent to them.

    Args:
        master: where Spark runs, in Spark's own words: ``local[2]``, ``spark://host:7077``, …, or a server of Spark
            Connect: ``sc://host:15002``.
        memory: of the driver's JVM, e.g. ``2g``; only for a new session. None: Spark's own, 1 GB.
        short: for up to ``SHORT_ROWS_MAX`` rows in all; starts faster; only for a new session.
        settings: further Spark settings; they win over ours; only for a new session.
        kernels: parts of the kernels (``kernel_parts.PARTS``) that are compiled before it returns, where this machine
            has not done so before. Others are compiled by workers that come to need them.

    Raises:
        UsageError: memory is given for a driver that runs already, behind Spark Connect.
        UnreachableError: Spark did not start; quotes the end of the JVM's log. Or it has no folder to work in.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if master.startswith(CONNECT):
        if memory is not None:
            msg = f"memory {memory}: a driver behind Spark Connect has been started with its own. Leave it out"
            raise UsageError(msg)
        return connected(master, dict(settings or {}))
    run_folder = RunFolder("spark-")
    atexit.register(run_folder.remove)
    folder = run_folder.path
    java_options = _JVM_OPTIONS_SHORT if short else _JVM_OPTIONS
    wanted = _settings(folder, master) | dict(settings or {})
    if memory is not None:
        wanted["spark.driver.memory"] = memory
    if master.startswith("local"):
        _check_local_dirs(wanted["spark.local.dir"])
        (folder / "rows-done").mkdir()
        wanted[rows_done.SETTING] = str(folder / "rows-done")
    archive = class_archive(folder)
    options = [_LOG_OPTION, java_options, *([archive.option()] if archive else [])]
    wanted["spark.driver.defaultJavaOptions"] = " ".join(options)
    conf = (
        SparkConf(loadDefaults=False)
        .setMaster(master)
        .setAppName("kvota")
        .setAll(list(wanted.items()))
    )
    log_path = folder / "spark.log"
    try:
        # While the JVM starts, the other core compiles; the workers then find the machine code.
        with _compiling(kernels), _environment(_jvm_environment(master, wanted)):
            _start_jvm(conf, log_path, kernels=bool(kernels))
            _started.archive = archive
            with while_it_works():
                spark = SparkSession.builder.config(conf=conf).getOrCreate()
                if not master.startswith("local"):
                    send_code(spark)
                return spark
    except (PySparkException, Py4JError, OSError) as error:
        # What py4j tells of the JVM's error is its whole stack trace.
        reason = next(
            (line for line in str(error).splitlines() if line.startswith(": ")), str(error)
        )
        msg = (
            f"Spark did not start on {master}: {reason.removeprefix(': ')}. Name another --master, or leave it "
            f"out{_end_of(log_path)}"
        )
        raise UnreachableError(msg) from error


def end_session(spark: SparkSession) -> None:
    """Stop Spark and its JVM, so that the memory is free again; a later ``session()`` starts anew.

    Ctrl-C is answered at the end.
    """
    gateway = cast("Any", SparkContext._gateway)  # noqa: SLF001  (PySpark has no public way to end the JVM)
    jvm = getattr(gateway, "proc", None)
    with interrupts_later():
        if jvm is None:
            spark.stop()
            return
        if jvm.poll() is None:
            spark.stop()
            gateway.shutdown()
        jvm.stdin.close()
        if _started.archive is None:
            jvm.wait(timeout=30)
        else:
            _started.archive.wait_for(jvm)
        _forget_jvm()


def while_it_works() -> contextlib.AbstractContextManager[None]:
    """Return a block in which Ctrl-C ends the JVM that ``session`` started, and the block."""
    gateway = cast("Any", SparkContext._gateway)  # noqa: SLF001
    jvm = getattr(gateway, "proc", None)
    return contextlib.nullcontext() if jvm is None else interruptible(jvm)


def _forget_jvm() -> None:
    """Have PySpark start a new one the next time, also where the last one died."""
    SparkContext._gateway = None  # noqa: SLF001
    SparkContext._jvm = None  # noqa: SLF001
    SparkContext._active_spark_context = None  # noqa: SLF001
    classic = cast("Any", SparkSession)
    classic._instantiatedSession = None  # noqa: SLF001


@contextlib.contextmanager
def _compiling(kernels: Collection[str]) -> Iterator[None]:
    """Have kernels compiled beside this block, where they have not been on this machine; wait for it."""
    # Processes of their own, out of reach of Ctrl-C: Numba may not be stopped in a thread, and has one lock for all.
    compilers = [
        subprocess.Popen(
            [sys.executable, "-m", "kvota.pipeline.warm_up", *share],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for share in shares(kept_code.missing(kernels), os.cpu_count() or 1)
    ]
    try:
        yield
        for compiler in compilers:
            compiler.wait()
    finally:
        for compiler in compilers:
            compiler.kill()
            compiler.wait()


def _settings(folder: Path, master: str) -> dict[str, str]:
    chosen = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # Coalescing would put several of the kernels' partitions into one task.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_BATCH_ROWS),
        # A row may be a whole file, or a chunk of a million bytes.
        "spark.sql.execution.arrow.maxBytesPerBatch": "64m",
        # Lists of files are looked through by the driver, however long: a job for it takes longer.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": str(2**31 - 1),
    }
    if master.startswith("local"):
        chosen |= {
            # Workers are forked off it; those of other machines may be without kvota until it is sent.
            "spark.python.daemon.module": "kvota.pipeline.worker_daemon",
            "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.local.dir": str(folder),
            "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
        }
    return chosen


def _jvm_environment(master: str, settings: Mapping[str, str]) -> dict[str, str | None]:
    """Return the environment for the JVM and the workers; None removes a variable."""
    chosen: dict[str, str | None] = {
        "JAVA_HOME": str(spark_java_home()),
        "PYSPARK_SUBMIT_ARGS": None,
    }
    # Spark leaves this setting to its own command line, which nobody used.
    if "spark.pyspark.python" in settings:
        chosen["PYSPARK_PYTHON"] = settings["spark.pyspark.python"]
    if master.startswith("local"):
        # Another Spark on this machine may be of another version than our PySpark.
        chosen |= {
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LAUNCHER_OPTS": _LAUNCHER_OPTIONS,
        }
    return chosen


def _start_jvm(conf: SparkConf, log_path: Path, *, kernels: bool) -> None:
    """Start the JVM with its output in a file; PySpark alone would let it write to our screen.

    A JVM that is left while it starts never ends: PySpark removes the file in which it awaits the JVM's port; the
    JVM then fails to write it, and stays. So until then Ctrl-C waits.
    """
    if SparkContext._gateway is not None:  # noqa: SLF001  (a JVM of this process runs already)
        return
    gateway: Any = None
    try:
        with interrupts_later(), log_path.open("wb") as log:
            gateway = cast("Any", launch_gateway)(conf, {"stdout": log, "stderr": log})
        with (
            interruptible(gateway.proc),
            _importing() if kernels else contextlib.nullcontext(),
        ):
            SparkContext(conf=conf, gateway=gateway)
    except BaseException:
        if gateway is not None:
            gateway.proc.kill()
            gateway.proc.wait()
            _forget_jvm()
        raise


@contextlib.contextmanager
def _importing() -> Iterator[None]:
    """Import what jobs need beside this block, which waits for the JVM; Numba alone takes half a second."""
    thread = threading.Thread(target=_import_jobs, daemon=True)
    thread.start()
    yield
    thread.join()


def _import_jobs() -> None:
    # Who needs what cannot be imported will be told. Behind Ctrl-C Python may be ending, which imports fail of in many ways.
    with contextlib.suppress(Exception):
        for name in ("law_check", "recommendation", "replay_tables", "usage_tables"):
            import_module(f"kvota.pipeline.{name}")


def _check_local_dirs(folders: str) -> None:
    """Spark needs one of these to write to; where there is none, it says that in its log alone."""
    faults = []
    for name in folders.split(","):
        if not name:
            faults.append('"" (no folder)')
            continue
        try:
            Path(name).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=name):
                return
        except OSError as error:
            faults.append(f"{name} ({error.strerror or error})")
    msg = (
        f"Spark cannot write to {', '.join(faults)}, where it keeps what does not fit into memory. "
        "Name another folder: --conf spark.local.dir=/path"
    )
    raise UnreachableError(msg)


@contextlib.contextmanager
def _environment(wanted: Mapping[str, str | None]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in wanted}
    _set_environment(wanted)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(wanted: Mapping[str, str | None]) -> None:
    for name, text in wanted.items():
        if text is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = text


def _end_of(log_path: Path) -> str:
    if not log_path.exists():
        return ""
    every = log_path.read_text(errors="replace").splitlines()
    lines = [line for line in every if not line.startswith("\tat ")][-_LOG_LINES_QUOTED:]
    return (
        "\nThe end of the JVM's log:\n" + "\n".join(f"  {line}" for line in lines) if lines else ""
    )
