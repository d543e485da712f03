"""A task turns pieces into files: rows that were taken before are left out, and nothing is held but one file's rows."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from kvota.record.clustered import UnfitError, read_rows
from kvota.record.event_block import NoBlockError, read_block
from kvota.record.ingested import ReadyFile, write_ready
from kvota.record.ledger import Ledger, RunKey, Span
from kvota.record.usage_state import Summed

# A file has so many rows, and those of one piece more. 300 bytes each are held while it is made.
FILE_ROWS = 500_000

# A task makes fewer files in a batch.
_FILES_MAX = 10_000

_TOLD = pa.schema([pa.field("told", pa.string(), nullable=False)])
_TOLD_SQL = "told string"


@dataclass(frozen=True, slots=True)
class BadPiece:
    """A piece that is no events; ``offset`` is its place in its source."""

    source: str
    offset: int
    reason: str

    def __str__(self) -> str:
        """One line for people."""
        return f"{self.source}, offset {self.offset}: {self.reason}; left out"


@dataclass(slots=True)
class Outcome:
    """What became of a batch's pieces.

    Attributes:
        files: what was written, ready to be published.
        repeated: rows that had been taken before.
        bad: pieces that are no events.
        gone: files that were removed before they were read.
    """

    files: list[ReadyFile] = field(default_factory=list)
    repeated: int = 0
    bad: list[BadPiece] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)


def take_pieces(
    pieces: DataFrame, *, into: Path, name: str, taken: Mapping[RunKey, Sequence[Span]]
) -> Outcome:
    """Have Spark's workers write the new rows of some pieces into files that are ready to be published.

    Args:
        pieces: as ``pieces.PIECES`` has them.
        into: the record's folder.
        name: how the files' names begin.
        taken: the rows that have been taken before.
    """
    work = partial(_worked, into=into, name=name, taken=taken)
    outcome = Outcome()
    for (text,) in pieces.mapInArrow(work, _TOLD_SQL).collect():
        told = json.loads(text)
        outcome.repeated += told["repeated"]
        outcome.bad += [BadPiece(*one) for one in told["bad"]]
        outcome.gone += told["gone"]
        outcome.files += [
            ReadyFile(
                file["name"],
                file["rows"],
                {
                    (gateway, run_id): [(first, last) for first, last in spans]
                    for gateway, run_id, spans in file["spans"]
                },
                Summed.parsed(file["summed"]),
            )
            for file in told["files"]
        ]
    return outcome


def _worked(
    batches: Iterable[pa.RecordBatch],
    *,
    into: Path,
    name: str,
    taken: Mapping[RunKey, Sequence[Span]],
) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None, "Spark has made a task of it"
    # A task that is done again writes files of its own: only those count that it tells of.
    task = Task(into, name, context.taskAttemptId() * _FILES_MAX, Ledger(taken))
    for batch in batches:
        for piece in batch.to_pylist():
            task.take(piece)
    task.write()
    told = pa.array([task.told()], pa.string())
    yield pa.RecordBatch.from_arrays([told], schema=_TOLD)


class Task:
    """Gathers rows until they fill a file."""

    def __init__(self, into: Path, name: str, first_number: int, ledger: Ledger) -> None:
        self._into = into
        self._name = name
        self._number = first_number
        self._ledger = ledger
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._repeated = 0
        self._files: list[ReadyFile] = []
        self._bad: list[tuple[str, int, str]] = []
        self._gone: list[str] = []

    def take(self, piece: Mapping[str, Any]) -> None:
        """Take the new rows of one piece."""
        source, offset = piece["source"], piece["offset"]
        if piece["fault"] is not None:
            self._bad.append((source, offset, piece["fault"]))
            return
        try:
            value = piece["value"]
            rows = read_rows(Path(source)) if value is None else read_block(value)
        except FileNotFoundError:
            self._gone.append(source)
            return
        except (NoBlockError, UnfitError) as error:
            self._bad.append((source, offset, str(error)))
            return
        new = self._ledger.take(rows)
        self._repeated += rows.num_rows - new.num_rows
        if new.num_rows:
            self._waiting.append(new)
            self._rows += new.num_rows
        if self._rows >= FILE_ROWS:
            self.write()

    def write(self) -> None:
        """Write what has been gathered."""
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting).unify_dictionaries().combine_chunks()
        self._waiting, self._rows = [], 0
        name = f"{self._name}-{self._number}.parquet"
        self._number += 1
        self._files.append(write_ready(self._into, name, rows))

    def told(self) -> str:
        """Say what was done."""
        files = [
            {
                "name": file.name,
                "rows": file.rows,
                "spans": [(*key, spans) for key, spans in file.spans.items()],
                "summed": file.summed.listed(),
            }
            for file in self._files
        ]
        return json.dumps(
            {"files": files, "repeated": self._repeated, "bad": self._bad, "gone": self._gone}
        )
