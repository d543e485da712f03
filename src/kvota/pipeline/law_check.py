"""Checks the law: charges replayed with the recorded quotas give the recorded throttle times."""

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from kvota.model.plain_text import name_on_screen
from kvota.pipeline.chunks import Chunks
from kvota.pipeline.law_stage import (
    DIFFERENCES_SHOWN,
    FOUND,
    ROWS,
    compared_rows,
    found_by_law,
)

# The columns that chunks need for the law beside those they always have.
LAW_COLUMNS = ("throttle_ms", "owed_ms")


@dataclass(frozen=True, slots=True)
class LawOfType:
    """The law's result for the rows of one quota type."""

    quota_type: str
    rows: int
    throttled: int  # with throttle_ms > 0 or rejected, as recorded
    differing: int
    unjudged: int  # of counters whose first rows are not in the record

    def __str__(self) -> str:
        """Return one line for people: ``PRODUCE: 1,204 rows, 310 throttled, all equal``."""
        return _sentence(self.quota_type, self)


@dataclass(frozen=True, slots=True)
class Difference:
    """One row whose replay is not what was recorded."""

    gateway: str
    run_id: str
    seq: int
    node_id: int
    quota_type: str
    tags: str
    value: float
    limit: float | None
    throttle_ms: int | None  # None: the file has no such column
    outcome: str | None
    replayed_throttle_ms: int
    replayed_outcome: str

    def __str__(self) -> str:
        """Return one line for people."""
        return (
            f"{self.quota_type} seq {self.seq} of run {name_on_screen(self.run_id)} ({name_on_screen(self.tags)}, node {self.node_id}): "
            f"recorded {self.outcome} {self.throttle_ms} ms, "
            f"replayed {self.replayed_outcome} {self.replayed_throttle_ms} ms"
        )


@dataclass(frozen=True, slots=True)
class LawResult:
    """The law's result for a record, with the first rows that differ."""

    rows: int
    throttled: int
    differing: int
    unjudged: int
    of_types: tuple[LawOfType, ...]
    differences: tuple[Difference, ...] = field(default=())  # the first ones
    missing: int = 0  # rows lost within the runs (gaps in seq)
    repeated: int = 0  # rows there more than once
    not_replayed: int = 0  # rows of quota types without a kernel

    @property
    def holds(self) -> bool:
        """Return whether every judged row is equal, and there is one: no rows prove nothing."""
        return self.differing == 0 and self.rows > self.unjudged

    def __str__(self) -> str:
        """Return one line for people: ``18,204 rows, 1,310 throttled, all equal``."""
        return _sentence("", self)


def _sentence(name: str, result: "LawOfType | LawResult") -> str:
    verdict = f"{result.differing:,} differ" if result.differing else "all equal"
    if result.rows == result.unjudged:
        verdict = "nothing to judge"
    aside = f" ({result.unjudged:,} not judged)" if result.unjudged else ""
    start = f"{name}: " if name else ""
    return f"{start}{result.rows:,} rows, {result.throttled:,} throttled, {verdict}{aside}"


def replay_rows(chunks: Chunks) -> DataFrame:
    """Return the law as a table: every charge, replayed with the limit it was recorded with.

    In:  chunks by counter, with ``LAW_COLUMNS``.
    Out: gateway, run_id string, seq long (the key), node_id int, quota_type, tags string, ts_us long,
         value, limit double, throttle_ms int, outcome string (as recorded), replayed_throttle_ms int,
         replayed_outcome string, equal boolean (null: the counter's first rows are not in the
         record, so its contents cannot be known yet).
    """
    return chunks.stage(compared_rows, ROWS)


def law(chunks: Chunks) -> LawResult:
    """Replay the record and count rows that differ; this runs one Spark job.

    In:  chunks by counter, with ``LAW_COLUMNS``.
    """
    found = chunks.stage(found_by_law, FOUND).collect()
    counts: dict[str, list[int]] = {}
    differences: list[Difference] = []
    not_replayed = 0
    for row in found:
        if row["quota_type"] is None:
            not_replayed += row["rows"]
        elif row["rows"] is None:
            differences.append(_difference(row))
        else:
            numbers = [row["rows"], row["throttled"], row["differing"], row["unjudged"]]
            before = counts.get(row["quota_type"], [0] * len(numbers))
            counts[row["quota_type"]] = [a + b for a, b in zip(before, numbers, strict=True)]
    of_types = tuple(LawOfType(kind, *counts[kind]) for kind in sorted(counts) if counts[kind][0])
    rows = sum(item.rows for item in of_types)
    differences.sort(key=lambda row: (row.gateway, row.run_id, row.seq))
    return LawResult(
        rows=rows,
        throttled=sum(item.throttled for item in of_types),
        differing=sum(item.differing for item in of_types),
        unjudged=sum(item.unjudged for item in of_types),
        of_types=of_types,
        differences=tuple(differences[:DIFFERENCES_SHOWN]),
        missing=sum(max(0, run.missing) for run in chunks.runs),
        repeated=sum(max(0, -run.missing) for run in chunks.runs),
        not_replayed=not_replayed,
    )


def _difference(row: Any) -> Difference:
    return Difference(**{name: row[name] for name in Difference.__dataclass_fields__})
