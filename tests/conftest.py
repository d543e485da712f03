"""What all tests share."""

import faulthandler
import os
import signal
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from kvota.localkafka.cluster import ports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

# A test may be slow where the machine has other work: no test asserts a time.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

# What is started in the background may have SIGINT ignored, and the processes of the tests would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    """With ``-n 2`` each process draws its servers' ports from a part of its own: between drawing and listening lie seconds."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker.startswith("gw"):
        number, count = int(worker[2:]), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        each = (ports.PORT_MAX - ports.PORT_MIN) // count
        first = ports.PORT_MIN + number * each
        ports.PORT_MIN, ports.PORT_MAX = first, first + each


# After the last word a thread that a failed test left behind could keep the process, and with it the whole run.
LAST_WORD_TO_END_S = 60


def pytest_unconfigure() -> None:
    """End within a minute, and show where the thread is that would not let it."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return  # it waits for the other processes, and is ended with them
    faulthandler.dump_traceback_later(LAST_WORD_TO_END_S, exit=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(
    config: pytest.Config, log: "Producer | None"
) -> "LoadScopeScheduling":
    """With ``-n 2``: what wants a processor runs beside what waits for servers."""
    from tests.by_folder import FolderScheduling  # noqa: PLC0415  (there is one only with -n)

    return FolderScheduling(config, log)


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """One session for the whole run: a JVM takes seconds to start."""
    from kvota.pipeline import end_session, session  # noqa: PLC0415  (most tests need no Spark)

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        spark = session("local[2]", short=True)
    yield spark
    end_session(spark)
