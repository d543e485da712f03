"""Saves tables: as Parquet in a folder, or in a table of Delta Lake or Iceberg, whole or not at all.

Spark's own overwriting of a folder deletes before it writes, so a job that fails in between leaves nothing. Here a
table is written beside what is there, and takes its name when all of it is on the disk (``files.whole_folder``).
"""

import errno
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from kvota.files.whole_file import DISK_IS_FULL
from kvota.files.whole_folder import settle, try_to_make, whole_folder
from kvota.model.errors import UnreachableError, UsageError
from kvota.pipeline.any_session import is_connect
from kvota.record.places import local_path

# Tells that a folder is a table that was saved here, so that another one may take its place. Readers of Parquet
# pass over names that begin so.
_MARK = "_kvota-table.json"

DELTA, ICEBERG = "delta:", "iceberg:"

_NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
_TABLE_NAME = re.compile(rf"{_NAME}(?:\.{_NAME})+")

# What Spark says where it lacks a format, its catalog, or the settings for it.
_LACKS = (
    "DATA_SOURCE_NOT_FOUND",
    "CATALOG_NOT_FOUND",
    "PLUGIN_CLASS_NOT_FOUND",
    "Cannot find catalog plugin class",
    "DELTA_CONFIGURE_SPARK_SESSION",
    "ClassNotFoundException",
    "REQUIRES_SINGLE_PART_NAMESPACE",
)
_NEEDED = {
    DELTA: "--conf spark.jars.packages=io.delta:delta-spark_SPARK_2.13:VERSION "
    "--conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension "
    "--conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    ICEBERG: "--conf spark.jars.packages=org.apache.iceberg:iceberg-spark-runtime-SPARK_2.13:VERSION "
    "--conf spark.sql.catalog.CATALOG=org.apache.iceberg.spark.SparkCatalog, and what that catalog needs",
}
# What the system says of a disk that does not take what is written, …
_REFUSALS = tuple(
    os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)
)
# … and what is in the trace of Spark where it was a table's file, not one that Spark puts aside for itself.
_OF_A_TABLE = "\tat org.apache.hadoop.fs."
_CAUSES = re.compile(r"^Caused by: ", re.MULTILINE)


def check_place(place: str, *, here: bool = True) -> None:
    """Refuse early what no table can be saved to; a little is written there, and removed.

    Args:
        place: as ``save_table`` takes it.
        here: this machine writes, and no server of Spark Connect.

    Raises:
        UsageError: the place is none, or a folder that holds something else, or cannot be written to.
        UnreachableError: there is no room.
    """
    if place.startswith(ICEBERG):
        if _TABLE_NAME.fullmatch(place.removeprefix(ICEBERG)) is None:
            msg = f"{place} names no table. Write {ICEBERG}CATALOG.DATABASE.TABLE"
            raise UsageError(msg)
        return
    if place in {"", DELTA}:
        msg = f'"{place}" names no place. Write a folder, {DELTA}FOLDER or {ICEBERG}CATALOG.DATABASE.TABLE'
        raise UsageError(msg)
    path = local_path(place.removeprefix(DELTA))
    if path is None:
        return
    if not place.startswith(DELTA):
        if here:
            settle(path.absolute())
        _refuse_others(path)
    if here:
        # Delta writes into its folder; ours is made beside the place, and takes it.
        is_inside = place.startswith(DELTA) and path.is_dir()
        _try_to_write((path / "table" if is_inside else path).absolute(), place)


def _try_to_write(path: Path, place: str) -> None:
    try:
        try_to_make(path)
    except OSError as error:
        if error.errno in DISK_IS_FULL:
            raise UnreachableError(_refused(place, error.strerror or str(error))) from error
        msg = f"{place} cannot be written: {error.strerror or error}. Name a folder that is yours"
        raise UsageError(msg) from error


def save_table(table: DataFrame, name: str, place: str) -> None:
    """Save a table; until all of it is there, the place holds what it held before.

    Args:
        table: what one of the pipeline's functions has made.
        name: of the table: ``usage``, ``replay``, …
        place: a folder, which another table of this name may be in; a URI of a new folder elsewhere; or
            ``delta:FOLDER``, ``iceberg:CATALOG.DATABASE.TABLE``, whose history keeps what was there before.

    Raises:
        UsageError: the place holds something else, or cannot be written to, or Spark lacks the format.
        UnreachableError: the disk has not taken all of it.
    """
    here = not is_connect(table.sparkSession)
    check_place(place, here=here)
    with _disk_named(place):
        if place.startswith(DELTA):
            where = _uri(place.removeprefix(DELTA))
            writer = table.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
            _written(lambda: writer.save(where), DELTA, place)
        elif place.startswith(ICEBERG):
            wanted = table.writeTo(place.removeprefix(ICEBERG)).using("iceberg")
            _written(wanted.createOrReplace, ICEBERG, place)
        else:
            _save_parquet(table, name, place, here=here)


@contextmanager
def _disk_named(place: str) -> Iterator[None]:
    """Say what the disk refused, where it is that of the place; Spark names neither."""
    try:
        yield
    except OSError as error:
        raise UnreachableError(_refused(place, error.strerror or str(error))) from error
    except (PySparkException, Py4JError) as error:
        reason = _refused_by_the_disk(str(error))
        if not reason:
            raise
        raise UnreachableError(_refused(place, reason)) from error


def _refused(place: str, reason: str) -> str:
    return (
        f"the table could not be written to {place}: {reason}. What was there before is still there; make room, "
        "or name another place"
    )


def _refused_by_the_disk(text: str) -> str:
    """Return why a file of the table was not written, if that is what Spark says."""
    for cause in _CAUSES.split(text):
        for reason in _REFUSALS:
            if reason in cause and _OF_A_TABLE in cause:
                return reason
    return ""


def _written(write: Callable[[], object], scheme: str, place: str) -> None:
    try:
        write()
    except (PySparkException, Py4JError) as error:
        text = str(error)
        if not any(mark in text for mark in _LACKS):
            raise
        format_name = "Delta Lake" if scheme == DELTA else "Iceberg"
        msg = f"{place}: this Spark cannot write {format_name}. Give it what it needs: {_NEEDED[scheme]}"
        raise UsageError(msg) from error


def _save_parquet(table: DataFrame, name: str, place: str, *, here: bool) -> None:
    path = local_path(place)
    if path is None or not here:
        # What is there cannot be looked at from here, and no folder is renamed in one step everywhere.
        try:
            table.write.mode("error").parquet(_uri(place))
        except (PySparkException, Py4JError) as error:
            if "PATH_ALREADY_EXISTS" not in str(error):
                raise
            msg = f"{place} is there already; so far away only a new folder can be written. Name another"
            raise UsageError(msg) from error
        return
    with whole_folder(path.absolute()) as new:
        table.write.mode("error").parquet(f"file:{new}")
        (new / _MARK).write_text(json.dumps({"table": name}) + "\n", encoding="utf-8")
        _refuse_others(path)


def _refuse_others(path: Path) -> None:
    if not path.exists() and not path.is_symlink():
        return
    if path.is_mount():
        msg = f"{path} is where a disk is mounted, so no other folder can take its name. Name a folder in it"
        raise UsageError(msg)
    with suppress(OSError):
        if (
            path.is_dir()
            and not path.is_symlink()
            and ((path / _MARK).exists() or not any(path.iterdir()))
        ):
            return
    msg = (
        f"{path} is there already, and is no table that was saved here before. Name another folder"
    )
    raise UsageError(msg)


def _uri(place: str) -> str:
    path = local_path(place)
    # As it is: Spark does not read "%20" in it as a blank.
    return place if path is None else f"file:{path.absolute()}"
