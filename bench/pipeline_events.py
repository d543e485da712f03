"""Writes a record for the benchmark of the pipeline: made-up traffic that obeys the law."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from kvota.model.decision_sink import OUTCOMES
from kvota.model.quota_type import FACTS, QuotaType
from kvota.pipeline.kernels.law_kernel import STATE_SIZE, law_rows
from kvota.record.event_file import runs_in_table
from kvota.record.event_parquet import parquet_bytes
from kvota.record.event_schema import WRITE_SCHEMA
from kvota.record.own_texts import own_texts

BROKERS = 3
LIMIT = 200_000.0
START_US = 1_900_800_000_000_000  # a full hour
SAMPLES, SAMPLE_MS = 11, 1000

# Rows are made so many at a time, and each such block begins after more than an hour of silence: no counter
# remembers what was before, so a block obeys the law by itself.
_BLOCK_ROWS = 10_000_000
_BLOCK_US = 2 * 3_600_000_000
_ROW_US = 100  # on average: 10,000 decisions a second


@dataclass(frozen=True, slots=True)
class Traffic:
    """What is written.

    Attributes:
        events: rows in all.
        counters: of ``BROKERS`` brokers; their sizes follow Zipf with 1.1.
        hot: the share of the rows that one counter has besides.
        rows_per_file: of each file.
        rows_per_file_split: of each file of the same rows cut small; 0: there are none.
    """

    events: int
    counters: int = 15_000
    hot: float = 0.0
    rows_per_file: int = 1_000_000
    rows_per_file_split: int = 0


def write_events(folder: Path, traffic: Traffic) -> None:
    """Write PRODUCE charges in shadow mode on three brokers; sizes are log-normal."""
    rng = np.random.default_rng(1)
    users = -(-traffic.counters // BROKERS)
    weight = 1 / np.arange(1, users + 1) ** 1.1
    names = pa.array([f"user-{number}" for number in range(users)])
    tags = pa.array([f"client-id=,user=user-{number}" for number in range(users)])
    for block, first in enumerate(range(0, traffic.events, _BLOCK_ROWS)):
        rows = min(_BLOCK_ROWS, traffic.events - first)
        user = rng.choice(users, rows, p=weight / weight.sum()).astype(np.int32)
        node = rng.integers(0, BROKERS, rows).astype(np.int32)
        if traffic.hot:
            is_hot = rng.random(rows) < traffic.hot
            user[is_hot], node[is_hot] = 0, 0
        began_us = START_US + block * _BLOCK_US
        ts_us = began_us + np.cumsum(rng.exponential(_ROW_US, rows)).astype(np.int64)
        value = np.round(rng.lognormal(7, 1.5, rows))
        throttle_ms, outcome = _lawful(user.astype(np.int64) * BROKERS + node, ts_us, value)
        for start in range(0, rows, traffic.rows_per_file):
            part = slice(start, min(start + traffic.rows_per_file, rows))
            length = part.stop - start
            seq = first + np.arange(start, part.stop)
            codes = pa.array(user[part])
            outcomes = pa.array(outcome[part].astype(np.int32))
            columns = {
                "ts_us": ts_us[part],
                "seq": seq,
                "gateway": _same("gateway-1", length),
                "run_id": _same("run-1", length),
                "node_id": node[part],
                "quota_type": _same("PRODUCE", length),
                "connection": codes.cast(pa.int64()),
                "user": own_texts(pa.DictionaryArray.from_arrays(codes, names)),
                "client_id": _same("app", length),
                "tags": own_texts(pa.DictionaryArray.from_arrays(codes, tags)),
                "api_key": np.zeros(length, np.int16),
                "api_version": np.full(length, 11, np.int16),
                "value": value[part],
                "limit": np.full(length, LIMIT),
                "samples": np.full(length, SAMPLES, np.int16),
                "sample_ms": np.full(length, SAMPLE_MS, np.int32),
                "algorithm": _same("sampled_rate", length),
                "outcome": pa.DictionaryArray.from_arrays(
                    outcomes, pa.array([o.value for o in OUTCOMES])
                ),
                "enforced": pa.array(np.zeros(length, np.bool_)),
                "throttle_ms": throttle_ms[part],
                "upstream_throttle_ms": np.zeros(length, np.int32),
                "owed_ms": pa.nulls(length, pa.int64()),
                "producer_id": pa.nulls(length, pa.int64()),
            }
            table = pa.table(
                [pa.array(columns[name]).cast(WRITE_SCHEMA.field(name).type) for name in columns],
                schema=WRITE_SCHEMA,
            )
            path = folder / f"events-gateway-1-run-1-{first + start:012}-{length}.parquet"
            path.write_bytes(parquet_bytes(table, runs_in_table(table)))


def _lawful(
    counter: np.ndarray, ts_us: np.ndarray, value: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The throttle times and outcomes that a gateway would have recorded."""
    rows = len(counter)
    order = np.argsort(counter, kind="stable")
    sorted_counter = counter[order]
    first = np.ones(rows, np.bool_)
    first[1:] = sorted_counter[1:] != sorted_counter[:-1]
    no, yes = np.zeros(rows, np.bool_), np.ones(rows, np.bool_)
    is_bucket = is_brief = is_debt = is_strict = is_refused = no
    throttle_ms, outcome = np.empty(rows, np.int32), np.empty(rows, np.int8)
    law_rows(
        first,
        yes,
        is_bucket,
        is_brief,
        is_debt,
        is_strict,
        yes,  # a Produce
        is_refused,
        ts_us[order],
        value[order],
        np.full(rows, LIMIT),
        np.full(rows, FACTS[QuotaType.PRODUCE].floor),
        np.full(rows, SAMPLES),
        np.full(rows, SAMPLE_MS),
        np.zeros(STATE_SIZE, np.int64),
        np.zeros(1),
        np.zeros(SAMPLES + 1, np.int64),
        np.zeros(SAMPLES + 1, np.int64),
        np.zeros(SAMPLES + 1),
        throttle_ms,
        outcome,
        np.empty(rows, np.bool_),
    )
    back = np.empty(rows, np.int64)
    back[order] = np.arange(rows)
    return throttle_ms[back], outcome[back]


def _same(text: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))
