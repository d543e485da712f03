"""Saves tables: as Parquet in a folder, or in a table of Delta Lake or Iceberg, whole or not at all.

Spark's own overwriting of a folder deletes before it writes, so a job that fails in between leaves nothing. Here a
table is written beside what is there, and takes its name when all of it is on the disk.
"""

import json
import re
import shutil
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

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


def check_place(place: str) -> None:
    """Refuse early what no table can be saved to.

    Raises:
        UsageError: the place is none, or a folder that holds something else.
    """
    if place.startswith(ICEBERG):
        if _TABLE_NAME.fullmatch(place.removeprefix(ICEBERG)) is None:
            msg = f"{place} names no table. Write {ICEBERG}CATALOG.DATABASE.TABLE"
            raise UsageError(msg)
        return
    if place in {"", DELTA}:
        msg = f'"{place}" names no place. Write a folder, {DELTA}FOLDER or {ICEBERG}CATALOG.DATABASE.TABLE'
        raise UsageError(msg)
    path = None if place.startswith(DELTA) else local_path(place)
    if path is not None:
        _refuse_others(path)


def save_table(table: DataFrame, name: str, place: str) -> None:
    """Save a table; until all of it is there, the place holds what it held before.

    Args:
        table: what one of the pipeline's functions has made.
        name: of the table: ``usage``, ``replay``, …
        place: a folder, which another table of this name may be in; a URI of a new folder elsewhere; or
            ``delta:FOLDER``, ``iceberg:CATALOG.DATABASE.TABLE``, whose history keeps what was there before.

    Raises:
        UsageError: the place holds something else, or Spark lacks the format.
        UnreachableError: the folder could not be written.
    """
    check_place(place)
    if place.startswith(DELTA):
        where = _uri(place.removeprefix(DELTA))
        writer = table.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        _written(lambda: writer.save(where), DELTA, place)
    elif place.startswith(ICEBERG):
        wanted = table.writeTo(place.removeprefix(ICEBERG)).using("iceberg")
        _written(wanted.createOrReplace, ICEBERG, place)
    else:
        _save_parquet(table, name, place)


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


def _save_parquet(table: DataFrame, name: str, place: str) -> None:
    path = local_path(place)
    if path is None or is_connect(table.sparkSession):
        # What is there cannot be looked at from here, and no folder is renamed in one step everywhere.
        try:
            table.write.mode("error").parquet(_uri(place))
        except (PySparkException, Py4JError) as error:
            if "PATH_ALREADY_EXISTS" not in str(error):
                raise
            msg = f"{place} is there already; so far away only a new folder can be written. Name another"
            raise UsageError(msg) from error
        return
    new = path.absolute().with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        table.write.mode("error").parquet(f"file:{new}")
        (new / _MARK).write_text(json.dumps({"table": name}) + "\n", encoding="utf-8")
        _take_place(new, path.absolute())
    except OSError as error:
        msg = f"{error.filename or path}: {error.strerror or error}"
        raise UnreachableError(msg) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _take_place(new: Path, path: Path) -> None:
    _refuse_others(path)
    if not path.exists():
        new.rename(path)
        return
    old = new.with_suffix(".old")
    path.rename(old)
    try:
        new.rename(path)
    except OSError:
        old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _refuse_others(path: Path) -> None:
    if not path.exists() and not path.is_symlink():
        return
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
