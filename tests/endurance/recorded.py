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
