"""Counts the rows that workers of this machine have read and worked off, while they do it.

Spark tells how many tasks are done, which is little where there are four. So each worker keeps two
numbers in a file of its own, in a folder of the session, and the driver adds them up.
"""

import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from pyspark.sql import SparkSession

Phase = Literal["read", "worked"]

# Under this name the session tells the folder; there is none where workers are on other machines.
SETTING = "spark.kvota.rowsDone"

_NUMBER = struct.Struct("<q")

# Of this process: open files, and what stands in them.
_files: dict[tuple[str, Phase], int] = {}
_counts: dict[tuple[str, Phase], int] = {}


def folder_of(spark: SparkSession) -> str:
    """Return the folder of a session, or nothing."""
    return str(spark.conf.get(SETTING, ""))


def count(folder: str, phase: Phase, rows: int) -> None:
    """Add rows, in a worker; a folder that cannot be written is no reason to fail."""
    if not folder:
        return
    key = (folder, phase)
    try:
        if key not in _files:
            path = Path(folder) / f"{phase}-{os.getpid()}"
            _files[key] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            _counts[key] = 0
        _counts[key] += rows
        os.pwrite(_files[key], _NUMBER.pack(_counts[key]), 0)
    except OSError:
        return


def rows_done(folder: str) -> Mapping[Phase, int]:
    """Return how many rows all workers have counted since the session began."""
    done: dict[Phase, int] = {"read": 0, "worked": 0}
    for phase, rows in _found(folder):
        done[phase] += rows
    return done


def _found(folder: str) -> Iterator[tuple[Phase, int]]:
    phases: tuple[Phase, ...] = ("read", "worked")
    for phase in phases:
        for path in Path(folder).glob(f"{phase}-*"):
            content = path.read_bytes()
            if len(content) == _NUMBER.size:
                yield phase, _NUMBER.unpack(content)[0]
