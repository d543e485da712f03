"""A record of 100,000 counters: usage, the law and replay of what a gateway wrote, and of the same merged."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from kvota.pipeline import (
    LAW_COLUMNS,
    USAGE_COLUMNS,
    chunks_of_files,
    find_events,
    law,
    replay,
    usage_total,
)
from kvota.record.compact import compact
from kvota.record.event_file import runs_in_table
from kvota.record.event_parquet import parquet_bytes
from kvota.record.event_schema import WRITE_SCHEMA
from kvota.testing.recorded_traffic import RecordedTraffic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

USERS, BROKERS, FILES, ROWS_PER_FILE = 50_000, 2, 4, 75_000
COUNTERS = USERS * BROKERS
START_US = 1_900_800_000_000_000  # a full hour
QUOTAS = (50.0, 1e9)


@dataclass(frozen=True)
class Crowd:
    """A record, and what each of its counters did; the number of a counter is user x BROKERS + broker."""

    folder: Path
    charges: npt.NDArray[np.int64]
    used: npt.NDArray[np.float64]


@pytest.fixture(scope="module", params=["raw", "merged"])
def crowd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Crowd:
    """Every counter has three charges on average, and one at least; nobody has a limit."""
    folder = tmp_path_factory.mktemp("crowd")
    rng = np.random.default_rng(5)
    rows = FILES * ROWS_PER_FILE
    counter = rng.permutation(
        np.append(np.arange(COUNTERS), rng.integers(0, COUNTERS, rows - COUNTERS))
    )
    value = rng.integers(1, 10_000, rows).astype(np.float64)
    for first in range(0, rows, ROWS_PER_FILE):
        here = slice(first, first + ROWS_PER_FILE)
        table = _rows(first, counter[here], value[here])
        path = folder / f"events-gateway-1-run-1-{first:012}-{ROWS_PER_FILE}.parquet"
        path.write_bytes(parquet_bytes(table, runs_in_table(table)))
    if request.param == "merged":
        done = compact(folder, now_us=0, every_hour=True)
        assert sum(step.files for step in done.steps) == FILES
    charges = np.bincount(counter, minlength=COUNTERS)
    return Crowd(folder, charges, np.bincount(counter, value, COUNTERS))


def _rows(first: int, counter: npt.NDArray[np.int64], value: npt.NDArray[np.float64]) -> pa.Table:
    rows, user = len(counter), counter // BROKERS
    like = dict(zip(WRITE_SCHEMA.names, next(RecordedTraffic(1).rows(1)), strict=True))
    names = pa.array([f"user-{number}" for number in range(USERS)])
    tags = pa.array([f"client-id=,user=user-{number}" for number in range(USERS)])
    codes = pa.array(user.astype(np.int32))
    columns = {
        "ts_us": START_US + 10 * np.arange(first, first + rows),
        "seq": np.arange(first, first + rows),
        "gateway": pa.repeat("gateway-1", rows),
        "run_id": pa.repeat("run-1", rows),
        "node_id": counter % BROKERS,
        "quota_type": pa.repeat("PRODUCE", rows),
        "user": pa.DictionaryArray.from_arrays(codes, names),
        "client_id": pa.repeat("app", rows),
        "tags": pa.DictionaryArray.from_arrays(codes, tags),
        "value": value,
        "limit": pa.nulls(rows),
        "outcome": pa.repeat("admitted", rows),
        "throttle_ms": np.zeros(rows),
        "upstream_throttle_ms": np.zeros(rows),
        "owed_ms": pa.nulls(rows),
        "producer_id": pa.nulls(rows),
    }
    arrays = [
        pa.array(columns[name]) if name in columns else pa.repeat(like[name], rows)
        for name in WRITE_SCHEMA.names
    ]
    return pa.table(
        [array.cast(field.type) for array, field in zip(arrays, WRITE_SCHEMA, strict=True)],
        schema=WRITE_SCHEMA,
    )


def by_counter(table: DataFrame, *columns: str) -> tuple[npt.NDArray[np.int64], list[pa.Array]]:
    """The number of the counter of each row, in order, and these columns."""
    found = table.select("user", "node_id", *columns).toArrow()
    users = np.array([int(user.removeprefix("user-")) for user in found["user"].to_pylist()])
    counter = users * BROKERS + found["node_id"].to_numpy()
    order = np.argsort(counter, kind="stable")
    return counter[order], [found[name].to_numpy()[order] for name in columns]


def test_usage(spark: SparkSession, crowd: Crowd) -> None:
    chunks = chunks_of_files(spark, find_events([crowd.folder]), "user", further=USAGE_COLUMNS)

    counter, (events, value_sum) = by_counter(usage_total(chunks), "events", "value_sum")

    assert counter.tolist() == list(range(COUNTERS))
    assert (events == crowd.charges).all()
    assert (value_sum == crowd.used).all()


def test_the_law(spark: SparkSession, crowd: Crowd) -> None:
    result = law(chunks_of_files(spark, find_events([crowd.folder]), further=LAW_COLUMNS))

    assert result.holds
    assert (result.rows, result.missing, result.unjudged) == (FILES * ROWS_PER_FILE, 0, 0)


def test_replay(spark: SparkSession, crowd: Crowd) -> None:
    chunks = chunks_of_files(spark, find_events([crowd.folder]))

    table = replay(chunks, QUOTAS).orderBy("candidate")
    counter, (quota, events, value_sum, over) = by_counter(
        table, "quota", "events", "value_sum", "over"
    )

    assert counter.tolist() == np.repeat(np.arange(COUNTERS), len(QUOTAS)).tolist()
    for place, candidate in enumerate(QUOTAS):
        of_candidate = slice(place, None, len(QUOTAS))
        assert (quota[of_candidate] == candidate).all()
        assert (events[of_candidate] == crowd.charges).all()
        assert (value_sum[of_candidate] == crowd.used).all()
    assert not over[1 :: len(QUOTAS)].any()
    # All of it is within three seconds: whoever used more than a window has room for was over it with its last charge at least.
    is_over = crowd.used > QUOTAS[0] * 11
    assert 0 < is_over.sum() < COUNTERS
    assert (over[:: len(QUOTAS)][is_over] > 0).all()
