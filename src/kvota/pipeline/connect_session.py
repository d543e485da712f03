"""Begins a session with a server of Spark Connect: its Spark runs elsewhere, and no JVM is started here."""

import re
import socket
from collections.abc import Mapping
from importlib.util import find_spec

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kvota.model.errors import UnreachableError, UsageError
from kvota.pipeline.sent_code import send_code

# How the address of such a server begins.
CONNECT = "sc://"

_PORT = 15002
_ADDRESS = re.compile(r"sc://(\[[^]]+\]|[^:/;]+)(?::([0-9]+))?(?:/.*)?")

# Spark itself would try for minutes before it says that nobody is there.
_REACHED_S_MAX = 10.0


def connected(url: str, settings: Mapping[str, str]) -> SparkSession:
    """Return a session of its own with a server; kvota's code is sent to the server's workers.

    Args:
        url: ``sc://host:15002``, with further parts as Spark has them.
        settings: of this session; those that are a whole server's are refused by the server.

    Raises:
        ModuleNotFoundError: the extra ``connect`` is not installed.
        UsageError: this is no address of a server, or it refuses a setting.
        UnreachableError: there is no such server, or it refuses the session.
    """
    if find_spec("grpc") is None:
        raise ModuleNotFoundError(name="grpc")
    _look_for_server(url)
    try:
        spark = SparkSession.builder.remote(url).create()
        send_code(spark)
    except PySparkException as error:
        msg = f"Spark Connect did not begin a session at {url}: {_first_line(error)}"
        raise UnreachableError(msg) from error
    for name, value in settings.items():
        try:
            spark.conf.set(name, value)
        except PySparkException as error:
            spark.stop()
            msg = f"{name}={value}: the server at {url} does not take this from a session: {_first_line(error)}"
            raise UsageError(msg) from error
    return spark


def _first_line(error: PySparkException) -> str:
    return str(error).strip().splitlines()[0]


def _look_for_server(url: str) -> None:
    found = _ADDRESS.fullmatch(url)
    if found is None:
        msg = f"{url} is no address of a Spark Connect server. Write sc://HOST:{_PORT}"
        raise UsageError(msg)
    host, port = found[1].strip("[]"), int(found[2] or _PORT)
    try:
        socket.create_connection((host, port), timeout=_REACHED_S_MAX).close()
    except OSError as error:
        msg = f"no Spark Connect server answers at {url}: {error.strerror or error}"
        raise UnreachableError(msg) from error
