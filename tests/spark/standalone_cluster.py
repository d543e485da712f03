"""A standalone Spark cluster on this machine, and a server of Spark Connect: real processes, from PySpark's own jars.

Workers' Python has everything that kvota needs, and not kvota: it stands where no ``.pth`` file is read.
"""

import io
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from kvota.java.find import spark_java_home
from kvota.pipeline.kernels import kept_code

_SPARK_HOME = Path(pyspark.__file__).parent
JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_STARTS_S_MAX = 120.0


def packed_environment(folder: Path, python: Path) -> Path:
    """What ``venv-pack`` makes, but with a program in place of an interpreter, which starts the one that is there."""
    made = folder / "environment.tar.gz"
    program = f'#!/bin/sh\nexec {python} "$@"\n'.encode()
    with tarfile.open(made, "w:gz") as archive:
        entry = tarfile.TarInfo("bin/python")
        entry.size, entry.mode = len(program), 0o755
        archive.addfile(entry, io.BytesIO(program))
    return made


@dataclass(frozen=True)
class Cluster:
    master: str
    environment: Path  # an archive with the workers' Python


def environment_of_workers(folder: Path) -> tuple[Path, dict[str, str]]:
    python, environment = python_without_kvota(folder)
    return python, environment | {
        "JAVA_HOME": str(spark_java_home()),
        "SPARK_HOME": str(_SPARK_HOME),
        "SPARK_DAEMON_JAVA_OPTS": JVM,
        "SPARK_DAEMON_MEMORY": "600m",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "KVOTA_CACHE": str(folder / "cache-of-workers"),
        # Kernels are those of this checkout, wherever their source lies: they are not compiled again.
        "NUMBA_CACHE_DIR": str(kept_code.FOLDER.parent),
    }


def python_without_kvota(folder: Path) -> tuple[Path, dict[str, str]]:
    """A Python, and its environment, that has this one's packages but those of ``.pth`` files, as kvota is installed here."""
    bare = folder / "bare"
    python = bare / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", bare], check=True)
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PY")}
    environment["PYTHONPATH"] = sysconfig.get_path("purelib")
    lacks = subprocess.run(
        [python, "-c", "import kvota"], env=environment, capture_output=True, text=True, check=False
    )
    assert "No module named 'kvota'" in lacks.stderr
    return python, environment


@contextmanager
def standalone_cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """A master and workers with one core each; what they write goes into the folder."""
    python, environment = environment_of_workers(folder)
    with ExitStack() as running:

        def start(name: str, wanted: str, *arguments: str) -> str:
            log = folder / f"{name}.log"
            return running.enter_context(_process(log, wanted, arguments, environment))

        address = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        deploy = "org.apache.spark.deploy"
        master = start("master", r"at (spark://\S+)", f"{deploy}.master.Master", *address)
        for number in range(workers):
            limits = (
                "--cores",
                "1",
                "--memory",
                "1g",
                "--work-dir",
                str(folder / f"work-{number}"),
            )
            worker = f"{deploy}.worker.Worker"
            registered = r"(Successfully registered)"
            start(f"worker-{number}", registered, worker, *address, *limits, master)
        yield Cluster(master, packed_environment(folder, python))


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A server of Spark Connect with Spark on two cores; its address."""
    python, environment = environment_of_workers(folder)
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "America/New_York",
        "spark.log.level": "INFO",  # it tells its port
    }
    arguments = [
        "org.apache.spark.deploy.SparkSubmit",
        *(
            "--master",
            "local[2]",
            "--class",
            "org.apache.spark.sql.connect.service.SparkConnectServer",
        ),
        *(part for name, text in settings.items() for part in ("--conf", f"{name}={text}")),
        "spark-internal",
    ]
    told = r"Spark Connect server started at: \S*:([0-9]+)"
    environment |= {"PYSPARK_PYTHON": str(python)}
    with _process(folder / "connect.log", told, tuple(arguments), environment) as port:
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def _process(
    log: Path, wanted: str, arguments: tuple[str, ...], environment: dict[str, str]
) -> Iterator[str]:
    """A class of Spark as a process, until the block ends; what its log says first of what is wanted."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [_SPARK_HOME / "bin" / "spark-class", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment | {"SPARK_LAUNCHER_OPTS": JVM},
        )
    try:
        yield _said(process, log, wanted)
    finally:
        process.terminate()
        process.wait(timeout=60)


def _said(process: "subprocess.Popen[bytes]", log: Path, wanted: str) -> str:
    end = time.monotonic() + _STARTS_S_MAX
    while time.monotonic() < end:
        found = re.search(wanted, log.read_text(errors="replace"))
        if found:
            return found[1]
        assert process.poll() is None, log.read_text(errors="replace")[-3_000:]
        time.sleep(0.1)
    raise AssertionError(log.read_text(errors="replace")[-3_000:])
