"""Kafka's request log becomes events, against a bare scan of its text by Spark, and against ``from_json``.

    ./run bench request_log [--lines 400000] [--rounds 3] [--files 4] [--data FOLDER]

All contestants run in turn within each round, on the same log. The first round warms up and is not counted; the ratio
of a round is what counts, its median is told, of seconds and of CPU seconds. *text scan*: Spark reads the lines and sums
their lengths. *sums*: Spark's own ``from_json`` with the smallest schema that has sizes of records, throttle and who it
was; they are summed, nothing is written. *same rows*: ``from_json`` with what it takes to make what *events* makes, a row
for the bytes of each request (rebuilt, for the versions of this log) and one for its time, in order within each file of
Parquet. *events*: what ``kvota usage --request-log`` does before it counts. The bytes of the last two have to be the same,
and larger than the sums of the records by headers only. Bars: *events* take at most 1.3 times the *text scan*, and *same rows* take
at least three times *events*.
"""

import argparse
import json
import os
import platform
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import verdict
from kvota.pipeline import end_session, session
from kvota.pipeline.sources.log_clock import LogClock
from kvota.pipeline.sources.log_files import find_request_log
from kvota.pipeline.sources.log_layout import layout_of, zone_of
from kvota.pipeline.sources.log_range import LogReading
from kvota.pipeline.sources.request_log import convert_log
from process_peaks import cpu_s, forget_peaks, peaks_mb

RESULT = Path(__file__).parent / "results" / "request_log.json"
READING = LogReading(zone="UTC")
# Events take at most so many times the text scan, and from_json at least so many times the events, of the same rows.
OF_SCAN_MAX, OF_FROM_JSON_MIN = 1.3, 3.0
USERS, CONNECTIONS = 200, 1_000
# Headers and names beside the records, of one request.
HEAD_BYTES_MAX = 1_000
PARTITION = "STRUCT<recordsSizeInBytes: BIGINT>"
SCHEMA_OF_SUMS = f"""
    requestHeader STRUCT<clientId: STRING>,
    request STRUCT<topicData: ARRAY<STRUCT<partitionData: ARRAY<{PARTITION}>>>>,
    response STRUCT<throttleTimeMs: INT, responses: ARRAY<STRUCT<partitions: ARRAY<{PARTITION}>>>>,
    throttleTimeMs INT, principal STRING
"""
SCHEMA_OF_ROWS = f"""
    isForwarded BOOLEAN,
    requestHeader STRUCT<requestApiKey: INT, requestApiVersion: INT, clientId: STRING>,
    request STRUCT<acks: INT, replicaId: INT, replicaState: STRUCT<replicaId: INT>,
                   topicData: ARRAY<STRUCT<name: STRING, partitionData: ARRAY<{PARTITION}>>>>,
    response STRUCT<throttleTimeMs: INT, responses: ARRAY<STRUCT<partitions: ARRAY<{PARTITION}>>>>,
    connection STRING, localTimeMs DOUBLE, throttleTimeMs INT, responseQueueTimeMs DOUBLE, sendTimeMs DOUBLE,
    principal STRING, listener STRING
"""
# Bytes of a request or answer as Kafka encodes them, of the versions that this log has: Produce 11 and Fetch 16.
VARINT = "CASE WHEN {0} < 128 THEN 1 WHEN {0} < 16384 THEN 2 WHEN {0} < 2097152 THEN 3 WHEN {0} < 268435456 THEN 4 ELSE 5 END"
PRODUCE_BYTES = f"""
    19L + length(r.requestHeader.clientId) + {VARINT.format("size(r.request.topicData) + 1")} +
    aggregate(r.request.topicData, 0L, (sum, topic) -> sum + length(topic.name) +
        {VARINT.format("length(topic.name) + 1")} + {VARINT.format("size(topic.partitionData) + 1")} + 1 +
        aggregate(topic.partitionData, 0L, (bytes, part) ->
            bytes + part.recordsSizeInBytes + 5 + {VARINT.format("part.recordsSizeInBytes + 1")}))
"""
FETCH_BYTES = f"""
    15L + {VARINT.format("size(r.response.responses) + 1")} +
    aggregate(r.response.responses, 0L, (sum, topic) -> sum + 17 +
        {VARINT.format("size(topic.partitions) + 1")} +
        aggregate(topic.partitions, 0L, (bytes, part) ->
            bytes + part.recordsSizeInBytes + 36 + {VARINT.format("part.recordsSizeInBytes + 1")}))
"""
CHARGED_US = "unix_micros(at) - CAST(round((r.sendTimeMs + r.responseQueueTimeMs) * 1000) AS BIGINT) AS ts_us"
OF_CLIENTS = """
    NOT r.isForwarded AND r.listener <> 'CONTROLLER' AND coalesce(r.request.replicaId, -1) < 0
    AND coalesce(r.request.replicaState.replicaId, -1) < 0
"""
ROWS = f"""
    explode(filter(array(
        CASE WHEN r.requestHeader.requestApiKey < 2 THEN named_struct('quota_type',
            CASE r.requestHeader.requestApiKey WHEN 0 THEN 'PRODUCE' ELSE 'FETCH' END,
            'value', CAST(CASE r.requestHeader.requestApiKey WHEN 0 THEN {PRODUCE_BYTES} ELSE {FETCH_BYTES} END AS DOUBLE)) END,
        CASE WHEN r.request.acks IS NULL OR r.request.acks <> 0 THEN
            named_struct('quota_type', 'REQUEST', 'value', r.localTimeMs * 0.1D) END), row -> row IS NOT NULL)) AS charge
"""


def lines(count: int) -> Iterator[str]:
    """Yield lines of a broker of Kafka 4.3: half of them Produces, nearly all others Fetches."""
    rng = random.Random(16)
    began = datetime(2026, 11, 21, tzinfo=UTC)
    for number in range(count):
        at = f"{began + timedelta(milliseconds=number):%Y-%m-%d %H:%M:%S,%f}"[:-3]
        connection = rng.randrange(CONNECTIONS)
        kind = rng.random()
        if kind < 0.5:
            key, version, request, response = produce(rng)
        elif kind < 0.95:
            key, version, request, response = fetch(rng)
        else:
            key, version, request, response = 12, 4, {"groupId": "g"}, {"throttleTimeMs": 0}
        fields = {
            "isForwarded": False,
            "requestHeader": {
                "requestApiKey": key,
                "requestApiVersion": version,
                "correlationId": number,
                "clientId": f"app-{connection % 300}",
                "requestApiKeyName": ("PRODUCE", "FETCH")[key] if key < 2 else "HEARTBEAT",
            },
            "request": request,
            "response": response,
            "connection": f"10.0.0.1:9092-10.0.{connection % 250}.7:{30_000 + connection}-1-{connection}",
            **{name: round(rng.random() * 3, 3) for name in TIMES[:4]},
            "throttleTimeMs": 0,
            **{name: round(rng.random() * 3, 3) for name in TIMES[4:]},
            "securityProtocol": "SASL_SSL",
            "principal": f"User:user-{connection % USERS}",
            "listener": "CLIENTS",
            "clientInformation": {"softwareName": "apache-kafka-java", "softwareVersion": "3.9.1"},
        }
        text = json.dumps(fields, separators=(",", ":"))
        yield f"[{at}] DEBUG Completed request:{text} (kafka.request.logger)\n"


TIMES = (
    "totalTimeMs",
    "requestQueueTimeMs",
    "localTimeMs",
    "remoteTimeMs",
    "responseQueueTimeMs",
    "sendTimeMs",
)


def produce(rng: random.Random) -> tuple[int, int, dict[str, object], dict[str, object]]:
    parts = [(index, rng.randrange(100, 100_000)) for index in range(rng.randrange(1, 6))]
    taken = [{"index": index, "recordsSizeInBytes": size} for index, size in parts]
    topic = f"orders-{rng.randrange(50)}"
    request = {
        "transactionalId": None,
        "acks": -1,
        "timeoutMs": 30_000,
        "topicData": [{"name": topic, "partitionData": taken}],
    }
    answers = [
        {
            "index": index,
            "errorCode": 0,
            "baseOffset": rng.randrange(2**40),
            "logAppendTimeMs": -1,
            "logStartOffset": 0,
            "recordErrors": [],
            "errorMessage": None,
        }
        for index, _ in parts
    ]
    named = {"responses": [{"name": topic, "partitionResponses": answers}], "throttleTimeMs": 0}
    return 0, 11, request, named


def fetch(rng: random.Random) -> tuple[int, int, dict[str, object], dict[str, object]]:
    parts = [(index, rng.randrange(100, 100_000)) for index in range(rng.randrange(1, 6))]
    topic_id = "7Xg_UzSDTVyndBdb0Zc6Ww"
    asked = [
        {
            "partition": index,
            "currentLeaderEpoch": 0,
            "fetchOffset": rng.randrange(2**40),
            "lastFetchedEpoch": -1,
            "logStartOffset": -1,
            "partitionMaxBytes": 1_048_576,
        }
        for index, _ in parts
    ]
    request = {
        "maxWaitMs": 500,
        "minBytes": 1,
        "maxBytes": 52_428_800,
        "isolationLevel": 1,
        "sessionId": 7,
        "sessionEpoch": 3,
        "topics": [{"topicId": topic_id, "partitions": asked}],
        "forgottenTopicsData": [],
        "rackId": "",
    }
    given = [
        {
            "partitionIndex": index,
            "errorCode": 0,
            "highWatermark": rng.randrange(2**40),
            "lastStableOffset": rng.randrange(2**40),
            "logStartOffset": 0,
            "abortedTransactions": [],
            "preferredReadReplica": -1,
            "recordsSizeInBytes": size,
        }
        for index, size in parts
    ]
    answered = [{"topicId": topic_id, "partitions": given}]
    return (
        1,
        16,
        request,
        {"throttleTimeMs": 0, "errorCode": 0, "sessionId": 7, "responses": answered},
    )


def write_log(folder: Path, count: int, files: int) -> None:
    """Write a log that was rolled some times."""
    each = -(-count // files)
    every = lines(count)
    for number in range(files):
        suffix = f".{files - 1 - number}" if number < files - 1 else ""
        with (folder / f"kafka-request.log{suffix}").open("w") as out:
            for _, text in zip(range(each), every, strict=False):
                out.write(text)


class Contest:
    """The contestants, by name; each returns the bytes it has found."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self._folder, self._spark = folder, spark
        self._text = spark.read.text(str(folder))

    def text_scan(self) -> int:
        """Return the length of all lines."""
        return int(self._text.agg(F.sum(F.length("value"))).collect()[0][0])

    def _parsed(self, schema: str) -> DataFrame:
        found = F.regexp_extract("value", r"Completed request:(\{.*\})", 1)
        return self._text.where(F.contains("value", F.lit("Completed request:"))).select(
            F.from_json(found, schema).alias("r"),
            F.to_timestamp(F.substring("value", 2, 23), "yyyy-MM-dd HH:mm:ss,SSS").alias("at"),
        )

    def sums(self) -> int:
        """Return the bytes of records, by Spark's parser."""
        parsed = self._parsed(SCHEMA_OF_SUMS)
        sizes = (
            F.flatten(F.col("r.request.topicData.partitionData")),
            F.flatten(F.col("r.response.responses.partitions")),
        )
        amounts = [
            F.coalesce(
                F.aggregate(size.recordsSizeInBytes, F.lit(0).cast("long"), lambda a, b: a + b),
                F.lit(0),
            )
            for size in sizes
        ]
        summed = parsed.select(
            (amounts[0] + amounts[1]).alias("bytes"),
            F.greatest("r.throttleTimeMs", "r.response.throttleTimeMs").alias("throttle_ms"),
            F.unix_micros("at").alias("ts_us"),
            F.concat("r.principal", "r.requestHeader.clientId").alias("who"),
        ).agg(F.sum("bytes"), F.sum("throttle_ms"), F.max("ts_us"), F.sum(F.length("who")))
        return int(summed.collect()[0][0])

    def same_rows(self) -> int:
        """Return the rebuilt bytes of Produces and Fetches, by Spark's parser."""
        rows = (
            self._parsed(SCHEMA_OF_ROWS)
            .where(OF_CLIENTS)
            .selectExpr(
                CHARGED_US,
                "substring(r.principal, 6) AS user",
                "r.requestHeader.clientId AS client_id",
                "r.connection",
                "r.requestHeader.requestApiKey AS api_key",
                "r.requestHeader.requestApiVersion AS api_version",
                "greatest(r.throttleTimeMs, r.response.throttleTimeMs) AS throttle_ms",
                ROWS,
            )
            .select("*", "charge.*")
            .drop("charge")
            .sortWithinPartitions("ts_us")
        )
        folder = Path(tempfile.mkdtemp(prefix="kvota-bench-"))
        try:
            rows.write.mode("overwrite").option("compression", "zstd").parquet(str(folder))
            return self._sum_of(folder)
        finally:
            shutil.rmtree(folder)

    def wake(self) -> None:
        """Have workers that are ready: Spark ends those that have had nothing to do for a minute."""
        with tempfile.TemporaryDirectory() as folder:
            write_log(Path(folder), 4_000, 4)
            self._converted(Path(folder))

    def events(self) -> int:
        """Return the rebuilt bytes of Produces and Fetches."""
        return self._converted(self._folder)

    def _converted(self, log: Path) -> int:
        folder = Path(tempfile.mkdtemp(prefix="kvota-bench-"))
        try:
            layout = layout_of()
            found = find_request_log([log], layout, LogClock(layout, zone_of("UTC")))
            done = convert_log(self._spark, found, READING, folder)
            assert not done.bad_count, done.bad[:3]
            self.rows = done.rows
            return self._sum_of(folder)
        finally:
            shutil.rmtree(folder)

    def _sum_of(self, folder: Path) -> int:
        total = 0
        for path in folder.glob("*.parquet"):
            rows = pq.read_table(path, columns=["quota_type", "value"])
            is_bytes = pc.is_in(rows["quota_type"], pa.array(["PRODUCE", "FETCH"]))
            total += int(pc.sum(rows.filter(is_bytes)["value"]).as_py())
        return total


def measure(contest: Contest, count: int, rounds: int) -> dict[str, Any]:
    contestants: dict[str, Callable[[], int]] = {
        "text scan": contest.text_scan,
        "sums": contest.sums,
        "same rows": contest.same_rows,
        "events": contest.events,
    }
    wall: dict[str, list[float]] = {name: [] for name in contestants}
    cpu: dict[str, list[float]] = {name: [] for name in contestants}
    peaks: dict[str, dict[str, int]] = {}
    load = os.getloadavg()[0]
    for number in range(rounds + 1):
        found = {}
        for name, work in contestants.items():
            contest.wake()
            forget_peaks()
            cpu_before, began = cpu_s(), time.perf_counter()
            found[name] = work()
            wall[name].append(time.perf_counter() - began)
            cpu[name].append(cpu_s() - cpu_before)
            peaks[name] = peaks_mb()
            print(
                f"round {number} {name}: {wall[name][-1]:.2f} s, {cpu[name][-1]:.2f} CPU-s",
                file=sys.stderr,
            )
        more = found["events"] - found["sums"]
        assert 0 < more < count * HEAD_BYTES_MAX, found
        assert found["events"] == found["same rows"], found
    return {
        "lines": count,
        "bytes": found["text scan"],
        "events": contest.rows,
        "rounds": rounds,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "load_at_start_and_end": [round(load, 1), round(os.getloadavg()[0], 1)],
        "contestants": {
            name: {
                "seconds": [round(taken, 3) for taken in wall[name][1:]],
                "cpu_seconds": [round(taken, 3) for taken in cpu[name][1:]],
                "mb_per_s": round(found["text scan"] / 1e6 / statistics.median(wall[name][1:])),
                "times_the_scan": ratio(wall[name], wall["text scan"]),
                "times_the_cpu_of_the_scan": ratio(cpu[name], cpu["text scan"]),
                "peak_mb": peaks[name],
            }
            for name in contestants
        },
        "bars": {"times_the_scan_max": OF_SCAN_MAX, "from_json_same_rows_min": OF_FROM_JSON_MIN},
        "from_json_against_events": {
            name: {
                "seconds": ratio(wall[name], wall["events"]),
                "cpu": ratio(cpu[name], cpu["events"]),
            }
            for name in ("sums", "same rows")
        },
    }


def ratio(ours: list[float], theirs: list[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(ours[1:], theirs[1:], strict=True)), 2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--data", type=Path, help="folder for the log, kept and used again")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as own:
        folder = args.data or Path(own) / "broker-1"
        if not folder.is_dir():
            print(f"writing {args.lines:,} lines", file=sys.stderr)
            folder.mkdir(parents=True)
            write_log(folder, args.lines, args.files)
        spark = session(memory="1g")
        try:
            result = measure(Contest(folder, spark), args.lines, args.rounds)
        finally:
            end_session(spark)
    print(f"{result['lines']:,} lines, {result['bytes']:,} bytes, {result['events']:,} events")
    for name, row in result["contestants"].items():
        print(
            f"{name:10} {row['mb_per_s']:>6} MB/s {row['times_the_scan']:>6} x the text scan  {row['peak_mb']}"
        )
    for name, times in result["from_json_against_events"].items():
        print(
            f"from_json ({name}) takes {times['seconds']} times as long as events, {times['cpu']} times the CPU"
        )
    print(f"load: {result['load_at_start_and_end']}")
    return verdict.judged(RESULT, result, missed(result))


def missed(result: dict[str, Any]) -> list[str]:
    """What misses its bar, a sentence each; like is held against like, so the rows of ``from_json`` count."""
    of_scan = result["contestants"]["events"]["times_the_scan"]
    of_from_json = result["from_json_against_events"]["same rows"]["seconds"]
    found = []
    if of_scan > OF_SCAN_MAX:
        found.append(
            f"events take {of_scan} times as long as the text scan; {OF_SCAN_MAX} is the bar"
        )
    if of_from_json < OF_FROM_JSON_MIN:
        found.append(
            f"from_json (same rows) takes {of_from_json} times as long as events; {OF_FROM_JSON_MIN} is the bar"
        )
    return found


if __name__ == "__main__":
    sys.exit(main())
