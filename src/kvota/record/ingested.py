"""A record that takes in the rows of others, each once, wherever it is killed.

A batch is taken in three steps. Its files are written whole, under names that no reader looks at, and beside them what
they come to (``usage_store``). Then one small file (``progress.json``) takes the place of the one before: it names the
files and says which rows have been taken, these among them. Then the files get their own names. A kill before the
second step leaves nothing that counts, and the batch is done anew; after it, whoever opens the folder next goes on
with the third.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kvota.files.process_lock import HeldError, ProcessLock
from kvota.files.whole_file import write_whole
from kvota.model.errors import CorruptDataError, UnreachableError, UsageError
from kvota.record.clustered import read_rows
from kvota.record.event_file import runs_in_table
from kvota.record.event_parquet import parquet_bytes
from kvota.record.found_events import look_into
from kvota.record.ledger import Ledger, RunKey, Span, rows_of_runs, spans_in
from kvota.record.places import USAGE_FOLDER
from kvota.record.usage_state import AGE_MAX_US, Summed, Usage
from kvota.record.usage_store import UsageStore, remove_seconds, write_seconds

logger = logging.getLogger(__name__)

# Beside the events; Spark and Arrow pass over names that begin so.
FOLDER = "_ingest"
PROGRESS = "progress.json"
# Behind the name of a file that is whole, and is no part of the record yet.
_READY = ".ready"
_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Progress:
    """What has been taken.

    Attributes:
        query: whose batches are counted.
        batch: the last one that has been taken; -1: none.
        files: its files, by name.
        from_first: runs whose beginning should have come, too.
        rows: so many have been taken in all.
        repeated: so many had been taken before, and were left out.
        runs: which rows have been taken.
        usage: what they come to.
    """

    query: str = ""
    batch: int = -1
    files: tuple[str, ...] = ()
    from_first: frozenset[RunKey] = frozenset()
    rows: int = 0
    repeated: int = 0
    runs: Mapping[RunKey, Sequence[Span]] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)

    def text(self) -> str:
        """As it is written."""
        document = {
            "schema": _SCHEMA,
            "query": self.query,
            "batch": self.batch,
            "files": self.files,
            "from_first": sorted(self.from_first),
            "rows": self.rows,
            "repeated": self.repeated,
            "runs": [
                {"gateway": gateway, "run_id": run_id, "taken": spans}
                for (gateway, run_id), spans in self.runs.items()
            ],
            "usage": self.usage.document(),
        }
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def parsed(cls, text: str) -> Self:
        """Read what ``text`` has written.

        Raises:
            ValueError: it is not that.
        """
        try:
            document: dict[str, Any] = json.loads(text)
            if document["schema"] != _SCHEMA:
                msg = f"schema {document['schema']}, this kvota reads {_SCHEMA}"
                raise ValueError(msg)
            runs = {
                (str(run["gateway"]), str(run["run_id"])): [
                    (int(first), int(last)) for first, last in run["taken"]
                ]
                for run in document["runs"]
            }
            usage = document.get("usage")  # none was kept at first
            return cls(
                query=str(document["query"]),
                batch=int(document["batch"]),
                files=tuple(str(name) for name in document["files"]),
                from_first=frozenset(
                    (str(gateway), str(run_id))
                    for gateway, run_id in document.get("from_first", ())
                ),
                rows=int(document["rows"]),
                repeated=int(document["repeated"]),
                runs=runs,
                usage=_uncounted(runs) if usage is None else Usage.parsed(usage),
            )
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(repr(error)) from error


@dataclass(frozen=True, slots=True)
class ReadyFile:
    """A file that waits to become part of the record.

    Attributes:
        name: the one it will have.
        rows: in it.
        spans: which rows they are.
        summed: what they come to.
    """

    name: str
    rows: int
    spans: Mapping[RunKey, Sequence[Span]]
    summed: Summed


def write_ready(into: Path, name: str, rows: pa.Table) -> ReadyFile:
    """Write rows (of ``event_schema.WRITE_SCHEMA``; one at least) as a file that is no part of the record yet.

    What they come to is written, too, and does not hold yet.

    Raises:
        OSError: it cannot be written.
    """
    in_order = _in_order(rows)
    content = parquet_bytes(in_order, runs_in_table(in_order))
    write_whole(into / FOLDER / (name + _READY), memoryview(content))
    summed = write_seconds(into, name.removesuffix(".parquet"), in_order)
    return ReadyFile(name, rows.num_rows, spans_in(in_order), summed)


def _in_order(rows: pa.Table) -> pa.Table:
    """Readers do not depend on it, but what is in order is packed better."""
    runs = np.zeros(rows.num_rows, np.int64)
    for number, (_, places) in enumerate(rows_of_runs(rows)):
        runs[places] = number
    seqs = rows["seq"].to_numpy()
    if (np.diff(runs) == 0).all() and (np.diff(seqs) > 0).all():
        return rows
    return rows.take(pa.array(np.lexsort((seqs, runs))))


def read_progress(into: Path) -> Progress:
    """Return what has been taken into a folder; nothing where there is no such file.

    Raises:
        CorruptDataError: it cannot be read.
    """
    path = into / FOLDER / PROGRESS
    try:
        return Progress.parsed(path.read_text())
    except FileNotFoundError:
        return Progress()
    except (ValueError, OSError) as error:
        msg = (
            f"{path} cannot be read ({error}). Remove it: which rows have been taken is then found out from the record "
            f"in {into}"
        )
        raise CorruptDataError(msg) from error


class IngestFolder:
    """A record's folder while rows are taken into it.

    Attributes:
        into: the folder.
        progress: what has been taken.
        ledger: the same, row by row.
    """

    def __init__(self, into: Path, lock: ProcessLock, usage: UsageStore) -> None:
        self.into = into
        self.progress = Progress()
        self.ledger = Ledger()
        self._lock = lock
        self._usage = usage

    @classmethod
    def open(
        cls,
        into: Path,
        *,
        now_us: Callable[[], int] | None = None,
        usage_age_us: int = AGE_MAX_US,
    ) -> Self:
        """Make the folder where it is missing, and finish what was begun; nobody else takes rows into it meanwhile.

        Args:
            into: the folder.
            now_us: tells the time; None: no decision is of later than now.
            usage_age_us: usage is kept for so long.

        Raises:
            UsageError: another process takes rows into it.
            CorruptDataError: what it has taken cannot be read.
            UnreachableError: the folder cannot be used.
        """
        own = into / FOLDER
        try:
            own.mkdir(parents=True, exist_ok=True)
            lock = ProcessLock.take(own / ".lock")
        except HeldError as error:
            msg = f"another process ({error.pid or 'unknown'}) ingests into {into}; end it, or name another folder in --into"
            raise UsageError(msg) from None
        except OSError as error:
            raise _unusable(into, error) from error
        folder = cls(into, lock, UsageStore(into, now_us=now_us, age_us=usage_age_us))
        try:
            folder._begin()
        except BaseException:
            lock.release()
            raise
        return folder

    def close(self) -> None:
        """Let others take rows into it."""
        self._lock.release()

    def has(self, query: str, batch: int) -> bool:
        """Tell whether a batch has been taken."""
        return self.progress.query == query and batch <= self.progress.batch

    def publish(
        self,
        query: str,
        batch: int,
        files: Sequence[ReadyFile],
        *,
        repeated: int,
        are_from_first: bool = False,
    ) -> Progress:
        """Make files part of the record, all of them or none; rows among them that were taken before are left out.

        Args:
            query: whose batch it is.
            batch: which one.
            files: of the batch, ready.
            repeated: so many rows were left out already.
            are_from_first: nothing of the runs that begin here was removed before it could be taken.

        Raises:
            UnreachableError: the disk does not take it; nothing counts then.
        """
        try:
            settled = [self._settled(file) for file in sorted(files, key=lambda file: file.name)]
            kept = [file for file in settled if file.rows]
            gone = sum(file.rows for file in files) - sum(file.rows for file in kept)
            if are_from_first:
                known = self.progress.runs.keys()
                self.ledger.from_first.update(
                    key for file in kept for key in file.spans if key not in known
                )
            progress = Progress(
                query=query,
                batch=batch,
                files=tuple(file.name for file in kept),
                from_first=frozenset(self.ledger.from_first),
                rows=self.progress.rows + sum(file.rows for file in kept),
                repeated=self.progress.repeated + repeated + gone,
                runs=self.ledger.runs,
                usage=self._usage_with(kept),
            )
            self._note(progress)
            self._finish()
            self._usage.remove_others(progress.usage)
        except OSError as error:
            raise _unusable(self.into, error) from error
        return progress

    # ------------------------------------------------------------------ the steps

    def _usage_with(self, files: Sequence[ReadyFile]) -> Usage:
        """Return usage with a batch, whose rows the ledger has. Where it cannot be gone on with, it begins anew.

        It can be counted from the decisions at any time: a file of it that is damaged or gone must not keep them from
        being taken.
        """
        came = [file.summed for file in files]
        before = self.progress.usage
        # No name may be given twice: until this batch counts, those of before hold.
        anew = replace(_uncounted(self.ledger.runs), number=before.number)
        of_batch = sum(file.rows for file in files)
        begins = (before, replace(anew, uncounted=anew.uncounted - of_batch))
        for usage in begins:
            try:
                return self._usage.with_batch(usage, came)
            except (CorruptDataError, FileNotFoundError) as error:
                logger.warning("usage by the minute is kept anew from this batch on: %s", error)
        return anew  # the batch's own files are gone, too

    def _settled(self, file: ReadyFile) -> ReadyFile:
        """Take its rows; two files of a batch may have the same."""
        if not self.ledger.meets(file.spans):
            self.ledger.add(file.spans)
            return file
        path = self.into / FOLDER / (file.name + _READY)
        rows = self.ledger.take(read_rows(path))
        if rows.num_rows:
            return write_ready(self.into, file.name, rows)
        path.unlink()
        remove_seconds(self.into, file.summed)
        return ReadyFile(file.name, 0, {}, file.summed)

    def _begin(self) -> None:
        self.progress = read_progress(self.into)
        try:
            self._finish()
            for path in (self.into / FOLDER).glob(f"*{_READY}*"):  # of a batch that was not taken
                path.unlink(missing_ok=True)
            if not self.progress.runs:
                # Kept at once: what is taken out of the record later has been taken all the same.
                runs = _taken_in(self.into)
                self._note(Progress(runs=runs, usage=_uncounted(runs)))
            if not self._usage.is_there(self.progress.usage):  # somebody has removed it
                logger.warning(
                    "usage by the minute is kept anew: files of %s are gone",
                    self.into / USAGE_FOLDER,
                )
                anew = replace(_uncounted(self.progress.runs), number=self.progress.usage.number)
                self._note(replace(self.progress, usage=anew))
            self._usage.remove_others(self.progress.usage)
        except OSError as error:
            raise _unusable(self.into, error) from error
        self.ledger = Ledger(self.progress.runs, self.progress.from_first)

    def _note(self, progress: Progress) -> None:
        write_whole(self.into / FOLDER / PROGRESS, progress.text().encode())
        self.progress = progress

    def _finish(self) -> None:
        """Give files their names; those that have them may have been merged since."""
        for name in self.progress.files:
            with suppress(FileNotFoundError):
                (self.into / FOLDER / (name + _READY)).rename(self.into / name)


def _uncounted(runs: Mapping[RunKey, Sequence[Span]]) -> Usage:
    """Say that usage begins behind these rows."""
    return Usage(
        uncounted=sum(last - first + 1 for spans in runs.values() for first, last in spans)
    )


def _taken_in(into: Path) -> Mapping[RunKey, Sequence[Span]]:
    """Find out which rows are in a record."""
    ledger = Ledger()
    for file in look_into([into]).files:
        if all(not run.missing for run in file.runs):
            spans = {
                (run.gateway, run.run_id): [(run.first_seq, run.last_seq)] for run in file.runs
            }
            ledger.add(spans)
            continue
        rows = pq.read_table(file.path, columns=["gateway", "run_id", "seq"], partitioning=None)
        ledger.take(rows)
    return ledger.runs


def _unusable(into: Path, error: OSError) -> UnreachableError:
    return UnreachableError(
        f"{error.filename or into}: {error.strerror or error}. Every row that was taken is in {into}, once; run it "
        "again when this is mended"
    )
