"""Takes what comes in a folder into a record until it is killed, batch after batch, without Spark: ``python … FOLDER INTO``."""

import os
import sys
from pathlib import Path

from pyspark.sql.streaming.datasource import ReadAllAvailable

from kvota.pipeline.ingest.folder_source import FolderReader
from kvota.pipeline.ingest.take_pieces import Task
from kvota.record.ingested import IngestFolder
from kvota.record.ledger import Ledger


def take(folder: Path, into: Path, *, ends: bool) -> None:
    """Take what there is; on and on, or once."""
    taking = IngestFolder.open(into)
    reader = FolderReader({"folders": str(folder), "into": str(into), "tasks": "1"})
    at, batch = reader.initialOffset(), 0
    while True:
        end = reader.latestOffset(at, ReadAllAvailable())
        name = f"events-ingest-q-{os.getpid()}-{batch:012d}"
        task = Task(into, name, 0, Ledger(taking.ledger.runs))
        for part in reader.partitions(at, end):
            for pieces in reader.read(part):
                for piece in pieces.to_pylist():
                    task.take(piece)
        task.write()
        taking.publish("q", batch, task._files, repeated=0)
        sys.stdout.write("batch\n")
        sys.stdout.flush()
        if ends and end == at:
            break
        at, batch = end, batch + 1
    taking.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]), Path(sys.argv[2]), ends=False)
