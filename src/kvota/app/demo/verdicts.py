"""Judges of every limit of a record whether it held."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from kvota.model.bucket_settings import BucketSettings
from kvota.model.event import Outcome
from kvota.model.quota_type import FACTS, Algorithm, QuotaType
from kvota.planning.held import Charged, Decided, Held, Promise, held, held_by_debt

# The columns that make a counter.
_COUNTER = ("gateway", "run_id", "node_id", "quota_type", "tags")
_OTHERS = (
    "seq",
    "ts_us",
    "connection",
    "user",
    "value",
    "limit",
    "samples",
    "sample_ms",
    "algorithm",
    "outcome",
)

Verdicts = dict[tuple[str, str], Held]  # by (user, quota type)


@dataclass(slots=True)
class _Counter:
    quota_type: QuotaType
    algorithm: Algorithm
    users: set[str] = field(default_factory=set)
    burst_ms: int = 0
    rows: list[Charged] = field(default_factory=list)


def verdicts(record: Path, buckets: Mapping[QuotaType, BucketSettings]) -> Verdicts:
    """Judge, by (user, quota type), every counter with a limit; of several the worst is returned.

    Args:
        record: of an enforced run.
        buckets: what might be owed in bandwidth that was counted by token buckets. Of a sampled rate
            nothing is claimed, so it is not judged.
    """
    judged: Verdicts = {}
    for counter in _counters(record):
        promise = _promise(counter, buckets)
        if promise is None:
            continue
        found = _judged(counter, promise)
        for user in counter.users:
            key = (user, counter.quota_type.value)
            judged[key] = max(judged.get(key, found), found, key=_excess_s)
    return judged


def _counters(record: Path) -> list[_Counter]:
    """Collect the rows of each counter that has a limit, in the order of the decisions.

    A counter begins anew where its algorithm changes.
    """
    counters: dict[tuple[object, ...], list[_Counter]] = defaultdict(list)
    for row in pq.read_table(record, columns=[*_COUNTER, *_OTHERS]).sort_by("seq").to_pylist():
        algorithm = Algorithm(row["algorithm"])
        begun = counters[tuple(row[name] for name in _COUNTER)]
        if not begun or begun[-1].algorithm is not algorithm:
            begun.append(_Counter(QuotaType(row["quota_type"]), algorithm))
        counter = begun[-1]
        counter.users.add(row["user"])
        counter.burst_ms = max(counter.burst_ms, row["samples"] * row["sample_ms"])
        is_rejected = row["outcome"] == Outcome.REJECTED.value
        value = None if is_rejected else row["value"]
        counter.rows.append(Charged(row["ts_us"] // 1000, value, row["limit"]))
    every = [counter for begun in counters.values() for counter in begun]
    return [counter for counter in every if any(row.limit is not None for row in counter.rows)]


def _is_kafkas(quota_type: QuotaType) -> bool:
    """True for the token bucket of mutations."""
    return FACTS[quota_type].algorithms[0] is Algorithm.TOKEN_BUCKET


def _judged(counter: _Counter, promise: Promise) -> Held:
    if not _is_kafkas(counter.quota_type):
        return held_by_debt(counter.rows, promise)
    rows = (
        Decided(row.now_ms, None if row.value is None else row.value / row.limit)
        for row in counter.rows
        if row.limit
    )
    return held(rows, promise)


def _promise(counter: _Counter, buckets: Mapping[QuotaType, BucketSettings]) -> Promise | None:
    if _is_kafkas(counter.quota_type):
        return Promise(burst_s=counter.burst_ms / 1000)
    bucket = buckets.get(counter.quota_type)
    if bucket is None or counter.algorithm is not Algorithm.TOKEN_BUCKET:
        return None
    return Promise(
        burst_s=counter.burst_ms / 1000,
        debt_max_s=bucket.debt_max_ms / 1000,
    )


def _excess_s(found: Held) -> float:
    return found.admitted_s - found.allowed_s
