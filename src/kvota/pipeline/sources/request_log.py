"""A request log becomes a record: ranges are read by Spark's workers, and their rows put into files in order."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson
import pyarrow as pa
from pyspark.sql import SparkSession

from kvota.model.errors import UnreachableError, UsageError
from kvota.pipeline.any_session import arrow_table, numbered_tasks, parallelism
from kvota.pipeline.arrow_columns import spark_ddl
from kvota.pipeline.sources.charge_rows import ChargeRows
from kvota.pipeline.sources.converted_files import Converted, write_run
from kvota.pipeline.sources.log_files import BrokerLog, FoundLog
from kvota.pipeline.sources.log_quotas import LogQuotas
from kvota.pipeline.sources.log_range import (
    LogRange,
    LogReading,
    RangeFound,
    RangeReader,
    found_text,
    parsed_found,
)

Batches = Iterator[pa.RecordBatch]

# A range has so many bytes, and there are some for each core where the log is short.
_RANGE_BYTES, _RANGE_BYTES_MIN, _RANGES_PER_CORE = 64 << 20, 4 << 20, 4

# A cluster holds clients to its quotas as one gateway does: each broker counts what comes to it, and nobody else does.
GATEWAY = "request-log"

_DONE = pa.schema([("found", pa.binary())])


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConverted(Converted):
    """What became of a log.

    Attributes:
        joined: lines that were cut at a roll and are whole again.
        other: lines without a charge, by what they are.
    """

    joined: int
    other: dict[str, int]


def convert_log(
    spark: SparkSession, found: FoundLog, reading: LogReading, folder: Path
) -> LogConverted:
    """Write the charges of a log into files of a record.

    Args:
        spark: its workers read the files, so they have to be on the same machine, or share its folders.
        found: the files.
        reading: how.
        folder: for the files; that of the tables in between is in it, and goes.

    Raises:
        UsageError: the log is of Kafka 2.7 or earlier.
        UnreachableError: the folder cannot be written to.
    """
    ranges = ranges_of(found, parallelism(spark))
    between = folder / "_ranges"
    try:
        between.mkdir()
        done = _read_by_workers(spark, ranges, reading, between)
        refuse_old(done)
        rows = _write_all(found, ranges, done, reading, folder)
        between.rmdir()
    except OSError as error:
        msg = f"{error.filename or folder}: {error.strerror or error}. It needs about 30 bytes per request"
        raise UnreachableError(msg) from error
    return _summed(ranges, done, rows)


def refuse_old(done: Iterable[RangeFound]) -> None:
    """Refuse a log that has lines of Kafka 2.7.

    Raises:
        UsageError: it has.
    """
    if any(found.is_old for found in done):
        msg = (
            "this request log has lines of Kafka 2.7 or earlier, which have no sizes of requests; brokers write "
            "them since Kafka 2.8. Leave the older files out"
        )
        raise UsageError(msg)


def ranges_of(found: FoundLog, cores: int) -> list[LogRange]:
    """Cut the files of a log into ranges; a packed file is one."""
    wanted = found.size_bytes // (cores * _RANGES_PER_CORE)
    range_bytes = max(_RANGE_BYTES_MIN, min(_RANGE_BYTES, wanted))
    ranges: list[LogRange] = []
    for broker in found.brokers:
        paths = [str(file.path) for file in broker.files]
        run_id = run_id_of(broker)
        for place, file in enumerate(broker.files):
            starts = range(0, max(1, file.size_bytes), range_bytes) if not file.is_packed else (0,)
            ranges += [
                LogRange(
                    number=len(ranges) + count,
                    path=paths[place],
                    start=start,
                    end=None if start == starts[-1] else start + range_bytes,
                    node_id=broker.node_id,
                    gateway=GATEWAY,
                    run_id=run_id,
                    second_from=file.second_from,
                    before=paths[place - 1] if place and not start else "",
                    behind=paths[place + 1]
                    if start == starts[-1] and place + 1 < len(paths)
                    else "",
                )
                for count, start in enumerate(starts)
            ]
    return ranges


def run_id_of(broker: BrokerLog) -> str:
    """Return a name for this part of a broker's log: another part has another one, and so has another broker."""
    return f"broker{broker.node_id}-log-{broker.files[0].first_us // 1_000_000}"


def _read_by_workers(
    spark: SparkSession, ranges: Sequence[LogRange], reading: LogReading, folder: Path
) -> list[RangeFound]:
    texts = [orjson.dumps(asdict(part)) for part in ranges]
    tasks = numbered_tasks(spark, len(ranges))
    done = arrow_table(tasks.mapInArrow(_range_reader(texts, reading, folder), spark_ddl(_DONE)))
    found = [parsed_found(text.as_py()) for text in done["found"]]
    return sorted(found, key=lambda one: one.number)


def _range_reader(
    ranges: Sequence[bytes], reading: LogReading, folder: Path
) -> Callable[[Batches], Batches]:
    def stage(batches: Batches) -> Batches:
        reader = RangeReader(reading, folder)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                found = reader.read(LogRange(**orjson.loads(ranges[number])))
                yield pa.RecordBatch.from_arrays([pa.array([found_text(found)])], schema=_DONE)

    return stage


def _write_all(
    found: FoundLog,
    ranges: Sequence[LogRange],
    done: Sequence[RangeFound],
    reading: LogReading,
    folder: Path,
) -> int:
    """Write the rows of each broker; return how many there are."""
    first_lines = frozenset(name for one in done for name in one.first_lines)
    rows = 0
    for broker in found.brokers:
        run_id = run_id_of(broker)
        here = [one for part, one in zip(ranges, done, strict=True) if part.run_id == run_id]
        late = ChargeRows(broker.node_id, LogQuotas(reading.quotas))
        for one in here:
            for name, time_us, who, charges in one.forwarded:
                if name not in first_lines:
                    late.add(charges, who, time_us, late.count)
        rows += write_run(folder, _tables(here, late, run_id), gateway=GATEWAY, run_id=run_id)
    return rows


def _tables(done: Iterable[RangeFound], late: ChargeRows, run_id: str) -> Iterator[pa.Table]:
    for one in done:
        for name in one.tables:
            path = Path(name)
            with pa.OSFile(name) as source, pa.ipc.open_file(source) as reader:
                yield reader.read_all()
            path.unlink()
    if late.count:
        yield late.table(gateway=GATEWAY, run_id=run_id)


def _summed(ranges: Sequence[LogRange], done: Sequence[RangeFound], rows: int) -> LogConverted:
    joined = {part.behind for part, one in zip(ranges, done, strict=True) if one.has_joined}
    rests = [
        one.rest
        for part, one in zip(ranges, done, strict=True)
        if one.rest is not None and part.path not in joined
    ]
    other: Counter[str] = Counter()
    for one in done:
        other.update(one.other)
    return LogConverted(
        read=sum(one.lines - (one.rest is not None) for one in done) + len(rests),
        rows=rows,
        bad=(*(bad for one in done for bad in one.bad), *rests),
        bad_count=sum(one.bad_count for one in done) + len(rests),
        joined=sum(one.has_joined for one in done),
        other=dict(other),
        steps_back=sum(one.steps_back for one in done),
    )
