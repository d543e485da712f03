"""What a gateway has recorded."""

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq


def rows_by_outcome(record: Path) -> dict[str, int]:
    """How many rows of each quota type have which outcome, by names such as ``PRODUCE throttled``."""
    counts: Counter[str] = Counter()
    for path in record.glob("*.parquet"):
        columns = pq.read_table(path, columns=["quota_type", "outcome"]).to_pydict()
        counts.update(map(" ".join, zip(*columns.values(), strict=True)))
    return dict(sorted(counts.items()))


def waits_of_fetches(record: Path) -> list[float]:
    """For room for how many bytes each Fetch waited that did."""
    sizes: list[float] = []
    for path in sorted(record.glob("*.parquet")):
        columns = ["quota_type", "outcome", "upstream_throttle_ms", "value"]
        rows = pq.read_table(path, columns=columns).to_pylist()
        sizes += [
            row["value"]
            for row in rows
            if (row["quota_type"], row["outcome"]) == ("FETCH", "rejected")
            and row["upstream_throttle_ms"] is None
        ]
    return sizes
