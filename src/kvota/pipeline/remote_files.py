"""Finds the files of a record that lie elsewhere (``s3a:``, ``hdfs:``, …): by Hadoop's FileSystem, which Spark has.

Listing and footers go through the driver's JVM, without a Spark job.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kvota.files.threads import in_threads
from kvota.model.errors import UnreachableError, UsageError
from kvota.pipeline.any_session import refuse_connect
from kvota.record.event_file import BadInput, EventFile, NoEventsError, read_footer
from kvota.record.found_events import FoundEvents, find_all, in_force, look_into, nothing_found
from kvota.record.places import is_beside_events, local_path

# A footer of one of our files fits into so much of its end.
_TAIL_BYTES = 65_536

# Footers are looked at by so many threads: they wait for the network.
_THREADS = 16

# The end of a Parquet file: the length of its footer, and a mark.
_END_BYTES = 8


def find_record(spark: SparkSession, places: Iterable[Path | str]) -> FoundEvents:
    """Do what ``find_events`` does for paths of this machine and URIs of anywhere.

    Raises:
        UsageError: as ``find_events``, or Hadoop does not know the scheme of a URI.
        UnreachableError: a place could not be reached.
    """
    every = list(places)
    local = [path for place in every if (path := local_path(place)) is not None]
    remote = [str(place) for place in every if local_path(place) is None]
    here = look_into(local) if local else FoundEvents(())
    there = _Remote(spark).find(remote) if remote else FoundEvents(())
    both = in_force(
        [*here.files, *here.superseded, *here.bad, *there.files, *there.superseded, *there.bad]
    )
    if not both.files:
        raise UsageError(nothing_found(every, both.bad))
    return both


class _Remote:
    """Lists and opens files by Hadoop."""

    def __init__(self, spark: SparkSession) -> None:
        refuse_connect(spark, "looking for files that are not on this machine")
        session: Any = spark
        self._jvm: Any = session._jvm  # noqa: SLF001  (PySpark has no public way to Hadoop)
        self._conf: Any = session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001
        self._sizes: dict[str, tuple[int, int]] = {}

    def find(self, uris: Sequence[str]) -> FoundEvents:
        return find_all(
            lambda: list(dict.fromkeys(uri for root in uris for uri in self._listed(root))),
            lambda files: in_threads(self._look_at, files, _THREADS),
        )

    def _listed(self, root: str) -> Iterator[str]:
        """Yield the Parquet files in a folder, or the one file."""
        try:
            path = self._jvm.org.apache.hadoop.fs.Path(root)
            files = path.getFileSystem(self._conf)
            if files.getFileStatus(path).isFile():
                yield self._noted(files.getFileStatus(path))
                return
            found = files.listFiles(path, True)  # noqa: FBT003  (of Java: with all folders below)
            while found.hasNext():
                status = found.next()
                name = str(status.getPath().getName())
                if name.endswith(".parquet") and not is_beside_events(name):
                    yield self._noted(status)
        except (Py4JJavaError, PySparkException) as error:
            raise _error_about(root, error) from error

    def _noted(self, status: Any) -> str:
        uri = str(status.getPath().toString())
        self._sizes[uri] = (status.getLen(), status.getModificationTime() * 1_000_000)
        return uri

    def _look_at(self, uri: str) -> EventFile | BadInput | None:
        size_bytes, modified_ns = self._sizes[uri]
        try:
            found = read_footer(pa.BufferReader(self._end_of(uri, size_bytes)))
        except NoEventsError as error:
            return BadInput(uri, str(error))
        except Py4JJavaError as error:
            if _java_name(error).endswith("FileNotFoundException"):
                return None
            return BadInput(uri, f"cannot be read ({_java_text(error)})")
        return replace(
            found, path=Path(uri), uri=uri, size_bytes=size_bytes, modified_ns=modified_ns
        )

    def _end_of(self, uri: str, size_bytes: int) -> bytes:
        """Return the end of a file with its footer; all of it where the footer does not say enough."""
        end = self._bytes(uri, max(0, size_bytes - _TAIL_BYTES))
        footer_bytes = int.from_bytes(end[-_END_BYTES:-4], "little") + _END_BYTES
        if len(end) < footer_bytes <= size_bytes:
            end = self._bytes(uri, size_bytes - footer_bytes)
        try:
            read_footer(pa.BufferReader(end))
        except (NoEventsError, OSError):
            # It may have no list of its runs, which are then read from its columns.
            return self._bytes(uri, 0)
        return end

    def _bytes(self, uri: str, start: int) -> bytes:
        path = self._jvm.org.apache.hadoop.fs.Path(uri)
        stream = path.getFileSystem(self._conf).open(path)
        try:
            stream.seek(start)
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()


def _error_about(place: str, error: Exception) -> UsageError | UnreachableError:
    name, text = _java_name(error), _java_text(error)
    if name.endswith("FileNotFoundException"):
        return UsageError(f'"{place}" does not exist. Name the folder that holds the record')
    if name.endswith("UnsupportedFileSystemException"):
        return UsageError(
            f'"{place}": Spark knows no such file system ({text}). Name its package with '
            "--conf spark.jars.packages=…, e.g. org.apache.hadoop:hadoop-aws for s3a:"
        )
    return UnreachableError(f'"{place}" could not be reached: {text}')


def _java_name(error: Exception) -> str:
    return str(error.java_exception.getClass().getName()) if _is_java(error) else ""


def _java_text(error: Exception) -> str:
    text = str(error.java_exception.getMessage() if _is_java(error) else error)
    return text.splitlines()[0] if text else _java_name(error)


def _is_java(error: Exception) -> TypeGuard[Py4JJavaError]:
    return isinstance(error, Py4JJavaError)
