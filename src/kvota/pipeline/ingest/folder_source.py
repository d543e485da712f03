"""Spark looks into folders of events: a row for each file that holds something new.

An offset is the number of a look. Which files belong to it need not be remembered: what has been taken is told row by
row by the record that it goes into, and what has not is found again.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from kvota.pipeline.ingest.pieces import PIECES_SQL, Piece, piece_batch
from kvota.record.event_file import BadInput, EventFile, look_at
from kvota.record.ingested import FOLDER, read_progress
from kvota.record.ledger import Ledger
from kvota.record.places import is_beside_events

FORMAT = "kvota_folder"

# A batch has so many rows at most, if no single file has more.
ROWS_MAX = 4_000_000
# A file that is damaged may be one that is still being copied; it counts as damaged when it has not changed for so long.
_STILL_S = 60.0

# So the names of merged files begin (``record/compact``).
_MERGED = "events-hour-"

# Between the folders in the option; no path has it.
SEPARATOR = "\n"

_Stamp = tuple[int, int]  # size and modification time


@dataclass
class _Files(InputPartition):
    """The files of one task, as pieces."""

    pieces: Sequence[Piece]

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__(None)
        self.pieces = pieces


class FolderSource(DataSource):
    """Options: ``folders`` (lines), ``into`` (a record's folder), ``tasks``."""

    @classmethod
    def name(cls) -> str:
        """As ``spark.readStream.format`` has it."""
        return FORMAT

    def schema(self) -> str:
        """The columns of a piece."""
        return PIECES_SQL

    def streamReader(self, schema: StructType) -> "FolderReader":
        """Return what looks."""
        return FolderReader(self.options)


class FolderReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """An offset is ``{"look": n}``; it grows while there are files that were not handed out."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._folders = [Path(name) for name in options["folders"].split(SEPARATOR)]
        self._into = Path(options["into"])
        self._tasks = int(options["tasks"])
        self._handed_out: dict[Path, _Stamp] = {}
        self._only: set[Path] | None = None  # where it ends with what there was when it began
        self._planned: tuple[int, list[InputPartition]] = (-1, [])

    # ------------------------------------------------------------------ how far

    def initialOffset(self) -> dict[str, int]:
        """Nothing has been looked at."""
        return {"look": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """One further where there is something new."""
        return {"look": start["look"] + bool(self._new_files())}

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on there are no files but those that are there now."""
        self._only = set(self._listed())

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Hand out the files of one look, the oldest first."""
        if end["look"] == start["look"]:
            return []
        look, planned = self._planned
        if look != end["look"]:
            planned = list(self._plan())
            self._planned = end["look"], planned
        return planned

    def _plan(self) -> Iterator[InputPartition]:
        ledger = Ledger(read_progress(self._into).runs)
        chosen: list[tuple[int, Piece]] = []
        rows = 0
        for path, stamp in sorted(self._new_files().items(), key=lambda new: (new[1][1], new[0])):
            if rows >= ROWS_MAX:
                break
            seen = look_at(path)
            if isinstance(seen, BadInput) and not self._is_still(stamp):
                continue
            self._handed_out[path] = stamp
            if isinstance(seen, BadInput):
                chosen.append((0, (str(path), 0, None, seen.reason)))
            elif seen is not None and not _is_taken(seen, ledger):
                chosen.append((seen.rows, (str(path), 0, None, None)))
                rows += seen.rows
        yield from _shared_out(chosen, self._tasks)

    def _is_still(self, stamp: _Stamp) -> bool:
        return self._only is not None or time.time_ns() - stamp[1] > _STILL_S * 1e9  # noqa: TID251

    # ------------------------------------------------------------------ what is there

    def _new_files(self) -> dict[Path, _Stamp]:
        now = self._listed()
        self._handed_out = {path: stamp for path, stamp in self._handed_out.items() if path in now}
        return {path: stamp for path, stamp in now.items() if self._handed_out.get(path) != stamp}

    def _listed(self) -> dict[Path, _Stamp]:
        found: dict[Path, _Stamp] = {}
        for folder in self._folders:
            for root, below, names in os.walk(folder):
                below[:] = [name for name in below if name != FOLDER]
                for name in names:
                    path = Path(root, name)
                    if not name.endswith(".parquet") or is_beside_events(name):
                        continue
                    # What is merged meanwhile takes the place of files that were there.
                    if not (self._only is None or path in self._only or name.startswith(_MERGED)):
                        continue
                    try:
                        status = path.stat()
                    except FileNotFoundError:
                        continue  # it was removed meanwhile, as old ones are
                    found[path] = status.st_size, status.st_mtime_ns
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the names of a task's files."""
        assert isinstance(partition, _Files), "it was planned here"
        if partition.pieces:
            yield piece_batch(partition.pieces)


def _is_taken(file: EventFile, ledger: Ledger) -> bool:
    """Tell whether each of its rows has been taken, as far as its footer can say."""
    return all(
        not run.missing
        and ledger.of((run.gateway, run.run_id)).has_all(run.first_seq, run.last_seq)
        for run in file.runs
    )


def _shared_out(chosen: Sequence[tuple[int, Piece]], tasks: int) -> Iterator[InputPartition]:
    """Share files out so that tasks have about as many rows, each in its order."""
    shares: list[list[Piece]] = [[] for _ in range(min(tasks, len(chosen)))]
    filled = [0] * len(shares)
    for rows, piece in chosen:
        least = filled.index(min(filled))
        shares[least].append(piece)
        filled[least] += rows
    yield from (_Files(share) for share in shares)
